"""`partbox subscription replay` and `drop` that a signal or the loss of their connection stops leave all as it was."""

import os
import signal
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from forked_commands import Command
from waiting import eventually

from partbox import Outbox

PLAN = "select from partbox.partition where subscription = 'audit' for no key update"
PURGE = "select partbox.locked('purge')"
GOES_ON = "partbox: interrupted: subscription 'audit': nothing was changed, and delivery goes on\n"
STAYS = "partbox: interrupted: subscription 'audit': nothing was changed; it stays paused, as it was before\n"
REPLAY, DROP = ("replay", "audit", "--from", "1"), ("drop", "audit")


@dataclass
class Patient:
    """The subscription `audit`, which a living process owns: so a command on it waits."""

    conn: psycopg.Connection[Any]
    outbox: Outbox

    @property
    def paused(self) -> bool | None:
        row = self.conn.execute(
            "select paused_at is not null from partbox.subscription where name = 'audit'"
        ).fetchone()
        return row and row[0]

    def cursors(self) -> list[tuple[Any, ...]]:
        columns = "partition, last_id, floor_id, snapshot::text, epoch"
        query = f"select {columns} from partbox.partition where subscription = 'audit' order by partition"
        return self.conn.execute(query.encode()).fetchall()

    def waits(self) -> bool:
        """Whether a command waits for a lock, or is between two looks at who owns something."""
        query = (
            "select wait_event_type = 'Lock' or query like '%%full join%%' from pg_stat_activity"
            " where datname = current_database() and application_name = 'partbox subscription'"
        )
        return self.conn.execute(query).fetchone() == (True,)


@pytest.fixture
def patient(dsn, conn) -> Patient:
    outbox = Outbox(dsn)
    with conn.transaction():
        outbox.publish(conn, "Step", 1, aggregate_type="A", aggregate_id="1")
    outbox.subscriptions.create("audit", "now")
    return Patient(conn, outbox)


@pytest.fixture
def owned(patient) -> Patient:
    patient.conn.execute(
        "insert into partbox.instance (subscription, node, hostname, pid, version, lease)"
        " values ('audit', 'node-a', 'h', 4711, '0', '1 h')"
    )
    patient.conn.execute(
        "update partbox.partition set owner = instance_id from partbox.instance where partition.subscription = 'audit'"
    )
    return patient


@pytest.fixture
def start(dsn, forks):
    """Starts `partbox subscription …` in a process of its own."""
    started: list[Command] = []

    def start(*arguments: str) -> Command:
        environment = os.environ | {"PARTBOX_DSN": dsn}
        started.append(forks.start("partbox", "subscription", *arguments, "--yes", env=environment))
        return started[-1]

    yield start
    for each in started:
        each.kill()


@contextmanager
def locked(dsn, statement):
    """Somebody has locked what a command needs next."""
    with psycopg.connect(dsn) as other:
        other.execute(statement.encode())
        yield


def interrupted(command: Command, number: signal.Signals = signal.SIGINT) -> str:
    """Send a signal; what the command says of it."""
    command.send_signal(number)
    out, err = command.communicate()
    assert (command.returncode, out) == (130, "")
    return err


@pytest.mark.parametrize(
    ("arguments", "number"), [(REPLAY, signal.SIGINT), (DROP, signal.SIGTERM), (REPLAY, signal.SIGHUP)]
)
def test_a_signal_while_the_command_waits_for_workers_undoes_its_pause(owned, start, arguments, number):
    before = owned.cursors()
    command = start(*arguments)
    eventually(lambda: owned.paused and owned.waits())
    assert interrupted(command, number) == GOES_ON
    assert owned.paused is False
    assert owned.cursors() == before


@pytest.mark.parametrize("arguments", [REPLAY, DROP])
def test_a_signal_leaves_a_subscription_paused_that_was_paused_before(owned, start, arguments):
    owned.outbox.subscriptions.pause("audit")
    command = start(*arguments)
    eventually(owned.waits)
    assert interrupted(command) == STAYS
    assert owned.paused is True


def test_a_signal_while_the_command_pauses_the_subscription_undoes_the_pause(owned, start, dsn):
    with locked(dsn, PLAN):
        command = start(*REPLAY)
        eventually(owned.waits)
        assert interrupted(command) == GOES_ON
    assert owned.paused is False


@pytest.mark.parametrize("before", [False, True])
def test_a_signal_during_a_replay_changes_nothing_and_restores_the_former_pause_state(patient, start, dsn, before):
    if before:
        patient.outbox.subscriptions.pause("audit")
    cursors = patient.cursors()
    with locked(dsn, PURGE):
        command = start(*REPLAY)
        eventually(lambda: patient.paused and patient.waits())
        said = interrupted(command)
    assert said.endswith("stays paused, as it was before\n") if before else said == GOES_ON
    assert patient.paused is before
    assert patient.cursors() == cursors


def test_a_signal_during_a_drop_changes_nothing_and_resumes_the_subscription(patient, start, dsn):
    with locked(dsn, "select from partbox.partition where subscription = 'audit' and partition = 9 for update"):
        command = start(*DROP)
        eventually(lambda: patient.paused and patient.waits())
        assert interrupted(command) == GOES_ON
    assert patient.paused is False
    assert len(patient.cursors()) == 256


def test_a_command_that_loses_its_connection_reconnects_to_resume_the_subscription(owned, start):
    command = start(*REPLAY)
    eventually(lambda: owned.paused and owned.waits())
    ended = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'partbox subscription'"
    owned.conn.execute(f"{ended} and datname = current_database()".encode())
    out, err = command.communicate()
    assert (command.returncode, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("partbox: subscription 'audit': ")
    assert err.endswith("; nothing was changed, and delivery goes on\n")
    assert owned.paused is False


def test_when_the_database_is_away_the_subscription_stays_paused_and_the_remedy_is_named(owned, start, away):
    command = start(*DROP)
    eventually(lambda: owned.paused and owned.waits())
    with away():
        out, err = command.communicate()
    assert (command.returncode, out, err.count("\n")) == (1, "", 1)
    assert "it is left paused, because it could not be resumed (" in err
    assert err.endswith("`partbox subscription resume audit` resumes it\n")
