"""A worker inside an application, and `outbox.run` from a script."""

import asyncio
import logging
import os
import subprocess
import sys
import threading

import psycopg
import pytest
from waiting import eventually

from partbox import Outbox
from partbox.db.delivery import outstanding as outstanding_work
from partbox.errors import PartboxError
from partbox.observe import Observer

FORGOTTEN = """
from partbox import Outbox

outbox = Outbox()
outbox.register(print, "Greeted")
outbox.worker().start()
print("the end")
"""

SCRIPT = """
import os
import sys

from partbox import Outbox

outbox = Outbox()


@outbox.on("Greeted")
def greet(event):
    with open(sys.argv[1], "a") as file:
        file.write(f"{event.payload['name']} {os.getpid()}\\n")


if __name__ == "__main__":
    print(os.getpid())
    sys.exit(outbox.run(processes=2, until_empty=True))
"""


@pytest.fixture
def greeted() -> list[str]:
    """The names that were greeted, in order."""
    return []


@pytest.fixture
def outbox(dsn, greeted) -> Outbox:
    outbox = Outbox(dsn, heartbeat=0.3)

    @outbox.on("Greeted")
    def greet(event):
        greeted.append(event.payload["name"])

    return outbox


def publish(outbox: Outbox, *names: str, event_type: str = "Greeted") -> None:
    with psycopg.connect(outbox.dsn) as conn:
        for name in names:
            outbox.publish(conn, event_type, {"name": name}, aggregate_type="Guest", aggregate_id="guest")


