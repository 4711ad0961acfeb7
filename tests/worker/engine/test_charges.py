"""The turns of suspects: never too many, an accused one alone, none forgotten."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from partbox.protocol.parking import ParkedRow, RowState, Suspicion
from partbox.worker.engine.engine import Engine
from partbox.worker.engine.poison import MAX_UNSAVED, Charges

LIMIT = 3
KEY = ("Key", "k")


class Home:
    """The part of a partition that a turn reads."""

    def __init__(self, number):
        self.number, self.incarnation = number, 1
        self.is_lost = self.is_stopping = False
        self.parked = SimpleNamespace(unsaved_deletions={}, chains={KEY: None})


def partition(number=1):
    return Home(number)


def row(id=1, *, accused=False):
    suspicion = Suspicion.ACCUSED if accused else Suspicion.SUSPECT
    return ParkedRow(id, RowState.READY, 0, True, suspicion=suspicion)


def end(home, row):
    """Its handler is done, which is not saved yet."""
    row.end_trial()
    home.parked.unsaved_deletions[row.id] = b""


def admitted(charges, *rows, of=None):
    return [charges.admit_suspect(of or partition(), KEY, each) for each in rows]


def test_no_more_suspects_run_at_once_than_the_limit():
    assert admitted(Charges(LIMIT), *map(row, range(5))) == [True, True, True, False, False]


def test_an_accused_suspect_waits_for_all_others_and_all_others_wait_for_it():
    charges, other, accused = Charges(LIMIT), row(1), row(2, accused=True)
    assert admitted(charges, other, accused, row(3)) == [True, False, False]
    assert list(charges.take_next_trials()) == []
    other.end_trial()
    assert len(list(charges.take_next_trials())) == 1
    assert admitted(charges, accused, row(3)) == [True, False]


def test_a_suspect_that_hangs_keeps_the_others_waiting_for_a_bounded_time():
    """The time doubles with each death. So an event that kills its process late is alone for long enough in the end."""
    for deaths, seconds in ((1, 1.0), (2, 2.0), (5, 16.0), (40, 64.0)):
        charges, hanging, home = Charges(LIMIT), row(1, accused=True), partition()
        hanging.attempts = deaths
        charges.advance_clock(100.0)
        assert admitted(charges, hanging, row(2, accused=True), row(3), of=home) == [True, False, False]
        charges.advance_clock(99.9 + seconds)
        assert list(charges.take_next_trials()) == []
        charges.advance_clock(100.1 + seconds)
        assert list(charges.take_next_trials()) == [(home, KEY)]
        assert admitted(charges, row(2, accused=True), row(3), of=home) == [True, False]


def test_a_suspect_that_has_ended_keeps_an_accused_one_waiting_until_its_save():
    charges, first, home = Charges(LIMIT), row(1), partition()
    assert admitted(charges, first, of=home) == [True]
    end(home, first)
    charges.advance_clock(1_000.0)
    assert admitted(charges, row(2, accused=True), of=home) == [False]
    home.parked.unsaved_deletions.clear()
    assert admitted(charges, row(2, accused=True), of=home) == [True]


def test_a_turn_ends_when_the_outcome_is_saved():
    charges, first, accused, home = Charges(LIMIT), row(1), row(2, accused=True), partition()
    assert admitted(charges, first, of=home) == [True]
    end(home, first)
    assert admitted(charges, accused, of=home) == [False]
    del home.parked.unsaved_deletions[1]
    assert list(charges.take_next_trials()) == [(home, KEY)]
    assert admitted(charges, accused, of=home) == [True]
    accused.mark_loaded()
    accused.park(RowState.READY, 1, blocks=True)
    assert admitted(charges, row(3), of=home) == [False]
    accused.note_saved()
    assert admitted(charges, row(3), of=home) == [True]


def test_the_number_of_suspects_that_ended_but_are_not_saved_is_bounded():
    charges, home = Charges(LIMIT), partition()
    for id in range(100):
        each = row(id)
        if charges.admit_suspect(home, KEY, each):
            end(home, each)
    assert len(home.parked.unsaved_deletions) == LIMIT + MAX_UNSAVED


def test_the_turns_of_a_partition_that_is_lost_or_read_anew_are_over():
    charges, lost, anew = Charges(2), partition(), partition()
    assert admitted(charges, row(1), of=lost) == [True]
    assert admitted(charges, row(2), of=anew) == [True]
    lost.is_lost, anew.incarnation = True, 2
    assert admitted(charges, row(3, accused=True)) == [True]


def test_suspects_that_block_nothing_have_their_turn_too():
    charges, first, home = Charges(LIMIT), row(1), partition(7)
    assert charges.admit_suspect(home, None, first)
    assert not charges.admit_suspect(home, None, row(2, accused=True))
    assert not charges.admit_suspect(home, None, row(3))  # behind the accused one
    assert charges.take_keyless() == set()
    first.end_trial()
    assert charges.take_keyless() == {7}
    assert charges.admit_suspect(home, None, row(2, accused=True))


def test_a_waiting_suspect_is_woken_when_another_has_ended():
    engine, home, calls = Engine(1), partition(), list[bool]()
    engine.wakes.interrupt_poller = lambda: calls.append(True)
    home.parked.chains[KEY] = SimpleNamespace(wakes_at=lambda: 0.0)
    first = row(1)
    with engine.lock:
        assert admitted(engine.charges, first, row(2), of=home) == [True, False]
        engine.wake_next_trials()
    assert engine.find_next_wakeup() is None
    first.end_trial()
    with engine.lock:
        engine.wake_next_trials()
    assert engine.find_next_wakeup() == 0.0
    assert calls


@given(
    accused=st.lists(st.booleans(), min_size=1, max_size=25),
    keyless=st.lists(st.booleans(), min_size=25, max_size=25),
    limit=st.integers(1, 4),
    chance=st.randoms(use_true_random=False),
)
def test_every_suspect_has_its_turn_whichever_ends_first(accused, keyless, limit, chance):
    """Each row is asked for as the worker does: when it is woken, or when its partition is looked at."""
    charges, home = Charges(limit), partition()
    rows = [row(id, accused=flag) for id, flag in enumerate(accused)]
    keys = {each.id: None if keyless[each.id] else ("Key", str(each.id)) for each in rows}
    home.parked.chains = {key: None for key in keys.values() if key}
    by_key = {keys[each.id]: each for each in rows if keys[each.id]}
    running, unsaved, done = [], [], set()

    def ask(each):
        if each.id in done or each in running or each in unsaved:
            return
        if charges.admit_suspect(home, keys[each.id], each):
            running.append(each)
        noted = [*running, *unsaved]
        assert len(running) <= limit
        assert len(noted) == 1 or not any(one.is_accused for one in noted)

    def ask_keyless():
        for each in sorted((one for one in rows if keys[one.id] is None), key=lambda one: not one.is_accused):
            ask(each)

    for each in chance.sample(rows, len(rows)):
        ask(each)
    for _ in range(20 * len(rows)):
        if running and chance.random() < 0.5:
            each = running.pop(chance.randrange(len(running)))
            end(home, each)
            unsaved.append(each)
        elif unsaved:
            for each in unsaved:
                del home.parked.unsaved_deletions[each.id]
                done.add(each.id)
            unsaved.clear()
        for _, key in list(charges.take_next_trials()):
            ask(by_key[key])
        if charges.take_keyless():
            ask_keyless()
    assert done | {each.id for each in (*running, *unsaved)} == {each.id for each in rows}
