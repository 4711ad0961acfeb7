"""The sequence of record ids lies behind ids that are used: set back by hand, or not copied by logical replication.

Events would get ids that cursors have passed, and be lost without a word: a bound that was believed and is not there.
"""

import re
from typing import Any

import psycopg
import pytest
from waiting import eventually

from partbox import Outbox
from partbox.events import DeliveredEvent

Conn = psycopg.Connection[Any]
BACK = "select setval('partbox.record_id_seq', %s)"


@pytest.fixture
def delivered(dsn: str) -> list[int]:
    return []


@pytest.fixture
def outbox(dsn: str, delivered: list[int]) -> Outbox:
    outbox = Outbox(dsn)

    @outbox.on("T")
    def handle(event: DeliveredEvent) -> None:
        delivered.append(event.payload)

    return outbox


def publish(outbox: Outbox, conn: Conn, numbers: range) -> None:
    for number in numbers:
        with conn.transaction():
            outbox.publish(conn, "T", number, aggregate_id=str(number))


def deliver(outbox: Outbox, delivered: list[int], expected: range) -> None:
    with outbox.worker():
        eventually(lambda: sorted(set(delivered)) == [*expected])
    delivered.sort()
    assert delivered == [*expected], "each once"


def remedy(caplog: pytest.LogCaptureFixture) -> str:
    """The statement in backticks of the line that says that nothing is read."""
    lines = (line for line in caplog.messages if "some data cannot be read" in line and "record_id_seq" in line)
    statement = "`(select setval[^`]*|with changed [^`]*)`"
    return next((found for line in lines for found in re.findall(statement, line)), "")


def follow(conn: Conn, caplog: pytest.LogCaptureFixture, kind: str) -> None:
    """Execute the statement that a running worker logs."""
    eventually(lambda: remedy(caplog).startswith(kind))
    conn.execute(remedy(caplog).encode())
    caplog.clear()


@pytest.mark.parametrize("read", [20, 60], ids=["behind the log alone", "behind cursors, too"])
def test_a_sequence_behind_the_log_is_refused_and_after_the_logged_remedy_nothing_is_lost_nor_fails(
    outbox: Outbox, conn: Conn, delivered: list[int], caplog: pytest.LogCaptureFixture, read: int
) -> None:
    """As on a promoted logical subscriber that was made from a physical copy: only the sequence is behind."""
    publish(outbox, conn, range(read))
    deliver(outbox, delivered, range(read))
    publish(outbox, conn, range(read, 80))
    conn.execute(BACK, [10])
    with outbox.worker():
        follow(conn, caplog, "select setval")
        assert len(delivered) == read
        publish(outbox, conn, range(80, 120))
        eventually(lambda: len(delivered) == 120)
    assert sorted(delivered) == [*range(120)]
    assert conn.execute("select count(distinct id) from partbox.record").fetchone() == (120,)


def test_events_under_ids_that_cursors_have_passed_are_named_and_after_the_logged_remedy_delivered_once(
    outbox: Outbox, conn: Conn, delivered: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """The sequence is set back while nobody works, and has risen above everything when somebody does."""
    publish(outbox, conn, range(40))
    deliver(outbox, delivered, range(40))
    conn.execute(BACK, [10])
    publish(outbox, conn, range(40, 90))
    with outbox.worker():
        follow(conn, caplog, "with changed ")
        eventually(lambda: sorted(delivered) == [*range(90)])


def test_a_sequence_that_is_set_back_under_a_worker_ends_its_session_and_nothing_is_read_until_it_is_raised(
    outbox: Outbox, conn: Conn, delivered: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    publish(outbox, conn, range(20))
    with outbox.worker():
        eventually(lambda: len(delivered) == 20)
        conn.execute(BACK, [10])
        eventually(lambda: remedy(caplog) != "")
        publish(outbox, conn, range(20, 24))
        follow(conn, caplog, "select setval")
        eventually(lambda: sorted(delivered) == [*range(24)])
