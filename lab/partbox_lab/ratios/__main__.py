"""Drain a loaded log with one worker process and a no-op handler, and print ratios.

The yardstick of the same run iterates the same lean columns through a psycopg server-side cursor. Times of the drain
are the database's, from the claim of the partitions to the last save. `--pairs` also drains with and without metrics,
in turn, and compares the CPU time of the worker process. `--relay` drains into brokers instead, and compares with
sending the same messages by the broker's own library."""

import argparse
import logging
import statistics
import time
from functools import partial
from typing import Any

import psycopg

from partbox import Outbox
from partbox.db.schema.migrate import migrate
from partbox.demo.workspace import drop_schema
from partbox_lab.bench import statements
from partbox_lab.bench.cpu import cpu_seconds
from partbox_lab.bench.rounds import in_turn
from partbox_lab.bench.workspace import SCHEMA, bench_workspace
from partbox_lab.ratios import running, wait_empty
from partbox_lab.sql import query
from partbox_lab.workspace import Workspace

Conn = psycopg.Connection[Any]

EVENTS = 200_000
BROKERS = ("kafka", "apache-kafka", "rabbitmq", "nats", "redis", "webhook", "sqs")
CONNECTIONS = 200


def noop(event: object) -> None:
    pass


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, help=f"{EVENTS:,}; fewer for brokers")
    parser.add_argument("--aggregates", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=3, help="pairs of yardstick and drain; medians are printed")
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=0, help="drains with and without metrics, in turn")
    parser.add_argument(
        "--relay", nargs="*", choices=BROKERS, metavar="BROKER", help=f"all, or of {', '.join(BROKERS)}"
    )
    parser.add_argument("--processes", type=int, help="of the relay; one for each processor otherwise")
    parser.add_argument("--dsn", help=f"another server than an embedded one; its schema {SCHEMA} is made, and dropped")
    given = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    with bench_workspace(given.dsn, CONNECTIONS) as place:
        if given.relay is not None:
            # The packages that the relay needs are not installed for the other ratios.
            from partbox_lab.ratios import relay

            relay.run(place.dsn, given)
        else:
            given.events = given.events or EVENTS
            rounds = [_round(place, given) for _ in range(given.rounds)]
            _print(rounds, _pairs(place, given) if given.pairs else [])


def _outbox(place: Workspace) -> Outbox:
    outbox = Outbox(place.dsn, schema=place.schema)
    outbox.register(noop, "*")
    return outbox


def _round(place: Workspace, given: argparse.Namespace) -> tuple[float, float, float]:
    """Measure the yardstick and the drain once. Return both rates per second, and the bytes of WAL per event."""
    with place.connect("rounds") as conn:
        _load(conn, place, given)
        yardstick = max(_iterate(place, given.events) for _ in range(2))
        drained, wal = _drain(conn, _outbox(place), given)
    print(
        f"  iterating {yardstick:>9,.0f}/s   drain {drained:>9,.0f}/s   ratio {drained / yardstick:.2f}"
        f"   WAL {wal:.1f} B/event",
        flush=True,
    )
    return yardstick, drained, wal


def _load(conn: Conn, place: Workspace, given: argparse.Namespace) -> None:
    drop_schema(conn, place.schema)
    migrate(place.dsn, place.schema)
    conn.execute(query("ratios_load", place.schema), {"events": given.events, "aggregates": given.aggregates})
    statements.vacuum(conn, place.schema)
    conn.execute("checkpoint")


def _iterate(place: Workspace, events: int) -> float:
    with psycopg.connect(place.dsn) as conn:
        statements.decode_little(conn)
        started = time.perf_counter()
        read = statements.iterate(conn, place.schema)
        assert read == events
        return read / (time.perf_counter() - started)


def _drain(conn: Conn, outbox: Outbox, given: argparse.Namespace) -> tuple[float, float]:
    _, before = _saved(conn)
    with running(outbox.supervisor(processes=1, concurrency=given.concurrency)) as node:
        wait_empty(node)
        taken, after = _saved(conn)
    return given.events / taken, (after - before) / given.events


def _saved(conn: Conn) -> tuple[float, float]:
    """Return the seconds from the claim to the last save, and the bytes of WAL at that time."""
    (found,) = conn.execute(query("ratios_drained", SCHEMA), {}).fetchall()
    return found


def _pairs(place: Workspace, given: argparse.Namespace) -> list[float]:
    """Return the ratios of the CPU time with metrics to that without, measured in turn."""
    plain, counted = in_turn(
        given.pairs, partial(_cost, place, given, metrics=False), partial(_cost, place, given, metrics=True)
    )
    for without, with_them in zip(plain, counted, strict=True):
        print(
            f"  CPU without metrics {without:6.2f} µs/event   with {with_them:6.2f}   ratio {with_them / without:.3f}"
        )
    return [with_them / without for without, with_them in zip(plain, counted, strict=True)]


def _cost(place: Workspace, given: argparse.Namespace, *, metrics: bool) -> float:
    """Return the microseconds of CPU of the worker process per event, without its start."""
    outbox = _outbox(place)
    with place.connect("pairs") as conn:
        _load(conn, place, given)
    outbox.subscriptions.pause("default")
    with running(outbox.supervisor(processes=1, concurrency=given.concurrency, metrics=metrics)) as node:
        while not (node.children and node.children[0].instance):
            time.sleep(0.05)
        worker = node.children[0].pid
        before = cpu_seconds(worker)
        outbox.subscriptions.resume("default")
        wait_empty(node)
        spent = cpu_seconds(worker) - before
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