def run(script: str, folder, dsn: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    file = folder / "script.py"
    file.write_text(script)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PARTBOX_")}
    return subprocess.run(
        [sys.executable, str(file), *arguments],
        cwd=folder,
        env=environment | {"PARTBOX_DSN": dsn},
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )


def instances(conn) -> int:
    return conn.execute("select count(*) from partbox.instance").fetchone()[0]


def owned(conn) -> int:
    return conn.execute("select count(owner) from partbox.partition").fetchone()[0]


def test_a_with_block_delivers_and_leaves_nothing_behind(outbox, greeted, conn):
    publish(outbox, "Ada")
    with outbox.worker():
        eventually(lambda: greeted == ["Ada"])
        publish(outbox, "Bob", "Cy")
        eventually(lambda: greeted == ["Ada", "Bob", "Cy"])
        assert instances(conn) == 1
    assert (instances(conn), owned(conn)) == (0, 0)


async def test_an_async_with_block_delivers_to_async_handlers(dsn, conn):
    outbox = Outbox(dsn)
    greeted = asyncio.Event()

    @outbox.on("Greeted")
    async def greet(event):
        greeted.set()

    async with outbox.worker():
        publish(outbox, "Ada")
        await greeted.wait()
    assert (instances(conn), owned(conn)) == (0, 0)


def test_drain_delivers_what_is_due_and_returns(outbox, greeted, conn):
    publish(outbox, *"abcdef")
    assert outbox.drain(timeout=30) is True
    assert greeted == [*"abcdef"]
    assert (instances(conn), owned(conn)) == (0, 0)


def test_a_drain_that_runs_out_of_time_says_so(dsn):
    outbox = Outbox(dsn, drain_timeout=20)
    gate = threading.Event()

    @outbox.on("Greeted")
    def greet(event):
        gate.wait(120)

    publish(outbox, "Ada")
    threading.Timer(1.5, gate.set).start()
    assert outbox.drain(timeout=0.5) is False


def test_wait_until_empty_goes_on_if_its_connection_is_cut_during_a_query(outbox, greeted, conn, caplog, monkeypatch):
    """`_has_news` had found nothing wrong: the server ends the connection while it answers."""
    ask, cut = outstanding_work.read_outstanding, []

    def cut_off(asking, *arguments):
        if not cut:
            cut.append(conn.execute("select pg_terminate_backend(%s, 5000)", [asking.info.backend_pid]).fetchone())
        return ask(asking, *arguments)

    monkeypatch.setattr(outstanding_work, "read_outstanding", cut_off)
    publish(outbox, "Ada")
    assert outbox.drain(timeout=30) is True
    assert (greeted, cut) == (["Ada"], [(True,)])
    assert "cannot determine whether everything is delivered" in caplog.text


def test_an_outbox_that_is_not_enabled_says_so_and_delivers_nothing(dsn, conn, caplog):
    caplog.set_level(logging.INFO)
    outbox, greeted = Outbox(dsn, enabled=False), []
    outbox.on("Greeted")(greeted.append)
    publish(outbox, "Ada")
    assert outbox.drain(timeout=30) is False
    assert "enabled is false: nothing is delivered" in caplog.text
    with outbox.worker() as worker:
        worker.start()
        assert worker.wait_until_empty(120) is False
    with pytest.raises(PartboxError, match="this worker was stopped"):
        worker.wait_until_empty(120)
    assert (greeted, instances(conn), owned(conn)) == ([], 0, 0)


@pytest.mark.parametrize("wrong", [-1, 0, "4", 2.5, True])
def test_an_invalid_number_of_handlers_or_processes_is_refused_in_one_line(outbox, conn, wrong):
    for use in (outbox.worker, outbox.drain, outbox.run, outbox.supervisor):
        with pytest.raises(PartboxError, match=rf"^concurrency = {wrong!r} is invalid: give a whole number from 1$"):
            use(concurrency=wrong)
    for use in (outbox.run, outbox.supervisor):
        with pytest.raises(PartboxError, match=rf"^processes = {wrong!r} is invalid: give a whole number from 1$"):
            use(processes=wrong)
    assert instances(conn) == 0


def test_waiting_for_a_worker_that_has_not_started_is_refused(outbox):
    with pytest.raises(PartboxError, match=r"this worker has not started: use `with outbox\.worker\(\) as worker:`"):
        outbox.worker().wait_until_empty(120)


def test_a_stopped_worker_has_left_and_is_not_buried(outbox, greeted, caplog):
    buried = []

    class Watch(Observer):
        def buried(self, instances):
            buried.append(instances)

    outbox.observe(Watch())
    publish(outbox, "Ada")
    assert outbox.drain(timeout=30)
    assert (greeted, buried) == (["Ada"], [])
    assert "dead instances" not in caplog.text


def test_a_worker_that_was_stopped_does_not_start_again(outbox):
    worker = outbox.worker()
    worker.start()
    worker.start()
    worker.stop()
    worker.stop()
    with pytest.raises(PartboxError, match=r"this worker was stopped: create a new one with outbox\.worker\(\)"):
        worker.start()


def test_a_stop_before_the_start_is_fine_and_final(outbox):
    worker = outbox.worker()
    worker.stop()
    with pytest.raises(PartboxError, match="create a new one"):
        worker.start()


def test_a_start_that_fails_leaves_no_thread_and_no_instance(outbox, empty_dsn):
    before, elsewhere = threading.active_count(), Outbox(empty_dsn)
    elsewhere.register(print, "Greeted")
    with pytest.raises(PartboxError, match="partbox init"):
        elsewhere.worker().start()
    eventually(lambda: threading.active_count() == before)


def test_a_handler_that_runs_past_the_drain_timeout_is_left_and_its_event_comes_again(dsn, caplog):
    outbox = Outbox(dsn, drain_timeout=0.3, lease=2, heartbeat=0.3)
    gate, calls = threading.Event(), []

    @outbox.on("Greeted")
    def greet(event):
        calls.append(event.payload["name"])
        gate.wait(120)

    publish(outbox, "Ada")
    with outbox.worker():
        eventually(lambda: calls)
    assert "may be delivered again" in caplog.text
    gate.set()
    assert outbox.drain(timeout=30)
    assert calls == ["Ada", "Ada"]


def test_a_failed_worker_lets_its_lease_end_and_says_nothing_more_about_its_heartbeat(dsn, conn, caplog):
    outbox = Outbox(dsn, heartbeat=0.2)
    outbox.register(print, "Greeted")
    with outbox.worker() as worker:
        eventually(lambda: owned(conn))
        conn.execute("update partbox.meta set xid = '3' where key = 'marker'")
        conn.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'partbox poller'")
        eventually(lambda: worker._worker.failure)
        eventually(lambda: not worker._registered_process.is_vouched)
    assert "is a logical copy" in caplog.text
    assert "neither read nor saved" not in caplog.text


def test_a_forgotten_stop_does_not_hang_the_exit(dsn, tmp_path):
    ended = run(FORGOTTEN, tmp_path, dsn)
    assert (ended.returncode, ended.stdout) == (0, "the end\n")
    assert "Traceback" not in ended.stderr


@pytest.mark.thorough
def test_a_script_runs_processes_with_the_handlers_defined_in_it(outbox, dsn, tmp_path):
    names = [f"guest-{number}" for number in range(40)]
    publish(outbox, *names)
    file = tmp_path / "greeted"
    ended = run(SCRIPT, tmp_path, dsn, str(file))
    assert ended.returncode == 0, ended.stderr
    greetings = [line.split() for line in file.read_text().splitlines()]
    assert [name for name, _ in greetings] == names
    assert {pid for _, pid in greetings} != {ended.stdout.strip()}
