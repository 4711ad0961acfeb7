"""The dead-letter hook: called for each dead event once it is dead, and again until it succeeds."""

import asyncio
import threading

import pytest
from neighbours import BEGUN, SOON, released_at_the_end
from waiting import eventually

from partbox import Dead
from partbox.db.delivery import cursors
from partbox.worker.engine.parked_rows import ParkedRows


def owed(desk):
    """The number of dead rows that are owed to the hook."""
    found = desk.conn.execute("select count(*) from partbox.parked where state = 'dead' and due_at is not null")
    return found.fetchone()[0]


@pytest.mark.parametrize(
    ("kind", "takes_error"),
    [
        ("sync", False),
        ("async", True),
        pytest.param("sync", True, marks=pytest.mark.soak),
        pytest.param("async", False, marks=pytest.mark.soak),
    ],
)
def test_the_hook_gets_every_dead_event_once_it_is_dead(desk, kind, takes_error):
    letters = []

    def note(event, *error):
        letters.append((event.payload["number"], event.attempt, *error))

    hooks = {
        ("sync", False): lambda event: note(event),
        ("sync", True): lambda event, error: note(event, error),
        ("async", False): _later(lambda event: note(event), 1),
        ("async", True): _later(note, 2),
    }
    desk.outbox.on_dead_letter(hooks[kind, takes_error])
    desk.outbox.register(lambda event: Dead("no use") if event.payload["number"] == 2 else None, "Counted")
    desk.publish("k", 1, 2, 3)
    desk.drain()
    assert letters == [(2, 1, *(["no use"] if takes_error else []))]
    assert owed(desk) == 0
    assert desk.parked() == [(2, "dead", 1, False)]
    desk.publish("k", 4)
    desk.drain()  # nothing is owed: it is not called again
    assert desk.done() == 3
    assert len(letters) == 1


def _later(hook, arguments):
    async def one(event):
        await asyncio.sleep(0)
        hook(event)

    async def two(event, error):
        await asyncio.sleep(0)
        hook(event, error)

    return one if arguments == 1 else two


@pytest.mark.parametrize("on_dead", ["continue", "block"])
def test_a_hook_that_fails_is_called_again(desk, on_dead, caplog):
    calls = []

    def hook(event, error):
        calls.append(error)
        if len(calls) < 3:
            raise ConnectionError("no post today")

    desk.outbox.on_dead_letter(hook)
    desk.outbox.register(lambda event: Dead("no use"), "Counted", on_dead=on_dead)
    desk.publish("k", 1)
    for number in (1, 2, 3):
        desk.drain_again()
        assert len(calls) == number
    assert owed(desk) == 0
    assert calls == ["no use"] * 3
    assert desk.parked() == [(1, "dead", 1, on_dead == "block")]
    assert "no post today" in caplog.text


def test_a_dead_letter_that_a_process_left_behind_is_delivered_by_the_next_process(desk):
    """Nobody had a hook when it died; from then on there is one, and only what dies with a hook is owed to it."""
    letters = []
    desk.outbox.register(lambda event: Dead("no use"), "Counted")
    desk.outbox.on_dead_letter(lambda event: letters.append(event.payload["number"]) or 1 / 0)
    desk.publish("k", 1)
    desk.drain()
    assert letters == [1]
    desk.outbox.handlers.dead_letter_hook = lambda event: letters.append(-event.payload["number"])
    desk.drain_again()
    assert letters == [1, -1]
    assert owed(desk) == 0


def test_a_replayed_event_owes_no_dead_letter_until_it_dies_again(desk):
    letters = []
    cured = []
    desk.outbox.on_dead_letter(lambda event, error: letters.append((event.payload["number"], error)))
    desk.outbox.register(lambda event: None if cured else Dead(f"no use {len(letters)}"), "Counted")
    desk.publish("k", 1, 2)
    with desk.outbox.worker():
        desk.eventually(lambda: len(letters) == 2 and owed(desk) == 0)
        assert desk.outbox.dead.replay_all() == 2
        desk.eventually(lambda: len(letters) == 4 and owed(desk) == 0)
        cured.append(True)
        desk.outbox.dead.replay_all()
        desk.eventually(desk.all_done)
    assert [number for number, _ in letters] == [1, 2, 1, 2]
    assert desk.parked() == []


def test_a_replay_before_the_hook_has_succeeded_takes_the_dead_letter_back(desk):
    calls = []

    def hook(event):
        calls.append(event.payload["number"])
        raise ConnectionError("no post today")

    cured = []
    desk.outbox.on_dead_letter(hook)
    desk.outbox.register(lambda event: None if cured else Dead("no use"), "Counted")
    desk.publish("k", 1)
    with desk.outbox.worker():
        desk.eventually(lambda: calls and owed(desk) == 1)
        cured.append(True)
        desk.outbox.dead.replay_all()
        desk.eventually(desk.all_done)
        before = len(calls)
        desk.make_due()
        desk.publish("k", 2)
        desk.eventually(desk.all_done)
    assert len(calls) == before
    assert desk.parked() == []


# Parks are kept by record id: the end of a dead-letter hook must not take the place of the park of its event, which was
# replayed meanwhile and has failed again, or that row stays uncommitted for ever, and its key waits for it.
def test_a_hook_that_ends_after_its_event_was_replayed_does_not_stop_its_key(desk_with, monkeypatch):
    desk, save, dead_letter = desk_with(retry="fixed:0"), cursors.save, ParkedRows.note_hook_result
    inside, go_on, noted, answers = threading.Event(), threading.Event(), threading.Event(), [Dead("no")]

    def saving(conn, schema, subscription, me, savings, parks=(), *rest, **more):
        if any(each.state == "retrying" for each in parks) and not noted.is_set():
            go_on.set()
            assert noted.wait(120)
        return save(conn, schema, subscription, me, savings, parks, *rest, **more)

    def noting(self, event, delay):
        dead_letter(self, event, delay)
        noted.set()

    @desk.outbox.on_dead_letter
    def hook(event):
        inside.set()
        go_on.wait(120)

    def handle(event):
        desk.note(event)
        if event.payload["number"] == 1 and len(desk.seen) == 1:
            return answers[0]
        if event.payload["number"] == 1 and len(desk.seen) == 2:
            raise ValueError("again")
        return None

    monkeypatch.setattr(cursors, "save", saving)
    monkeypatch.setattr(ParkedRows, "note_hook_result", noting)
    desk.outbox.register(handle, "Counted")
    desk.publish("k", 1)
    with desk.outbox.worker(concurrency=2), released_at_the_end(go_on, noted):
        assert inside.wait(BEGUN)
        desk.outbox.dead.replay_all()
        eventually(lambda: len(desk.seen) == 3, SOON)
        desk.publish("k", 2)
        eventually(desk.all_done, SOON)


# A worker that ended of it would do so over and over.
def test_a_dead_letter_hook_that_raises_a_system_exit_ends_no_worker(desk):
    called = threading.Event()

    @desk.outbox.on_dead_letter
    def hook(event):
        called.set()
        raise SystemExit(1)

    desk.outbox.register(
        lambda event: desk.note(event) or (Dead("no") if event.aggregate_id == "k" else None), "Counted"
    )
    desk.publish("k", 1)
    with desk.outbox.worker(concurrency=1) as worker:
        assert called.wait(BEGUN)
        desk.publish("other", 2)
        eventually(lambda: desk.numbers("other") == [2], SOON)
        assert worker._worker.failure is None
