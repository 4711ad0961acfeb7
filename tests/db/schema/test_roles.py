"""The roles of `--publisher-role` and `--worker-role` can do their whole work."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from forked_commands import Forks
from psycopg import sql
from roles import Cast
from waiting import eventually

from partbox import Event, Outbox, inbox
from partbox.cli import main
from partbox.db.schema.grants import Roles
from partbox.db.schema.migrate import migrate
from partbox.sinks.lines import FileSink
from partbox.worker.reports import limits, process_notes

APPLICATION = """
import os
from pathlib import Path
from partbox import Dead, Event, Outbox

outbox = Outbox()
here = Path(__file__).parent

@outbox.on("Placed")
def placed(event):
    with (here / "delivered").open("a") as file:
        file.write(f"{event.payload}\\n")

@outbox.on("Flaky")
def flaky(event):
    if event.attempt == 1:
        raise RuntimeError("not yet")
    placed(event)

@outbox.on("Deadly")
def deadly(event):
    if not (here / "died").exists():
        (here / "died").touch()
        os._exit(9)
    placed(event)

@outbox.on("Incurable")
def incurable(event):
    if not (here / "cure").exists():
        return Dead("no cure")
    placed(event)

@outbox.on("Effect", transactional=True)
def effect(event, connection):
    connection.execute("insert into effect values (%s)", [event.payload])
    placed(event)
