"""Drains a preloaded log by one worker process with a no-op handler, and prints ratios.

The yardstick is read in the same run: iterating the same lean columns through a psycopg server-side cursor. Times of
the drain are the database's: from the claim of the partitions to the last save. `--pairs` also drains with and without
metrics, in turn, and compares the CPU time of the worker process. `--relay` drains into brokers instead, beside sending
the same messages by the broker's own library.
"""

import argparse
import logging
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import psutil
import psycopg

from partbox import Outbox
from partbox.db.blocking import lean
from partbox.embedded.server import Server

EVENTS = 200_000
BROKERS = ("kafka", "apache-kafka", "rabbitmq", "nats", "redis", "webhook", "sqs")
COLUMNS = """partition, id, event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, payload_bytes,
             content_type, headers, available_at, occurred_at, created_at"""


def noop(event: object) -> None:
    pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, help=f"{EVENTS:,}; fewer for brokers")
    parser.add_argument("--aggregates", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=3, help="pairs of yardstick and drain; medians are printed")
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=0, help="drains with and without metrics, in turn")
    parser.add_argument(
        "--relay", nargs="*", choices=BROKERS, metavar="BROKER", help=f"all, or of {', '.join(BROKERS)}"
    )
    parser.add_argument("--processes", type=int, help="of the relay; one for each processor otherwise")
    parser.add_argument("--dsn", help="another server than an embedded one; its schema `bench` is dropped")
    given = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    with _server() if given.dsn is None else nullcontext(given.dsn) as dsn:
        if given.relay is not None:
            import bench_relay  # what it needs is not installed for the others

            bench_relay.run(dsn, given)
        else:
            given.events = given.events or EVENTS
            rounds = [_round(dsn, given) for _ in range(given.rounds)]
            _print(rounds, [_pair(dsn, given, number) for number in range(given.pairs)])


@contextmanager
def _server() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="partbox-bench-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        # Room for a run's log in memory, as a server has that somebody has set up for its machine.
        options = {"max_wal_size": "4GB", "shared_buffers": "1GB"}
        server = Server(Path(folder) / "data", options=options)
        try:
            yield server.start()
        finally:
            server.stop()


def _round(dsn: str, given: argparse.Namespace) -> tuple[float, float, float]:
    outbox = Outbox(dsn, schema="bench")
    outbox.register(noop, "*")
    with psycopg.connect(dsn, autocommit=True) as conn:
        _load(conn, dsn, given)
        yardstick = max(_iterate(dsn, given.events) for _ in range(2))
        drained, wal = _drain(conn, outbox, given)
    print(
        f"  iterating {yardstick:>9,.0f}/s   drain {drained:>9,.0f}/s   ratio {drained / yardstick:.2f}"
        f"   WAL {wal:.1f} B/event",
        flush=True,
    )
    return yardstick, drained, wal


def _load(conn: psycopg.Connection, dsn: str, given: argparse.Namespace) -> None:
    from partbox.db.schema.migrate import migrate

    conn.execute("drop schema if exists bench cascade")
    migrate(dsn, "bench")
    conn.execute(
        """insert into bench.record (partition, event_id, event_type, aggregate_type, aggregate_id, payload)
           select bench.partition_of(key), gen_random_uuid(), 'OrderPlaced', 'Order', key,
                  json_build_object('number', n, 'note', repeat('x', 150))
             from generate_series(1, %s::integer) as n, lateral (select 'order-' || n %% %s::integer as key) as k""",
        (given.events, given.aggregates),
    )
    conn.execute("vacuum (analyze) bench.record")
    conn.execute("checkpoint")


def _iterate(dsn: str, events: int) -> float:
    with psycopg.connect(dsn) as conn:
        lean(conn)
        cursor = conn.cursor("yardstick", binary=True)
        cursor.itersize = 10_000
        started = time.perf_counter()
        cursor.execute(f"select {COLUMNS} from bench.record")
        read = sum(1 for _ in cursor)
        assert read == events
        return read / (time.perf_counter() - started)


def _drain(conn: psycopg.Connection, outbox: Outbox, given: argparse.Namespace) -> tuple[float, float]:
    before = conn.execute("select pg_current_wal_insert_lsn()").fetchone()[0]
    node = outbox.supervisor(processes=1, concurrency=given.concurrency)
    node.start()
    while not node.empty():
        time.sleep(0.2)
    taken, wal = conn.execute(
        """select extract(epoch from max(saved_at) - min(claimed_at))::float8,
                  pg_wal_lsn_diff(pg_current_wal_insert_lsn(), %s)::float8 from bench.partition""",
        (before,),
    ).fetchone()
    node.stop()
    node.join()
    return given.events / taken, wal / given.events


def _pair(dsn: str, given: argparse.Namespace, number: int) -> float:
    """CPU time with metrics by that without them."""
    cost = {metrics: _cost(dsn, given, metrics=metrics) for metrics in ((False, True) if number % 2 else (True, False))}
    ratio = cost[True] / cost[False]
    print(f"  CPU without metrics {cost[False]:6.2f} µs/event   with {cost[True]:6.2f}   ratio {ratio:.3f}", flush=True)
    return ratio


def _cost(dsn: str, given: argparse.Namespace, *, metrics: bool) -> float:
    """Microseconds of CPU time that the worker process spends on an event, its start apart."""
    outbox = Outbox(dsn, schema="bench")
    outbox.register(noop, "*")
    with psycopg.connect(dsn, autocommit=True) as conn:
        _load(conn, dsn, given)
    outbox.subscriptions.pause("default")
    node = outbox.supervisor(processes=1, concurrency=given.concurrency, metrics=metrics)
    node.start()
    while not (node.children and node.children[0].instance):
        time.sleep(0.05)
    worker = psutil.Process(node.children[0].pid)
    before = sum(worker.cpu_times()[:2])
    outbox.subscriptions.resume("default")
    while not node.empty():
        time.sleep(0.05)
    spent = sum(worker.cpu_times()[:2]) - before
    node.stop()
    node.join()
    return spent / given.events * 1e6


def _print(rounds: list[tuple[float, float, float]], pairs: list[float]) -> None:
    if pairs:
        print(f"CPU with metrics / without:         {statistics.median(pairs):.3f} (budget: at most 1.05)")
    if not rounds:
        return
    ratio = statistics.median(drained / yardstick for yardstick, drained, _ in rounds)
    wal = statistics.median(wal for _, _, wal in rounds)
    print(f"drain / iterating the same columns: {ratio:.2f} (budget: at least 0.30)")
    print(f"WAL per drained event, bytes:       {wal:.1f} (budget: at most 5)")


if __name__ == "__main__":
    main()
