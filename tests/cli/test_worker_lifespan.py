"""The lifespan in worker processes: each enters it once, and leaves it; a start that fails delivers nothing."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from waiting import eventually

from partbox import Event, Outbox
from partbox.doctor.checks import workers

SHOP = """
import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from partbox import DeliveredEvent, Outbox

outbox = Outbox(lease="60s")


def tell(what):
    with open("told", "a") as file:
        file.write(f"{os.getpid()} {what}\\n")


@dataclass
class State:
    number: int


@outbox.on("OrderPlaced")
async def confirm(event: DeliveredEvent, state: State):
    tell(f"handled {state.number}")


@outbox.on("OrderShipped")
def bill(event: DeliveredEvent):
    tell(f"handled {event.state.number}")


@outbox.lifespan
"""
PLAIN = """
def lifespan() -> Iterator[State]:
    tell("entered")
    yield State(7)
    tell("left")
"""
ASYNC = PLAIN.replace("def", "async def").replace("Iterator", "AsyncIterator")
NEEDS_A_FILE = """
async def lifespan() -> AsyncIterator[State]:
    if not Path("up").exists():
        tell("failed")
        raise ConnectionError("postgresql://me:s3cret@nowhere is away")
    yield State(7)
"""
SLOW = """
def lifespan() -> Iterator[State]:
    yield State(7)
    tell("leaving")
    time.sleep(3600)  # longer than any drain_timeout: it has to be given up
"""
ENDLESS_START = """
async def lifespan() -> AsyncIterator[State]:
    tell("starting")
    try:
        await asyncio.Event().wait()  # for a server that never comes up
    finally:
        tell("undone")
    yield State(7)
"""
WRONG_END = """
async def lifespan() -> AsyncIterator[State]:
    yield State(7)
    raise LookupError("nothing to close")
"""


class Node:
    """`partbox worker` over a shop with this lifespan, in its folder."""

    def __init__(self, folder: Path, dsn: str, process: Any) -> None:
        self.folder = folder
        self.outbox = Outbox(dsn)
        self.conn = psycopg.connect(dsn, autocommit=True)
        self.process = process

    def publish(self, count: int) -> None:
        kinds = ("OrderPlaced", "OrderShipped")
        events = [Event(kinds[each % 2], {}, aggregate_type="Order", aggregate_id=str(each)) for each in range(count)]
        with self.conn.transaction():
            self.outbox.publish_many(self.conn, events)

    def told(self) -> list[tuple[str, str]]:
        """Read what processes have told: pairs of a process id and a word."""
        path = self.folder / "told"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(pid, what) for pid, _, what in (line.partition(" ") for line in lines)]

    def count(self, what: str) -> int:
        return sum(each == what for _, each in self.told())

    def statuses(self) -> set[str]:
        return {status for (status,) in self.conn.execute("select distinct status from partbox.record_status")}

    def end(self) -> tuple[int, list[str]]:
        """SIGTERM; the exit code, and the lines about the lifespan."""
        self.process.send_signal(signal.SIGTERM)
        _, said = self.process.communicate()
        return self.process.wait(), [line for line in said.splitlines() if "lifespan" in line]


@pytest.fixture
def node(tmp_path: Path, dsn: str, forks: Any) -> Iterator[Callable[..., Node]]:
    nodes = []

    def start(lifespan: str, *flags: str, **settings: str) -> Node:
        (tmp_path / "shop.py").write_text(SHOP + lifespan.lstrip())
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PARTBOX_")}
        process = forks.start(
            "partbox", "worker", "shop:outbox", *flags, cwd=tmp_path, env={**kept, "PARTBOX_DSN": dsn, **settings}
        )
        nodes.append(Node(tmp_path, dsn, process))
        return nodes[-1]

    yield start
    for each in nodes:
        each.conn.close()


@pytest.mark.parametrize("lifespan", [PLAIN, ASYNC], ids=["sync", "async"])
def test_each_worker_process_enters_the_lifespan_before_its_handlers_and_leaves_it_after_them(
    node: Callable[..., Node], lifespan: str
) -> None:
    running = node(lifespan, "--processes", "2")
    eventually(lambda: running.count("entered") == 2, 60)
    running.publish(40)
    eventually(lambda: running.count("handled 7") == 40, 60)
    code, said = running.end()
    assert (code, said) == (0, [])
    by_process: dict[str, list[str]] = {}
    for pid, what in running.told():
        by_process.setdefault(pid, []).append(what)
    assert len(by_process) == 2
    for first, *handled, last in by_process.values():
        assert (first, set(handled) - {"handled 7"}, last) == ("entered", set(), "left")


def test_a_failing_lifespan_start_is_logged_in_one_line_and_retried_while_events_wait(
    node: Callable[..., Node],
) -> None:
    running = node(NEEDS_A_FILE, "--processes", "1")
    running.publish(4)
    eventually(lambda: running.count("failed") >= 3, 60)
    assert running.statuses() == {"pending"}
    assert running.conn.execute("select count(*) from partbox.parked").fetchone() == (0,)
    (running.folder / "up").touch()
    eventually(lambda: running.count("handled 7") == 4, 60)
    code, said = running.end()
    assert code == 0
    assert running.statuses() == {"done"}
    assert len(said) == running.count("failed")
    program = (running.folder / "shop.py").read_text().splitlines()
    failing = next(number for number, line in enumerate(program, 1) if "raise ConnectionError" in line)
    for line in said:
        assert "the lifespan shop.lifespan (shop.py:" in line
        assert (
            f"failed in line {failing}, so nothing is delivered by this process, which ends: ConnectionError: " in line
        )
        assert "s3cret" not in line


def test_a_stop_cancels_an_async_lifespan_that_is_still_starting(node: Callable[..., Node]) -> None:
    running = node(ENDLESS_START, "--processes", "1", PARTBOX_DRAIN_TIMEOUT="1h")
    eventually(lambda: running.count("starting") == 1, 60)
    code, said = running.end()
    assert (code, said) == (0, [])
    assert [what for _, what in running.told()] == ["starting", "undone"]


def test_a_lifespan_that_ends_slowly_is_abandoned_within_the_drain_timeout(node: Callable[..., Node]) -> None:
    running = node(SLOW, "--processes", "1", PARTBOX_DRAIN_TIMEOUT="0.5s")
    running.publish(2)
    eventually(lambda: running.count("handled 7") == 2, 60)
    _, (line,) = running.end()
    assert "takes longer to end than a stop may take, and is given up" in line
    assert running.count("leaving") == 1


def test_a_lifespan_that_fails_at_its_end_is_logged_in_one_line_and_all_progress_is_saved(
    node: Callable[..., Node],
) -> None:
    running = node(WRONG_END, "--processes", "1")
    running.publish(2)
    eventually(lambda: running.count("handled 7") == 2, 60)
    code, (line,) = running.end()
    assert code == 0
    assert "when it was left: LookupError: nothing to close" in line
    assert running.statuses() == {"done"}


RUNS = """
if __name__ == "__main__":
    raise SystemExit(outbox.run(processes=1, until_empty=True))
