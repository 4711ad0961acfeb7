"""Holds in a lane what must wait behind a parked event of its key."""

from partbox.events import DeliveredEvent
from partbox.worker.state.partition import Lane


def hold_rest(lane: Lane) -> None:
    """Park what waits in the lane behind a blocked event. Lock held.

    Its runner may be taking events from the left meanwhile, without the lock. So they are taken from the right: what is
    held are always the last ones, and what runs are those before them.
    """
    held: list[DeliveredEvent] = []
    while lane.queue:
        try:
            held.append(lane.queue.pop())
        except IndexError:  # the runner has taken the last one
            break
    for event in reversed(held):
        lane.partition.parked.hold(event)


def overtakes(lane: Lane, event: DeliveredEvent) -> bool:
    """True if the event, at the head of its lane, would run before one of its key that must run first. Lock held."""
    chain = lane.partition.parked.chains.get(lane.key)
    if chain is None:
        return False
    id = event.id
    return any(not row.loaded for row in chain.before(id)) or any(each.id < id for each in lane.queue)