"""


def events(count: int, **fields: Any) -> list[Event]:
    return [
        Event("Placed", number, aggregate_type="Order", aggregate_id=str(number), **fields) for number in range(count)
    ]


async def test_a_publisher_publishes_in_every_way(cast, conn):
    outbox, dsn = Outbox(cast.of("publisher")), cast.of("publisher")
    told = []
    outbox.after_commit(told.extend)
    outbox.after_rollback(lambda events: told.append(None))

    with outbox.transaction() as tx:
        outbox.publish(tx, "Placed", {"n": 1}, aggregate_type="Order", aggregate_id="7", headers={"a": "b"})
        assert outbox.publish(tx, Event("Placed", b"\0\xff", content_type="application/octet-stream"))
        assert outbox.publish(tx, "Placed", 1, idempotency_key="k")
        assert outbox.publish(tx, "Placed", 1, idempotency_key="k") is None
        with tx.transaction(force_rollback=True):
            outbox.publish(tx, "Placed", 1)
        outbox.publish_many(tx, events(3))
        outbox.publish_many(tx, events(20))
        outbox.publish_many(tx, events(20, deliver_after=timedelta(hours=1)))
        outbox.publish_many(tx, [Event("Placed", n, idempotency_key=f"k{n % 9}") for n in range(20)])
        outbox.publish_many(tx, events(9, occurred_at=datetime(2026, 1, 1, tzinfo=UTC)))
    assert told.count(None) == 1
    assert len(told) == 1 + 3 + 3 + 20 + 20 + 9 + 9
    async with outbox.transaction() as tx:
        await outbox.publish_async(tx, "Placed", 1, idempotency_key="async")
        await outbox.publish_many_async(tx, events(20))
    plain = Outbox(dsn)
    with psycopg.connect(dsn) as own, own.pipeline():
        plain.publish(own, "Placed", 1)
        plain.publish_many(own, events(9))
    conn.execute("create table effect (n int)")
    with psycopg.connect(dsn) as own:
        own.execute(
            "select partbox.publish('Placed', '{}', 'Order', '7', 'tenant', '{\"a\": \"b\"}', idempotency_key => 'sql')"
        )
        own.execute("select partbox.publish('Placed', null, deliver_after => '1 hour')")
    assert conn.execute("select count(*) from partbox.record").fetchone() == (64 + 21 + 10 + 2,)


@pytest.fixture
def run(cast: Cast, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """Runs a command as the role of workers; its exit code, and all that it says after it."""
    monkeypatch.setenv("PARTBOX_DSN", cast.of("worker"))

    def run(command: str) -> str:
        with pytest.raises(SystemExit) as exit:
            main(command.split())
        return f"{exit.value.code or 0} {''.join(capsys.readouterr())}"

    return run


@pytest.fixture
def working(cast: Cast, tmp_path: Path, forks: Forks) -> Iterator[Callable[[], list[str]]]:
    """A node of two processes whose only role is that of workers; gives what was delivered so far."""
    (tmp_path / "shop.py").write_text(APPLICATION)
    with psycopg.connect(cast.dsn) as conn:
        conn.execute("create table effect (n int)")
        conn.execute(sql.SQL("grant insert on effect to {}").format(sql.Identifier(cast.worker)))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PARTBOX_")}
    environment |= {"PARTBOX_LEASE": "2s", "PARTBOX_HEARTBEAT": "300ms", "PARTBOX_RETRY": "fixed:0.1"}
    environment |= {"PARTBOX_DSN": cast.of("worker"), "PARTBOX_PURGE_INTERVAL": "1s", "PARTBOX_MAX_ATTEMPTS": "3"}
    log = tmp_path / "log"
    command = ["partbox", "worker", "shop:outbox", "--processes", "2"]
    node = forks.start_into(log, *command, cwd=tmp_path, env=environment)
    delivered = tmp_path / "delivered"
    try:
        yield lambda: delivered.read_text().split() if delivered.exists() else []
    finally:
        node.send_signal(signal.SIGTERM)
        code = node.wait(120)
    assert (code, "permission denied" in log.read_text()) == (0, False), log.read_text()


LOOKS = (
    "status",
    "status --json",
    "dead list",
    "dead show 4 --payload",
    "blocked list",
    "metrics",
    "subscription list",
    "purge --dry-run",
)


def test_a_worker_role_can_deliver_retry_bury_and_park_and_run_operator_commands(cast, conn, working, tmp_path, run):
    outbox = Outbox(cast.dsn)
    with outbox.transaction() as tx:
        for number, kind in enumerate(["Placed", "Flaky", "Deadly", "Incurable", "Effect", "Incurable"]):
            outbox.publish(tx, kind, number, aggregate_type="Order", aggregate_id=str(number))
    # A process dies amid them: what it had delivered and not yet saved comes once more.
    eventually(lambda: sorted(set(working())) == ["0", "1", "2", "4"], interval=0.05)
    eventually(lambda: conn.execute("select count(*) from partbox.dead").fetchone() == (2,), interval=0.05)
    assert conn.execute("select n from effect").fetchall() == [(4,)]

    said = {command: run(command) for command in (*LOOKS, "doctor --json")}
    assert [each for command, each in said.items() if "permission denied" in each] == []
    assert [each for command, each in said.items() if command in LOOKS and not each.startswith("0 ")] == []
    found = json.dumps(json.loads(said["doctor --json"].partition(" ")[2])["findings"])
    assert not any(word in found for word in ("not granted", "privilege")), found
    assert sum(each.records for each in Outbox(cast.of("worker")).dead.groups()) == 2

    (tmp_path / "cure").touch()
    assert run("dead replay 4").startswith("0 ")
    eventually(lambda: "3" in working(), interval=0.05)
    assert run("dead discard 6").startswith("0 ")
    for command in ("blocked retry Order 5", "blocked skip Order 5 --reason it"):
        assert "permission denied" not in run(command)  # it is not blocked
    conn.execute("update partbox.record set created_at = '2000-01-01'")
    conn.execute("insert into partbox.idempotency values ('old', gen_random_uuid(), '2000-01-01')")
    conn.execute("insert into partbox.inbox values ('old', gen_random_uuid(), '2000-01-01')")
    for table in ("record", "idempotency", "inbox"):
        eventually(lambda table=table: conn.execute(f"select from partbox.{table}").rowcount == 0, interval=0.2)


def test_a_worker_in_the_application_and_the_inbox_need_no_more_than_the_worker_role(cast, conn):
    outbox = Outbox(cast.of("worker"))
    outbox.on("Placed")(lambda event: None)
    with Outbox(cast.dsn).transaction() as tx:
        Outbox(cast.dsn).publish(tx, "Placed", 1)
    outbox.drain()
    with outbox.transaction() as tx:
        assert inbox.first_time(tx, "00000000-0000-0000-0000-000000000009", "billing")
        assert not inbox.first_time(tx, "00000000-0000-0000-0000-000000000009", "billing")
    assert conn.execute("select status from partbox.record_status").fetchall() == [("done",)]


def test_workers_and_commands_run_no_functions_of_others_that_match_a_call_more_closely(cast, conn, run):
    """PostgreSQL prefers a function that fits exactly: its owner has it run by each role that looks for names there."""
    conn.execute(f"grant create on schema public to {cast.stranger}")
    with psycopg.connect(cast.of("stranger"), autocommit=True) as stranger:
        for kind in ("smallint", "integer", "bigint", "text", "uuid"):
            for name, result in (("unnest", f"setof {kind}"), ("cardinality", "integer")):
                raises = "language plpgsql as $$ begin raise 'run as %', current_user; end $$"
                stranger.execute(f"create function public.{name}({kind}[]) returns {result} {raises}".encode())
    outbox = Outbox(cast.of("worker"))
    outbox.on("Placed")(lambda event: None)
    outbox.on("Deadly", max_attempts=1)(lambda event: 1 / 0)
    with Outbox(cast.dsn).transaction() as tx:
        Outbox(cast.dsn).publish_many(tx, [Event("Placed", 1), Event("Deadly", 2)])
    with outbox.worker() as worker:
        worker.wait_until_empty(60.0)
    said = {command: run(command) for command in (*LOOKS, "find --record 1", "doctor --json", "dead replay 2")}
    assert [command for command, each in said.items() if "run as worker" in each] == []
    assert said["dead replay 2"].startswith("0 ")


def test_a_worker_role_can_note_how_many_events_its_sinks_have_sent(cast, conn, monkeypatch):
    monkeypatch.setattr(process_notes, "TRAFFIC_INTERVAL", 0.0)
    outbox = Outbox(cast.of("worker"))
    outbox.register(FileSink("/dev/null"), "Placed", name="null")
    with Outbox(cast.dsn).transaction() as tx:
        Outbox(cast.dsn).publish(tx, "Placed", 1)

    def noted():
        return conn.execute("select sinks -> 0 ->> 'sent' from partbox.instance").fetchall() == [("1",)]

    with outbox.worker():
        eventually(noted)


def test_a_worker_role_can_keep_limits_report_waiting_events_and_set_limits(cast, monkeypatch):
    monkeypatch.setattr(limits, "LIMITS_INTERVAL", 0.0)
    outbox = Outbox(cast.of("worker"))
    outbox.on("Placed", name="ship", rate="1/h")(lambda event: None)
    with Outbox(cast.dsn).transaction() as tx:
        Outbox(cast.dsn).publish(tx, "Placed", 1)

    def waiting() -> int:
        return sum(each.waiting for each in outbox.limits.list())

    with outbox.worker():
        eventually(lambda: waiting() == 1)
        assert outbox.limits.set("ship", rate="none") is True
        eventually(lambda: waiting() == 0)
        assert outbox.limits.set("ship", at_once=1) is True
        assert outbox.limits.reset("ship") is True


def test_a_role_that_is_both_worker_and_publisher_can_publish_in_its_handlers(cast):
    migrate(cast.dsn, roles=Roles((cast.worker,), (cast.worker,)))
    outbox = Outbox(cast.of("worker"))
    seen = []

    @outbox.on("Placed", transactional=True)
    def placed(event, connection):
        outbox.publish(connection, "Paid", event.payload)

    outbox.on("Paid")(lambda event: seen.append(event.payload))
    with outbox.transaction() as tx:
        outbox.publish(tx, "Placed", 42)
    outbox.drain()
    assert seen == [42]
