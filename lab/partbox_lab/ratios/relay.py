"""The relay compared with the broker's own library: the same messages, in turn, each side in processes of its own.

The relay is a node as `partbox relay` starts it, with one process per processor unless `--processes` is given. Its time
is the database's: from the commit of all events to the last save of a cursor, of a node that is already connected. The
library's time is that of sending alone, by one client."""

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import psycopg

from partbox import Outbox
from partbox.cli.commands.relay import build_relay
from partbox.db.schema.migrate import migrate
from partbox.demo.workspace import drop_schema
from partbox.settings.relay_target import RelayTarget
from partbox_lab.bench.cpu import total
from partbox_lab.bench.rounds import rotated
from partbox_lab.bench.workspace import SCHEMA
from partbox_lab.ratios import direct, running, wait_empty
from partbox_lab.sql import query

BUDGET = 0.7
RELAY, DIRECT, TOOL = "relay", "sending directly", "kafka-producer-perf-test"
WARM = 200
# Seconds, and CPU seconds of the sending processes. CPU time varies less on a machine that others use.
Taken = tuple[float, float]
# A run takes some seconds with these numbers. SQS gets few events because moto searches all messages that it has.
EVENTS = {
    "kafka": 600_000,
    "apache-kafka": 200_000,
    "rabbitmq": 20_000,
    "nats": 60_000,
    "redis": 60_000,
    "webhook": 3_000,
    "sqs": 500,
}


class RefusedError(Exception):
    """The last error of an event that the broker did not accept at once. It makes the time meaningless."""


class BrokerProcess:
    """A broker in a process of its own. Without a broker, `url` is None and `missing` is the reason."""

    def __init__(self, kind: str) -> None:
        program = [sys.executable, str(Path(__file__).with_name("broker.py")), kind]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(program, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        self.url = self._answer() or None
        self.missing = "" if self.url else self._process.communicate()[1].strip().splitlines()[-1]

    def prepare(self, *topics: str) -> None:
        """Create the topics."""
        assert self._process.stdin is not None
        print(*topics, file=self._process.stdin, flush=True)
        assert self._answer() == "prepared"

    def stop(self) -> None:
        self._process.communicate()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def run(dsn: str, given: argparse.Namespace) -> None:
    """Measure the given brokers, or all that can run, and print the ratios."""
    # moto accepts any credentials.
    os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    ratios = {}
    for kind in given.relay or EVENTS:
        with _running(kind) as broker:
            if broker.url is None:
                print(f"  {kind:12} skipped: {broker.missing}", flush=True)
                continue
            try:
                rounds = [_round(dsn, kind, broker, number, given) for number in range(given.rounds)]
            except RefusedError as error:
                print(f"  {kind:12} did not take everything: {error}", flush=True)
            else:
                for other in rounds[0].keys() - {RELAY}:
                    ratios[other, kind] = statistics.median(each[other] / each[RELAY] for each in rounds)
    for (other, kind), ratio in sorted(ratios.items()):
        met = "met" if ratio >= BUDGET else "MISSED"
        budget = f" (budget: at least {BUDGET:.2f}, {met})" if other == DIRECT else ""
        print(f"relay / {other}, {kind + ':':13} {ratio:.2f}{budget}")


@contextmanager
def _running(kind: str) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(kind)
    try:
        yield broker
    finally:
        broker.stop()


def _round(dsn: str, kind: str, broker: BrokerProcess, number: int, given: argparse.Namespace) -> dict[str, float]:
    """Return the seconds of each side, another one first in each round. The libraries send the events that are in the
    log, from this round's relay or the last round's."""
    events = given.events or EVENTS[kind]
    turns = {RELAY: _relayed, DIRECT: _direct} | ({TOOL: _by_tool} if kind == "apache-kafka" else {})
    taken = {}
    for turn in rotated([*turns], number):
        prefix = f"{kind}-{number}-{turn.split()[0]}"
        broker.prepare(f"{prefix}-order")
        taken[turn], used = turns[turn](dsn, kind, broker.url, f"{prefix}-{{aggregate_type}}", events, given)
        rate, cpu = events / taken[turn], used / events * 1e6
        print(f"  {kind:12} {turn:24} {rate:>9,.0f}/s   CPU {cpu:,.0f} µs/event", flush=True)
    return taken


def _direct(dsn: str, kind: str, url: str, template: str, events: int, given: argparse.Namespace) -> Taken:
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(direct.seconds, kind, url, template, dsn, WARM).result()


def _by_tool(dsn: str, kind: str, url: str, template: str, events: int, given: argparse.Namespace) -> Taken:
    # The module imports from the tests, which takes a second.
    from partbox_lab.ratios import kafka

    return kafka.seconds(url, template, dsn, WARM)


def _relayed(dsn: str, kind: str, url: str, template: str, events: int, given: argparse.Namespace) -> Taken:
    with psycopg.connect(dsn, autocommit=True) as conn:
        drop_schema(conn, SCHEMA)
        migrate(dsn, SCHEMA)
        target = RelayTarget(to=url, topic=template)
        outbox = Outbox(dsn, schema=SCHEMA)
        outbox.handlers, _ = build_relay([target], "relay")
        outbox.subscriptions.create("relay", "beginning")
        _publish(conn, WARM, given.aggregates)
        with running(outbox.supervisor(processes=given.processes, subscription="relay")) as node:
            wait_empty(node)
            used = total(child.pid for child in node.children)
            _publish(conn, events, given.aggregates)
            ((began,),) = conn.execute(query("ratios_now", SCHEMA), {}).fetchall()
            wait_empty(node)
            used = total(child.pid for child in node.children) - used
            ((taken, refused),) = conn.execute(query("ratios_relayed", SCHEMA), {"began": began}).fetchall()
        if refused:
            raise RefusedError(refused)
        return taken, used


def _publish(conn: psycopg.Connection, events: int, aggregates: int) -> None:
    conn.execute(query("ratios_publish", SCHEMA), {"events": events, "aggregates": aggregates})
