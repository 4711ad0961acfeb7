"""The verdict on an event that is not done, and the choice of the parked row of a key that may run next."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partbox import Dead, Done, Ignore, RetryAfter, RetryAfterError, UnrecoverableError
from partbox.errors import DownstreamUnavailable, PayloadError, RecoverableError, UnroutableError
from partbox.protocol.parking import MAX_CHAIN_RUN, OPEN_STATES, Chain, ParkedRow, RowStage, RowState
from partbox.protocol.retry import Exponential, Fixed, RetryPolicy
from partbox.protocol.verdict import Deferral, Verdict, describe, judge_result

LIMIT = 4000


@dataclass(frozen=True)
class Handler:
    retry: RetryPolicy = field(default_factory=lambda: Fixed(3))
    max_attempts: int | None = 10
    on_failure: str = "block"
    on_dead: str = "continue"


class Refused(UnrecoverableError):
    pass


counts = st.integers(0, 1000)
handlers = st.builds(
    Handler,
    max_attempts=st.none() | st.integers(1, 20),
    on_failure=st.sampled_from(["block", "continue"]),
    on_dead=st.sampled_from(["continue", "block"]),
)


def verdict(handler: Handler, attempts: int, result: object) -> tuple:
    """(state, attempts, delay, blocks), or None for done."""
    found = judge_result(handler, attempts, result, LIMIT)
    return found and (found.state, found.attempts, found.delay, found.blocks)


# The table: what happened, attempts, state, does it block its key?


@given(handlers, counts)
def test_a_handler_that_returns_none_or_done_needs_no_verdict(handler, attempts):
    assert judge_result(handler, attempts, None, LIMIT) is None
    assert judge_result(handler, attempts, Done(), LIMIT) is None


@pytest.mark.parametrize("on_failure", ["block", "continue"])
def test_a_raised_error_is_retried_when_the_policy_says_so(on_failure):
    handler = Handler(Exponential(0.2, 60, 2), on_failure=on_failure)
    blocks = on_failure == "block"
    assert verdict(handler, 0, ValueError("x")) == ("retrying", 1, 0.2, blocks)
    assert verdict(handler, 3, RecoverableError("x")) == ("retrying", 4, 1.6, blocks)
    assert verdict(handler, 8, DownstreamUnavailable("x")) == ("retrying", 9, 51.2, blocks)


@pytest.mark.parametrize("on_failure", ["block", "continue"])
def test_a_raised_retry_after_names_its_delay_and_counts(on_failure):
    assert verdict(Handler(on_failure=on_failure), 2, RetryAfterError(7)) == ("retrying", 3, 7.0, on_failure == "block")
    assert verdict(Handler(Fixed(3, exclude=(RetryAfterError,))), 0, RetryAfterError(7)) == ("retrying", 1, 7.0, True)


@pytest.mark.parametrize("on_failure", ["block", "continue"])
def test_a_returned_retry_after_is_deferred_and_counts_nothing(on_failure):
    handler = Handler(max_attempts=1, on_failure=on_failure)
    assert verdict(handler, 5, RetryAfter(7)) == ("deferred", 5, 7.0, on_failure == "block")
    assert verdict(handler, 0, RetryAfter(0)) == ("deferred", 0, 0.0, on_failure == "block")


@pytest.mark.parametrize("on_dead", ["continue", "block"])
@pytest.mark.parametrize(
    ("attempts", "result", "counted"),
    [
        (9, ValueError("x"), 10),
        (9, RetryAfterError(1), 10),
        (0, Dead("never"), 1),
        (0, Dead(), 1),
        (0, UnrecoverableError("x"), 1),
        (0, Refused("x"), 1),
        (9, UnrecoverableError("x"), 10),
        (2, PayloadError("x"), 2),
        (9, PayloadError("x"), 9),
        (2, UnroutableError("x"), 2),
    ],
)
def test_an_event_that_failed_for_good_is_dead_and_blocks_only_if_asked(on_dead, attempts, result, counted):
    assert verdict(Handler(on_dead=on_dead), attempts, result) == ("dead", counted, None, on_dead == "block")


def test_an_event_whose_error_the_policy_excludes_is_dead_at_once():
    handler = Handler(Fixed(3, include=(OSError,), exclude=(ConnectionError,)))
    assert verdict(handler, 0, FileNotFoundError()) == ("retrying", 1, 3.0, True)
    assert verdict(handler, 0, ConnectionResetError()) == ("dead", 1, None, False)
    assert verdict(handler, 0, ValueError()) == ("dead", 1, None, False)


@pytest.mark.parametrize("wrong", [True, 0, "done", RetryAfter, Dead, object()])
def test_any_other_returned_value_is_an_error_of_the_handler(wrong):
    found = judge_result(Handler(), 0, wrong, LIMIT)
    assert (found.state, found.attempts) == ("retrying", 1)
    assert found.error == f"TypeError: a handler may return None, Done, RetryAfter or Dead, not {type(wrong).__name__}"


@given(st.integers(1, 30), st.integers(0, 40))
def test_max_attempts_counts_the_first_call_too(most, earlier):
    found = judge_result(Handler(max_attempts=most), earlier, ValueError(), LIMIT)
    assert found.state == ("dead" if earlier + 1 >= most else "retrying")


@given(counts)
def test_an_event_without_max_attempts_is_retried_for_ever(attempts):
    assert verdict(Handler(max_attempts=None), attempts, ValueError())[0] == "retrying"


@given(
    handlers,
    counts,
    st.sampled_from(
        [ValueError("x"), RetryAfterError(1), RetryAfter(1), Dead("x"), UnrecoverableError("x"), PayloadError("x"), 5]
    ),
)
def test_a_verdict_is_one_that_can_be_stored(handler, attempts, result):
    found = judge_result(handler, attempts, result, LIMIT)
    assert type(found.state) is RowState
    assert found.attempts in (attempts, attempts + 1)
    assert (found.delay is None) == (found.state == "dead")
    assert found.delay is None or found.delay >= 0
    assert found.blocks == ((handler.on_dead if found.state == "dead" else handler.on_failure) == "block")


@given(handlers, counts)
def test_a_deferral_counts_no_attempt_and_says_why(handler, attempts):
    found = judge_result(handler, attempts, Deferral(3.0, "the broker is away"), LIMIT)
    assert (found.state, found.attempts, found.delay, found.error) == ("deferred", attempts, 3.0, "the broker is away")
    assert found.blocks == (handler.on_failure == "block")


# What on_error says comes before the policy.


@given(handlers, counts, st.sampled_from([Done(), Ignore()]))
def test_on_error_can_call_an_error_done(handler, attempts, advice):
    assert judge_result(handler, attempts, ValueError("x"), LIMIT, advice) is None


@given(handlers, counts, st.sampled_from([None, "because"]))
def test_on_error_can_call_an_event_dead_with_a_reason_of_its_own(handler, attempts, reason):
    found = judge_result(handler, attempts, ValueError("x"), LIMIT, Dead(reason))
    assert (found.state, found.attempts, found.error) == ("dead", attempts + 1, reason or "ValueError: x")


@given(handlers, counts, st.floats(0, 1e6))
def test_a_retry_that_on_error_asks_for_counts_and_obeys_max_attempts(handler, attempts, delay):
    found = judge_result(handler, attempts, ValueError("x"), LIMIT, RetryAfter(delay))
    last = handler.max_attempts is not None and attempts + 1 >= handler.max_attempts
    assert (found.state, found.attempts) == ("dead" if last else "retrying", attempts + 1)
    assert found.delay == (None if last else delay)


@given(handlers, counts, st.sampled_from([ValueError("x"), RetryAfterError(1), UnrecoverableError("x")]))
def test_without_advice_the_policy_decides(handler, attempts, error):
    assert judge_result(handler, attempts, error, LIMIT, None) == judge_result(handler, attempts, error, LIMIT)


def test_open_states_are_all_states_except_scheduled_and_dead():
    assert set(OPEN_STATES) == set(RowState) - {"scheduled", "dead"}


# What is kept of an error.


@given(st.text(), st.integers(1, 50))
def test_an_error_is_its_type_and_text_up_to_the_limit_and_can_be_stored(text, limit):
    found = describe(ValueError(text), limit)
    assert len(found) <= limit
    assert f"ValueError: {text}".startswith(found) or not text.isprintable()
    assert "\0" not in found
    found.encode("utf-8")


def test_an_error_of_a_library_is_named_with_its_module():
    assert describe(PayloadError("no"), LIMIT) == "partbox.errors.PayloadError: no"
    assert describe(KeyError("k"), LIMIT) == "KeyError: 'k'"


def test_an_error_that_cannot_be_stored_as_it_is_can_be_read_all_the_same():
    assert describe(ValueError("a\0b\ud800c"), LIMIT) == "ValueError: a\\0b\\ud800c"


def test_a_reason_is_kept_up_to_the_limit():
    assert judge_result(Handler(), 0, Dead("r" * 50), 10).error == "r" * 10
    assert judge_result(Handler(), 0, Dead(), 10).error is None


@pytest.mark.parametrize("reason", ["a\0b", "a\ud800b"])
def test_a_reason_that_cannot_be_stored_as_it_is_can_be_read_all_the_same(reason):
    error = judge_result(Handler(), 0, Dead(reason), LIMIT).error
    assert "\0" not in error
    error.encode("utf-8")


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_an_error_whose_text_cannot_be_had_is_an_error_like_any_other():
    found = judge_result(Handler(), 0, Mute(), LIMIT)
    assert (found.state, found.attempts) == ("retrying", 1)
    assert "Mute" in found.error


class Odd:
    """A policy of a user's own."""

    def __init__(self, delay: float) -> None:
        self.delay = delay

    def should_retry(self, error: BaseException) -> bool:
        return True

    def next_delay(self, attempt: int) -> float:
        return self.delay


