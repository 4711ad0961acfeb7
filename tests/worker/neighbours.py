"""Two aggregates of one partition, and a worker's memory of it: for interleavings that need both."""

from contextlib import contextmanager

from partbox.protocol.hashing import partition_of

BEGUN = 30  # seconds for a worker to connect and come to the first event, before what a test is about
SOON = 60  # seconds for what is right, however loaded the machine
P = partition_of("k")
NEIGHBOUR = next(name for name in map(str, range(10_000)) if partition_of(name) == P)
KEY = ("Key", "k")


def terminate(desk, *roles):
    desk.conn.execute(
        """select pg_terminate_backend(pid) from pg_stat_activity
            where datname = current_database() and application_name = any (%s)""",
        [[f"partbox {role}" for role in roles or ("poller", "saver", "effects")]],
    )


def partition(worker):
    return worker._worker.engine.partitions[P]


def queued(worker, key=KEY):
    with worker._worker.engine.lock:
        lane = partition(worker).lanes.get(key)
        return len(lane.queue) if lane is not None else 0


@contextmanager
def released_at_the_end(*events):
    try:
        yield
    finally:
        for event in events:
            event.set()
