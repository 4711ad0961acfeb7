"""The memory that a partition took at its largest is given back once all of it is saved."""

from sys import getsizeof

import pytest
from hand_moved import HandMoved

from partbox import RetryAfter
from partbox.handlers import Handlers

MANY = 100


@pytest.fixture
def rig() -> HandMoved:
    """Each event is for later at first, and done then."""
    handlers, seen = Handlers(), set()

    def put_off(event):
        if event.id not in seen:
            seen.add(event.id)
            return RetryAfter(0.001)
        return None

    handlers.register(put_off, "*")
    return HandMoved(handlers)


def tables(rig: HandMoved) -> dict[str, int]:
    """The bytes of the dicts that a partition keeps as long as it is owned."""
    partition, parked = rig.partition, rig.partition.parked
    kept = {
        "lanes": partition._lanes,
        "sizes": partition.payload_bytes.sizes,
        "finished": partition.progress._finished,
        "chains": parked.chains,
        "deleting": parked.deleting,
    }
    return {name: getsizeof(table) for name, table in kept.items()}


def test_what_was_parked_of_many_keys_leaves_no_large_dict_behind(rig):
    at_first, ids = tables(rig), range(1, MANY + 1)
    rig.read(*ids, keys=[f"k{id}" for id in ids])
    for id in ids:
        rig.partition.payload_bytes.add(id, 1)
    while rig.turn():
        pass
    largest = tables(rig)
    rig.save()
    rig.bring(rig.awake())
    rig.bring(rig.awake())
    while rig.turn():
        largest = {name: max(bytes, largest[name]) for name, bytes in tables(rig).items()}
    assert min(largest.values()) > 1_000, largest
    rig.save()
    rig.read(MANY + 1)  # something more, so there is another save
    rig.go_on()
    assert tables(rig) == at_first