@pytest.mark.parametrize("delay", [float("inf"), float("nan")])
def test_a_policy_s_delay_is_always_one_that_can_be_waited_for(delay):
    found = judge_result(Handler(Odd(delay)), 0, ValueError(), LIMIT)
    assert found.state == "retrying"
    assert 0 <= found.delay < 1e11


# The head rule.

NOW = 100.0


@st.composite
def parked_rows(draw: st.DrawFn, **fixed: object) -> list[ParkedRow]:
    ids = draw(st.lists(st.integers(1, 10**6), unique=True, max_size=30))
    one = st.fixed_dictionaries(
        {
            "state": st.sampled_from([*OPEN_STATES, RowState.DEAD]),
            "attempts": st.integers(0, 9),
            "due": st.none() | st.floats(0, 2 * NOW),
            "stage": st.sampled_from(RowStage),
        }
    )
    return [ParkedRow(id=id, blocks=True, **(draw(one) | fixed)) for id in ids]


def chained(rows: list[ParkedRow]) -> Chain:
    chain = Chain()
    for row in rows:
        chain.insert(row)
    return chain


def free_to_run(row: ParkedRow) -> bool:
    """The table of states, spelled out."""
    at_once = row.state in ("held", "ready")
    due = row.state in ("retrying", "deferred") and row.due is not None and row.due <= NOW
    return row.stage is RowStage.WAITING and (at_once or due)


