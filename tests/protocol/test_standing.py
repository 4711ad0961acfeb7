"""Where a record stands in a subscription, decided from the rows that tell it."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from partbox.protocol.delivery_status import Delivery, DeliveryFacts, HistoryEntry, ParkedState, derive_status

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
STATES = ("retrying", "deferred", "scheduled", "held", "ready", "dead", "discarded")
OUTCOMES = ("failed", "dead", "ignored", "interrupted", "done", "repeated", "skipped", "replayed", "discarded")

moments = st.integers(0, 1_000).map(lambda second: EPOCH + timedelta(seconds=second))
entries = st.builds(HistoryEntry, moments, st.sampled_from(OUTCOMES), st.integers(0, 10))
parked = st.builds(ParkedState, st.sampled_from(STATES), st.integers(0, 10), st.none() | moments, moments)
deliveries = st.builds(Delivery, st.sampled_from(("delivered", "repeated", "ignored")), moments, moments, st.none())
some_facts = st.builds(
    DeliveryFacts,
    subscription=st.just("default"),
    partition=st.integers(0, 255),
    paused=st.booleans(),
    wanted=st.booleans(),
    consumed=st.booleans(),
    owner=st.none() | st.just("7 on web"),
    running=st.booleans(),
    ahead=st.none() | st.integers(0, 5),
    head=st.none() | st.integers(1, 5),
    parked=st.none() | parked,
    delivery=st.none() | deliveries,
    history=st.lists(entries, max_size=3).map(tuple),
)


@given(some_facts)
def test_a_record_is_shown_as_delivered_only_if_it_is_consumed_and_neither_parked_nor_ignored(facts):
    end = facts.delivery if facts.consumed and facts.parked is None else None
    told = derive_status(facts)
    assert (told.state == "delivered") == (end is not None and end.outcome != "ignored")
    assert (told.state == "ignored") == (end is not None and end.outcome == "ignored")
    assert told.delivered == end


@given(some_facts, parked)
def test_a_dead_or_discarded_record_runs_nowhere_and_waits_for_nothing(facts, row):
    told = derive_status(DeliveryFacts("default", 7, facts.paused, consumed=facts.consumed, owner=facts.owner,
                                  running=facts.running, head=facts.head, parked=row))  # fmt: skip
    given_up = row.state in ("dead", "discarded")
    assert (told.state in ("dead", "discarded")) == given_up
    if given_up:
        assert (told.process, told.behind, told.why, told.due_at) == (None, None, None, None)
    elif facts.running:
        assert (told.state, told.process, told.why) == ("running", facts.owner, None)
    else:
        assert (told.state, told.behind, told.due_at) == (row.state, facts.head, row.due_at)
    assert (told.attempts, told.since) == (row.attempts, row.parked_at)


@given(some_facts)
def test_an_unread_record_is_shown_as_waiting_with_the_reason(facts):
    told = derive_status(DeliveryFacts("default", 7, facts.paused, owner=facts.owner, ahead=3, head=facts.head))
    assert (told.state, told.process, told.ahead, told.behind) == ("waiting", facts.owner, 3, facts.head)
    if facts.paused:
        assert told.why == "the subscription is paused"
    else:
        assert told.why == (None if facts.owner else "no process owns partition 7")


@given(some_facts)
def test_the_history_is_told_whole(facts):
    told = derive_status(facts)
    assert told.history == facts.history
    assert told.may_have_run_twice == ("repeated" in [entry.outcome for entry in facts.history])


def test_a_record_that_does_not_concern_a_subscription_is_not_shown_as_delivered():
    unwanted = DeliveryFacts("default", 7, wanted=False, consumed=True)
    assert derive_status(unwanted).state == "unwanted"
    assert derive_status(DeliveryFacts("default", 7, consumed=True)).state == "passed"


def test_the_error_of_an_ignored_record_is_kept():
    history = (HistoryEntry(EPOCH, "ignored", 1, error="ValueError: no"),)
    end = Delivery("ignored", EPOCH, EPOCH, None)
    told = derive_status(DeliveryFacts("default", 7, consumed=True, delivery=end, history=history))
    assert (told.state, told.error, told.attempts) == ("ignored", "ValueError: no", 1)
