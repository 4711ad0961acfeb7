"""Brings a world to rest: one process gets all events that are left, and its handlers end well."""

from model_handlers import Handling
from process import Process
from world import World

from partbox.worker.engine.partition import Partition

QUIET = 300  # rounds after which something is stuck
PAUSES = (2.1, 0.01, 0.06)  # of a round: looks with a tick, after which idle cursors are saved, and without


def settle_down(world: World, process: Process) -> None:
    """Deliver all that is left to this process. Fails if the world is not at rest after `QUIET` rounds."""
    for _ in range(QUIET):
        _beat(world)
        _replay_blockers(world)
        for pause in PAUSES:
            world.clock.now += pause
            process_once(world, process)
            if not left(world, process):
                return
    raise AssertionError(f"does not come to rest: {left(world, process)}")


def process_once(world: World, process: Process) -> None:
    """Each of its actors has a turn, and each handler that runs ends well."""
    for actor in process.actors:
        if not isinstance(process.subject(actor), Handling):
            world.go_on(process, actor)
    while handling := process.handling():
        where, what = handling[0]
        process.finish(where, [None for _ in what.events])
        if isinstance(where, str) and not isinstance(process.subject(where), Handling):
            world.go_on(process, where)


def left(world: World, process: Process) -> list[str]:
    """A line for each reason why the world is not at rest yet; empty when it is.

    Reasons: an event that is neither over nor dead; a partition that this process does not own, or that is behind the
    log though no transaction is open; memory that is not given back; a dead event that the hook has not had.
    """
    found, log = list[str](), world.database.log
    over = {row.record_id for row in world.database.parked.values() if row.state == "dead"}
    over |= {record.id for record in log.committed if record.number in world.ran or world.may_be_passed(record)}
    found += [f"{record} is lost" for record in log.committed if record.id not in over]
    for row in world.database.partitions.values():
        if row.owner != process.me:
            found.append(f"partition {row.partition} is not owned")
        elif row.last_id != log.drawn and not log.open:
            found.append(f"partition {row.partition} holds the log back at {row.last_id} of {log.drawn}")
        elif _counts(world, process.engine.partitions[row.partition]):
            found.append(f"of partition {row.partition} more is counted than is parked")
        elif _remembers_too_much(world, process.engine.partitions[row.partition]):
            found.append(f"of partition {row.partition} more is remembered than may come again")
    found += [f"{key} is spilled from {from_id} on" for key, from_id in world.database.spills.items()]
    for row in world.database.parked.values():
        known = world.of(row.record_id)
        untold = row.due_at is not None or (known is not None and known.number not in world.told)
        if row.state != "dead":
            found.append(f"{row.record_id} is {row.state}")
        elif process.shape.letters and untold:
            found.append(f"the hook has not had {row.record_id}, which is dead")
    return found


def _beat(world: World) -> None:
    """A heartbeat: transactions end now and then, so a range that one still open has cut is not cut for ever."""
    heart = world.database.log.begin()
    world.database.log.draw_xid(heart)
    world.database.log.end(heart, commit=True)


def _replay_blockers(world: World) -> None:
    """An operator looks after the dead events for which others wait, once the hook has had them."""
    rows = world.database.parked.values()
    blockers = [row.record_id for row in rows if row.state == "dead" and row.blocks and row.due_at is None]
    if blockers:
        world.database.replay(blockers)


def _counts(world: World, partition: Partition) -> int:
    """Return how many rows count against a bound more than there are."""
    rows = sum(row.state != "dead" for row in world.database.of([partition.number]))
    return partition.parked.open_count + partition.parked.waiting_count - rows


def _remembers_too_much(world: World, partition: Partition) -> bool:
    """True if a partition at rest still remembers events from before a lost connection.

    Not after a crash of the server, nor while a transaction is open: their records may still come. Nor after a change
    of the filter: a record that it leaves out does not come, so its event is remembered until the next lost connection.
    """
    forgiven = world.has_crashed or world.database.log.open or len(world.filters) > 1
    return bool(partition.resumption.remembered) and not forgiven