@given(parked_rows())
def test_a_chain_is_in_id_order_however_its_rows_came(rows):
    assert [row.id for row in chained(rows)] == sorted(row.id for row in rows)


@given(parked_rows())
def test_the_runnable_rows_are_the_head_and_those_that_follow_it_without_a_gap(rows):
    chain = chained(rows)
    run = chain.list_runnable(NOW)
    whole = list(chain)
    assert run == whole[: len(run)]
    assert all(free_to_run(row) for row in run)
    assert len(run) == len(whole) or not free_to_run(whole[len(run)])


@given(parked_rows())
def test_no_row_runs_behind_a_dead_uncommitted_or_waiting_row(rows):
    chain = chained(rows)
    stop = min((row.id for row in rows if not free_to_run(row)), default=10**9)
    assert all(row.id < stop for row in chain.list_runnable(NOW))


@given(parked_rows())
def test_a_chain_wakes_exactly_when_its_head_may_run(rows):
    chain = chained(rows)
    at = chain.wakes_at()
    assert (at is not None and at <= NOW) == bool(chain.list_runnable(NOW))
    if at is not None:
        assert chain.list_runnable(at)
        assert at == 0 or not chain.list_runnable(at - 1e-6)


@given(parked_rows(stage=RowStage.WAITING, state=RowState.HELD), st.data())
def test_a_row_added_below_the_head_becomes_the_head(rows, data):
    chain = chained(rows)
    late = ParkedRow(0, RowState.HELD, 0, True, stage=data.draw(st.sampled_from([RowStage.UNSAVED, RowStage.WAITING])))
    chain.insert(late)
    assert next(iter(chain)) is late
    assert chain.list_runnable(NOW)[:1] == ([late] if late.stage is RowStage.WAITING else [])


