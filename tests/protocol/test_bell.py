"""The rules of the bell: nothing that is committed waits for longer than a nap, whatever is swallowed."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import itemgetter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from partbox.protocol.bell import (
    FLAG_TIME,
    HEARD_TIME,
    MAX_ANSWER_LAG,
    MAX_FLAG_AHEAD_MS,
    MIN_ID_GAP,
    NAP,
    NO_ASK_TIME,
    RAISED_POLL,
    SHORT_NAP,
    STILL_TIME,
    BellPoll,
    FlagChange,
    FlagMemory,
    SleepControl,
    SleepState,
    build_channel_name,
    find_reason_off,
    flag_seconds_left,
)
from partbox.protocol.intervals import LONGEST_TICK

LOOK = 0.001  # seconds between the looks of a worker that is awake
MOST = 0.0001  # more than the errors of adding up floats
BRIEFLY = 0.2  # seconds for which the flag is up, not enough for a nap
NAPS = st.sampled_from([NAP, LONGEST_TICK])


@dataclass
class Publish:
    """A transaction whose statement is sent at `sent`, draws an id and asks at `at`, and commits at `ends`.

    `hears` False: its ring is swallowed.
    """

    sent: float
    at: float
    ends: float
    hears: bool
    should_ask: bool = False
    rang: bool = False
    found: float | None = None


class World:
    """One worker, and one process that publishes. Others raise the flag at `raised`, and lower it at `lowered`, when
    their calls are lost."""

    def __init__(
        self, publishes: list[Publish], nap: float, raised: Sequence[float] = (), lowered: Sequence[float] = ()
    ) -> None:
        self.publishes = publishes
        self.nap = nap
        self.flag = 0.0
        self.asking, self.doze = FlagMemory(), SleepControl()
        steps: list[tuple[float, Callable[[], object]]] = [(at, self._lowered) for at in lowered]
        steps += [(at, partial(self._raised, at)) for at in raised]
        for each in publishes:
            steps += [(each.sent, partial(self._sent, each)), (each.at, partial(self._drawn, each))]
            steps += [(each.ends, partial(self._committed, each))]
        self._steps = deque(sorted(steps, key=itemgetter(0)))
        self._end = max((each.ends for each in publishes), default=0.0) + 2 * nap
        self._look_at = 0.0

    def run(self) -> None:
        """Until all is found."""
        while self._look_at < self._end:
            if self._steps and self._steps[0][0] <= self._look_at:
                self._steps.popleft()[1]()
            else:
                self._look(self._look_at)

    def _up(self, now: float) -> bool:
        return self._ahead(now) > 0

    def _ahead(self, now: float) -> float:
        return flag_seconds_left(round((self.flag - now) * 1_000))

    def _lowered(self) -> None:
        self.flag = 0.0

    def _raised(self, at: float) -> None:
        self.flag = at + FLAG_TIME

    def _sent(self, publish: Publish) -> None:
        publish.should_ask = self.asking.should_ask(publish.sent)

    def _drawn(self, publish: Publish) -> None:
        if publish.should_ask:
            publish.rang = self._up(publish.at)
            self.asking.note_answer(publish.sent, publish.rang)

    def _committed(self, publish: Publish) -> None:
        if publish.rang and publish.hears:
            self._look_at = min(self._look_at, publish.ends)

    def _look(self, now: float) -> None:
        for each in self.publishes:
            if each.ends <= now and each.found is None:
                each.found = now
        drawn = sum(each.at <= now for each in self.publishes)
        settled = all(each.ends <= now for each in self.publishes if each.at <= now)
        act = self.doze.observe(now, BellPoll(drawn, settled, self._ahead(now)), listens=True, nap=self.nap)
        if act is FlagChange.RAISE:
            self.doze.note_raised(now, was_up=self._up(now))
            self.flag = now + FLAG_TIME
        elif act is FlagChange.LOWER:
            self.flag = 0.0
            self.doze.note_lowered()
        pause = self.doze.compute_pause(now)
        assert pause is None or 0 < pause <= self.nap
        self._look_at = now + (LOOK if pause is None else pause)


def published(times: tuple[int, int, int], hears: bool) -> Publish:
    """In tenths of a millisecond: when it is sent, how long it is on its way, and how long it stays open."""
    sent, way, lasts = (each / 10_000 for each in times)
    return Publish(sent, sent + way, sent + way + lasts, hears)


moments = st.integers(0, 8_000)
times = st.lists(moments.map(lambda at: at / 10_000), max_size=4)
ways = st.integers(0, 100)
durations = st.just(0) | st.integers(0, 3_000)


def publishes(hears: st.SearchStrategy[bool]) -> st.SearchStrategy[list[Publish]]:
    """Singly, or in bursts in which one follows the other within what a publisher believes."""
    single = st.builds(
        lambda at, way, lasts, hears: [published((at, way, lasts), hears)], moments, ways, durations, hears
    )
    burst = st.builds(
        lambda at, after, way, hears: [published((at, 0, 0), hears), published((at + after, way, 0), hears)],
        moments,
        st.integers(0, 40),
        ways,
        hears,
    )
    return st.lists(single | burst, max_size=8).map(lambda made: [each for several in made for each in several])


@settings(max_examples=300, deadline=None)
@given(publishes(st.booleans()), NAPS, times, times)
def test_no_event_waits_longer_than_a_nap_whatever_rings_are_lost(
    made: list[Publish], nap: float, raised: list[float], lowered: list[float]
) -> None:
    World(made, nap, raised, lowered).run()
    for each in made:
        assert each.found is not None
        assert each.found - each.ends <= nap + MOST


@settings(max_examples=300, deadline=None)
@given(publishes(st.just(True)), NAPS, times)
@example([published((1_000, 0, 0), True), published((1_029, 60, 0), True)], NAP, [])
def test_no_event_waits_longer_than_a_short_nap_when_every_ring_is_heard(
    made: list[Publish], nap: float, raised: list[float]
) -> None:
    """Also what asked before the flag was up, or did not ask at all, and commits when the worker has looked."""
    World(made, nap, raised).run()
    for each in made:
        assert each.found is not None
        assert each.found - each.ends <= SHORT_NAP + MOST


def asleep(doze: SleepControl, since: float = 0.0, *, settled: bool = True, nap: float = NAP) -> float:
    """Looks until it naps; the time."""
    now = since
    seen = BellPoll(7, settled, 0.0)
    while doze.state is not SleepState.NAPPING:
        if doze.observe(now, seen, listens=True, nap=nap) is FlagChange.RAISE:
            doze.note_raised(now, was_up=False)
            seen = seen._replace(flag_seconds=BRIEFLY)
        else:
            now += LOOK
    return now


def test_a_worker_raises_the_flag_when_the_log_stands_still_and_naps_only_after_staying_awake() -> None:
    doze = SleepControl()
    assert doze.observe(0.0, BellPoll(7, True, 0.0), listens=True) is FlagChange.NOTHING
    assert doze.observe(STILL_TIME - MOST, BellPoll(7, True, 0.0), listens=True) is FlagChange.NOTHING
    assert doze.compute_pause(STILL_TIME) is None
    assert doze.observe(STILL_TIME, BellPoll(7, True, 0.0), listens=True) is FlagChange.RAISE
    doze.note_raised(STILL_TIME, was_up=False)
    assert doze.observe(STILL_TIME + RAISED_POLL, BellPoll(7, True, BRIEFLY), listens=True) is FlagChange.NOTHING
    assert doze.state is SleepState.RAISED
    assert doze.compute_pause(STILL_TIME + RAISED_POLL) == pytest.approx(RAISED_POLL)
    assert doze.compute_pause(STILL_TIME + HEARD_TIME - RAISED_POLL / 2) == pytest.approx(RAISED_POLL / 2)
    doze.observe(STILL_TIME + HEARD_TIME, BellPoll(7, True, BRIEFLY), listens=True)
    assert doze.state is SleepState.NAPPING
    assert doze.compute_pause(STILL_TIME + HEARD_TIME) == NAP


def test_the_time_awake_is_not_shortened_when_another_worker_already_sleeps() -> None:
    """Since when its flag is up is not known."""
    doze = SleepControl()
    doze.observe(0.0, BellPoll(7, True, BRIEFLY), listens=True)
    doze.observe(STILL_TIME, BellPoll(7, True, BRIEFLY), listens=True)
    doze.note_raised(STILL_TIME, was_up=True)
    assert doze.state is SleepState.RAISED


def test_a_worker_does_not_raise_a_flag_that_is_up_long_enough_but_stays_awake_as_if_it_had() -> None:
    for nap in (NAP, LONGEST_TICK):
        doze, found = SleepControl(), BellPoll(7, True, nap + MAX_ANSWER_LAG + MOST)
        doze.observe(1.0, found, listens=True, nap=nap)
        since = 1.0 + STILL_TIME + MOST
        assert doze.observe(since, found, listens=True, nap=nap) is FlagChange.NOTHING
        assert doze.state is SleepState.RAISED
        assert doze.observe(since + HEARD_TIME, found, listens=True, nap=nap) is FlagChange.NOTHING
        assert doze.compute_pause(since + HEARD_TIME) == nap
        ends_before = BellPoll(7, True, nap + MAX_ANSWER_LAG - MOST)
        assert doze.observe(since + HEARD_TIME + nap, ends_before, listens=True, nap=nap) is FlagChange.RAISE


@given(st.floats(NAP, LONGEST_TICK))
def test_the_flag_is_up_for_longer_than_any_nap_and_never_further_ahead_than_a_publisher_believes(nap: float) -> None:
    assert HEARD_TIME + nap + MAX_ANSWER_LAG < FLAG_TIME < MAX_FLAG_AHEAD_MS / 1_000
    assert [flag_seconds_left(each) for each in (None, -5, 0, 1, MAX_FLAG_AHEAD_MS, MAX_FLAG_AHEAD_MS + 1)] == [
        0,
        0,
        0,
        0.001,
        3.0,
        0,
    ]


def test_at_most_one_in_three_polls_of_many_napping_workers_raises_the_flag() -> None:
    """They look one after the other, ten times a second all together."""
    flag, raised, sleepers = 0.0, 0, [SleepControl() for _ in range(20)]
    for doze in sleepers:
        asleep(doze, nap=LONGEST_TICK)
    for look in range(1, 201):
        now, doze = 10.0 + look / 10, sleepers[look % 20]
        if (
            doze.observe(
                now, BellPoll(7, True, flag_seconds_left(round((flag - now) * 1_000))), listens=True, nap=LONGEST_TICK
            )
            is FlagChange.RAISE
        ):
            raised, flag = raised + 1, now + FLAG_TIME
            doze.note_raised(now, was_up=True)
    assert raised <= 200 / 3


def test_while_an_id_is_drawn_and_not_committed_the_nap_is_short() -> None:
    doze = SleepControl()
    now = asleep(doze, settled=False)
    assert doze.compute_pause(now) == SHORT_NAP
    doze.observe(now + SHORT_NAP, BellPoll(7, True, BRIEFLY), listens=True)
    assert doze.compute_pause(now + SHORT_NAP) == NAP


def test_the_flag_is_raised_again_before_it_is_down_and_the_worker_sleeps_on() -> None:
    doze = SleepControl()
    now = asleep(doze)
    raised: list[float] = []
    for _ in range(20):
        now += doze.compute_pause(now) or 0
        if doze.observe(now, BellPoll(7, True, BRIEFLY), listens=True) is FlagChange.RAISE:
            raised.append(now)
            doze.note_raised(now, was_up=True)
        assert doze.state is SleepState.NAPPING
        assert doze.compute_pause(now) == NAP
    assert [later - earlier for earlier, later in pairwise(raised)] == [pytest.approx(9 * NAP)]
    assert 9 * NAP < FLAG_TIME


def test_while_the_flag_is_up_a_worker_that_was_woken_sleeps_on_at_once() -> None:
    doze = SleepControl()
    now = asleep(doze)
    for number in range(4):
        now += 2 * MIN_ID_GAP
        assert doze.observe(now, BellPoll(8 + number, True, BRIEFLY), listens=True) is FlagChange.NOTHING
        assert doze.state is SleepState.NAPPING


def test_a_flag_that_was_down_in_between_is_raised_as_the_first() -> None:
    for was_up, later in ((False, FLAG_TIME - NAP), (True, FLAG_TIME + NAP)):
        doze = SleepControl()
        now = asleep(doze) + later
        assert doze.observe(now, BellPoll(7, True, BRIEFLY), listens=True) is FlagChange.RAISE
        doze.note_raised(now, was_up=was_up)
        assert doze.state is SleepState.RAISED
    doze = SleepControl()
    now = asleep(doze)
    assert doze.observe(now + LOOK, BellPoll(7, True, 0.0), listens=True) is FlagChange.RAISE, (
        "lowered, and the call was lost"
    )


def test_a_sleeping_worker_stays_awake_after_it_lowered_the_flag() -> None:
    doze = SleepControl()
    now = asleep(doze)
    doze.note_lowered()
    assert doze.compute_pause(now) is None
    assert doze.observe(now, BellPoll(7, True, 0.0), listens=True) is FlagChange.RAISE


def test_a_wakeup_does_not_lower_the_flag_but_a_log_that_moves_on_does() -> None:
    doze = SleepControl()
    now = asleep(doze)
    acts = [doze.observe(now + n * LOOK, BellPoll(7 + n, True, BRIEFLY), listens=True) for n in range(1, 8)]
    assert acts[:4] == [FlagChange.NOTHING] * 4
    assert acts[-1] is FlagChange.LOWER
    doze.note_lowered()
    assert doze.observe(now + 8 * LOOK, BellPoll(15, True, 0.0), listens=True) is FlagChange.NOTHING, "it is down"


def test_single_events_do_not_lower_the_flag() -> None:
    """It may look often in between, or only when it is rung for."""
    for looks in (1, 5):
        doze = SleepControl()
        now = asleep(doze)
        for step in range(1, 20 * looks):
            assert (
                doze.observe(now + step * MIN_ID_GAP / looks, BellPoll(7 + step // looks, True, BRIEFLY), listens=True)
                is not FlagChange.LOWER
            )


def test_a_worker_that_polls_rarely_distinguishes_single_events_from_a_log_that_moves_on() -> None:
    """Between two looks 10 ms apart: few events are rung for, many are not."""
    for ids, lowers in ((1, False), (4, False), (10, True)):
        doze = SleepControl()
        acts = {
            doze.observe(n * (2 * STILL_TIME + MOST), BellPoll(n * ids, True, BRIEFLY), listens=True)
            for n in range(1, 9)
        }
        assert (FlagChange.LOWER in acts) is lowers


def test_a_worker_that_has_more_to_read_or_cannot_hear_rings_does_not_sleep() -> None:
    doze = SleepControl()
    now = asleep(doze)
    assert doze.observe(now, None, listens=True) is FlagChange.NOTHING
    assert doze.compute_pause(now) is None
    for later in range(20):
        assert doze.observe(now + later * LOOK, BellPoll(7, True, 0.0), listens=False) is FlagChange.NOTHING
    acts = {doze.observe(now + 1 + n * LOOK, BellPoll(8 + n, True, BRIEFLY), listens=False) for n in range(9)}
    assert FlagChange.LOWER in acts, "for those who publish"


def test_a_publisher_that_heard_that_nobody_sleeps_does_not_ask_again_for_a_moment() -> None:
    asking = FlagMemory()
    assert asking.should_ask(0.0)
    asking.note_answer(1.0, False)
    assert not asking.should_ask(1.0 + NO_ASK_TIME - MOST)
    assert asking.should_ask(1.0 + NO_ASK_TIME)
    asking.note_answer(2.0, True)
    assert asking.should_ask(2.0), "that it rang may be rolled back"
    assert NO_ASK_TIME < HEARD_TIME


def test_a_channel_fits_whatever_the_schema_is_called() -> None:
    assert build_channel_name("partbox") == "partbox:partbox"
    long = [build_channel_name(letter * 63) for letter in "ab"]
    assert len({*long}) == 2
    assert all(len(each.encode()) <= 63 for each in (*long, build_channel_name("ü" * 31)))


def test_the_bell_is_off_where_a_ring_cannot_come_or_would_break_something() -> None:
    assert find_reason_off("auto", pooled=False) is None
    assert find_reason_off("on", pooled=False, prepared=5) is None
    assert "max_prepared_transactions = 5" in (find_reason_off("auto", pooled=False, prepared=5) or "")
    assert "listen_dsn" in (find_reason_off("on", pooled=True) or "")
    assert "may not set" in (find_reason_off("on", pooled=False, sequence=False) or "")
    assert "setting" in (find_reason_off("off", pooled=False) or "")
