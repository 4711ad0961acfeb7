"""Replay, discard, retry now and skip, as a running worker takes them."""

import pytest
from variants import named

from partbox import Dead

LATER = "fixed:3600"


class Ill:
    """Does this with the chosen numbers as long as it is told to; notes what it sees."""

    def __init__(self, desk, act, *numbers):
        self.desk, self.act, self.numbers, self.on = desk, act, set(numbers), True

    def __call__(self, event):
        self.desk.note(event)
        return self.act() if self.on and event.payload["number"] in self.numbers else None


def fail():
    raise ValueError("broken")


def die():
    return Dead("no use")


@pytest.fixture
def blocked(desk):
    """Number 2 of `k` fails and is not due for an hour; 3 and 4 wait for it. Gives its handler; a worker runs."""
    handler = Ill(desk, fail, 2)
    desk.outbox.register(handler, "Counted", retry=LATER)
    desk.publish("k", 1, 2, 3, 4)
    with desk.outbox.worker():
        desk.eventually(lambda: desk.states() == {2: "retrying", 3: "held", 4: "held"})
        yield handler


def test_retry_now_runs_a_failed_head_at_once_and_its_followers_after_it(desk, blocked):
    (key,) = desk.outbox.blocked.list()
    assert (key.aggregate_id, key.state, key.followers, key.error) == ("k", "retrying", 2, "broken")
    assert key.pid is not None
    assert desk.outbox.blocked.retry_now("Key", "k").changed
    desk.eventually(lambda: desk.numbers() == [1, 2, 2])
    desk.eventually(lambda: [key.attempts for key in desk.outbox.blocked.list()] == [2])
    blocked.on = False
    desk.outbox.blocked.retry_now("Key", "k")
    desk.eventually(desk.all_done)
    assert desk.numbers() == [1, 2, 2, 2, 3, 4]
    assert desk.outbox.blocked.list() == []


def test_skip_lets_the_followers_go_on_and_a_replay_brings_the_head_back(desk, blocked):
    head = desk.outbox.blocked.skip("Key", "k", "later")
    desk.eventually(lambda: desk.numbers() == [1, 2, 3, 4])
    desk.eventually(lambda: desk.states() == {2: "dead"})
    (dead,) = desk.outbox.dead.list()
    assert (dead.record_id, dead.error_type, dead.error) == (head.record_id, "skipped", "later; ValueError: broken")
    blocked.on = False
    assert desk.outbox.dead.replay(dead.event_id) == 1
    desk.eventually(desk.all_done)
    assert desk.seen[-1] == ("k", 2, 1)


WAYS = {"retry": 0, "replay": 10, "discard": 20, "skip": 30}
"""The key of each way, and by how much the numbers of its events are more than 1, 2, 3 and 4."""
LEFT = {"skip": "dead", "discard": "discarded"}  # the state of what is not delivered again


def test_a_dead_event_that_blocks_its_key_goes_on_in_four_ways(desk):
    handler = Ill(desk, die, *(more + 2 for more in WAYS.values()))
    desk.outbox.register(handler, "Counted", on_dead="block")
    for way, more in WAYS.items():
        desk.publish(way, *(more + number for number in (1, 2, 3, 4)))
    states = {
        more + number: state for more in WAYS.values() for number, state in ((2, "dead"), (3, "held"), (4, "held"))
    }
    with desk.outbox.worker():
        desk.eventually(lambda: desk.states() == states)
        handler.on = False
        dead = {each.aggregate_id: each for each in desk.outbox.dead.list()}
        assert {way: each.blocks for way, each in dead.items()} == dict.fromkeys(WAYS, True)
        acts = {
            "retry": lambda: desk.outbox.blocked.retry_now("Key", "retry"),
            "replay": lambda: desk.outbox.dead.replay(dead["replay"].record_id),
            "discard": lambda: desk.outbox.dead.discard(dead["discard"].record_id),
            "skip": lambda: desk.outbox.blocked.skip("Key", "skip"),
        }
        for way, more in WAYS.items():
            with named(way):
                acts[way]()
                for number in (2, 3, 4):
                    del states[more + number]
                if way in LEFT:
                    states[more + 2] = LEFT[way]
                desk.eventually(lambda: desk.states() == states)
                desk.publish(way, more + 5)
                desk.eventually(lambda way=way, more=more: desk.numbers(way)[-1] == more + 5)
    for way, more in WAYS.items():
        again = [2] if way in ("retry", "replay") else []
        assert [number - more for number in desk.numbers(way)] == [1, 2, *again, 3, 4, 5], way


def test_events_without_an_aggregate_are_replayed_too(desk):
    handler = Ill(desk, die, 1, 2)
    desk.outbox.register(handler, "Counted")
    desk.publish(None, 1, 2, 3)
    desk.drain()
    assert desk.states() == {1: "dead", 2: "dead"}
    handler.on = False
    assert desk.outbox.dead.replay_all(event_type="Counted") == 2
    desk.drain()
    assert sorted(desk.numbers(None)) == [1, 1, 2, 2, 3]
    assert desk.all_done()


def test_a_replayed_event_has_all_its_attempts_again(desk):
    desk.outbox.register(Ill(desk, fail, 1), "Counted", max_attempts=2, retry="fixed:0")
    desk.publish("k", 1)
    with desk.outbox.worker():
        desk.eventually(lambda: desk.outbox.dead.count() == 1)
        desk.outbox.dead.replay_all()
        desk.eventually(lambda: len(desk.seen) == 4)
        desk.eventually(lambda: desk.outbox.dead.count() == 1)
    assert [attempt for *_, attempt in desk.seen] == [1, 2, 1, 2]
    assert desk.outbox.dead.list()[0].attempts == 2


def test_a_replay_while_no_worker_runs_is_taken_up_by_the_next_worker(desk):
    """Commands work while nobody runs; whoever comes next takes up what they left."""
    handler = Ill(desk, die, 1)
    desk.outbox.register(handler, "Counted")
    desk.publish("k", 1, 2)
    desk.drain()
    assert desk.states() == {1: "dead"}
    assert desk.outbox.dead.replay_all() == 1
    handler.on = False
    desk.publish("k", 3)
    desk.drain()
    assert desk.numbers() == [1, 2, 1, 3]
    assert desk.all_done()