@given(parked_rows(), st.data())
def test_a_removed_row_leaves_the_others_as_they_were(rows, data):
    chain = chained(rows)
    if rows:
        gone = data.draw(st.sampled_from(rows))
        chain.rows.remove(gone)
        assert [row.id for row in chain] == sorted(row.id for row in rows if row is not gone)


def test_a_chain_runs_in_pieces():
    chain = chained([ParkedRow(id, RowState.HELD, 0, True) for id in range(2 * MAX_CHAIN_RUN + 1)])
    assert [row.id for row in chain.list_runnable(NOW)] == list(range(MAX_CHAIN_RUN))


def test_an_empty_chain_runs_nothing_and_never_wakes():
    assert Chain().list_runnable(NOW) == []
    assert Chain().wakes_at() is None


@given(parked_rows(), st.booleans())
def test_a_chain_has_caught_up_only_when_every_row_is_loaded_and_no_slow_row_blocks_it(rows, blocked_by_slow):
    chain = chained(rows)
    chain.blocked_by_slow = blocked_by_slow
    assert chain.is_caught_up() == (not blocked_by_slow and all(row.is_loaded for row in rows))


@given(st.integers(1, 12), st.randoms(use_true_random=False), st.integers(1, 4))
def test_a_key_s_rows_end_in_id_order_whatever_fails_on_the_way(count, random, most):
    """Run what may run, in order; one that fails waits with its followers; at `most` attempts it is dead and goes."""
    handler = Handler(Fixed(5), max_attempts=most)
    rows = [ParkedRow(id, RowState.HELD, 0, True) for id in range(count)]
    chain, now, ended = chained(random.sample(rows, count)), 0.0, []
    while list(chain):
        run = chain.list_runnable(now)
        if not run:
            now = chain.wakes_at()
            continue
        ended.extend(row.id for row in _until_failure(chain, run, random, handler, now))
    assert ended == list(range(count))


def _until_failure(chain: Chain, run: list[ParkedRow], random, handler: Handler, now: float) -> Iterator[ParkedRow]:
    for row in run:
        found: Verdict | None = judge_result(handler, row.attempts, random.choice([None, ValueError()]), LIMIT)
        if found is None or not found.blocks:
            chain.rows.remove(row)
            yield row
            continue
        row.state, row.attempts, row.due = found.state, found.attempts, now + found.delay
        return


@pytest.mark.parametrize("kind", [RetryAfter, RetryAfterError])
def test_a_delay_may_be_any_form_of_duration_or_a_point_in_time(kind):
    given = (7, 1.5, timedelta(minutes=5), "5m", "250ms", "90")
    assert [kind(delay).delay for delay in given] == [7.0, 1.5, 300.0, 300.0, 0.25, 90.0]
    now = datetime.now(UTC)
    assert 3_590 < kind(now + timedelta(hours=1)).delay <= 3_600
    elsewhere = datetime.now(timezone(timedelta(hours=5))) + timedelta(hours=1)
    assert 3_590 < kind(elsewhere).delay <= 3_600
    assert kind(now - timedelta(days=1)).delay == 0


@pytest.mark.parametrize("kind", [RetryAfter, RetryAfterError])
@pytest.mark.parametrize(
    ("delay", "said"),
    [
        (datetime(2026, 1, 1), "2026-01-01T00:00:00 has no time zone: give it one, such as datetime.UTC"),
        ("soon", "'soon' is no delay: give seconds, or a text such as .*, a timedelta, or a datetime with a time zone"),
        (-1, "-1 is no delay"),
        (timedelta(-1), "is no delay"),
        (float("nan"), "nan is no delay"),
        (True, "True is no delay"),
        (None, "None is no delay"),
    ],
)
def test_an_invalid_delay_is_refused_with_the_forms_that_are_valid(kind, delay, said):
    with pytest.raises(ValueError, match=said):
        kind(delay)