"""


@pytest.mark.parametrize("lifespan", [PLAIN, ASYNC], ids=["sync", "async"])
def test_a_program_that_starts_its_own_worker_processes_passes_the_lifespan_to_them(
    tmp_path: Path, dsn: str, forks: Any, lifespan: str
) -> None:
    program = tmp_path / "shop.py"
    program.write_text(SHOP + lifespan.lstrip() + RUNS)
    running = Node(tmp_path, dsn, None)
    running.publish(4)
    running.conn.close()
    process = forks.start("python", str(program), cwd=tmp_path, env={**os.environ, "PARTBOX_DSN": dsn})
    _, said = process.communicate()
    assert process.wait() == 0, said
    assert [what for _, what in running.told()] == ["entered", *["handled 7"] * 4, "left"]


HANGS = """
def lifespan() -> Iterator[State]:
    tell("entered")
    while not Path("up").exists():  # a server that accepts, and does not answer
        time.sleep(0.05)
    yield State(7)
"""


def test_a_process_whose_lifespan_hangs_gets_no_partition_and_doctor_names_it(
    node: Callable[..., Node], partbox: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault kind: nobody stands behind a call that does not return."""
    monkeypatch.setattr(workers, "LIFESPAN_LIMIT", 0.0)
    running = node(HANGS, "--processes", "2")
    running.publish(4)
    dsn = ("--dsn", running.conn.info.dsn)

    def findings() -> dict[str, Any]:
        return {each["cause"]: each for each in json.loads(partbox("doctor", "--json", *dsn).out)["findings"]}

    def rows() -> Any:
        return running.conn.execute("select count(*), bool_and(draining) from partbox.instance").fetchone()

    eventually(lambda: rows() == (2, True), 60)
    found = findings()["lifespan"]
    assert found["severity"] == "problem"
    assert found["summary"].startswith("2 processes in the lifespan shop.lifespan (shop.py:")
    assert found["summary"].endswith("no other process works, and records wait")
    assert "no-workers" not in findings()
    said = partbox("status", *dsn).out
    assert "2 processes in the lifespan shop.lifespan" in " ".join(said.split())
    assert "start some with" not in said
    assert running.conn.execute("select count(assignee), count(owner) from partbox.partition").fetchone() == (0, 0)
    (running.folder / "up").touch()
    eventually(lambda: running.count("handled 7") == 4, 60)
    eventually(lambda: rows() == (2, False), 60)
    assert "lifespan" not in findings()
    assert running.end()[0] == 0
    assert rows() == (0, None)


def test_a_process_that_is_stopped_in_its_lifespan_leaves_no_row(node: Callable[..., Node]) -> None:
    running = node(ENDLESS_START, "--processes", "1")
    eventually(lambda: running.conn.execute("select count(*) from partbox.instance").fetchone() == (1,), 60)
    assert running.end() == (0, [])
    assert running.conn.execute("select count(*) from partbox.instance").fetchone() == (0,)
