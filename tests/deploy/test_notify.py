"""`partbox worker` and `partbox relay` as services of systemd, whose socket is real: what they say to it, and when."""

import json
import os
import signal

import psycopg
import pytest
from waiting import eventually

from partbox import Outbox
from partbox.embedded import processes

SHOP = """
import json, os
from multiprocess import parent_process
from pathlib import Path
from time import sleep
from partbox import Outbox

outbox = Outbox()
while parent_process() is not None and not Path("open").exists():
    sleep(0.01)


@outbox.on("OrderPlaced")
def note(event):
    told = {name: os.environ.get(name) for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")}
    Path("handled").write_text(json.dumps(told))
"""
WORKER = ("worker", "shop:outbox", "--processes", "1")


@pytest.fixture
def service(tmp_path, forks, manager, dsn):
    """Starts a command as a service; it is ended afterwards."""
    (tmp_path / "shop.py").write_text(SHOP)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PARTBOX_")}
    started = []

    def start(*command: str, spare: int | None = None, **more: str):
        env = kept | {"PARTBOX_DSN": dsn, "NOTIFY_SOCKET": manager.address} | more
        started.append(forks.start_into(tmp_path / "log", "partbox", *command, cwd=tmp_path, env=env, spare=spare))
        return started[-1]

    yield start
    for process in started:
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGTERM)
        process.wait()


def test_a_worker_is_ready_when_it_has_a_lease_and_says_when_it_stops(tmp_path, service, manager, dsn):
    process = service(*WORKER, WATCHDOG_USEC="600000", spare=0)  # a spare process has its variables from before
    manager.status("no process is ready yet")
    manager.hear("WATCHDOG", "1")  # the process lives, and its only worker is not there yet
    assert not any("READY" in said for said in manager.heard)
    (tmp_path / "open").touch()
    manager.hear("READY", "1")
    with psycopg.connect(dsn) as conn:
        assert conn.execute("select count(*) from partbox.instance").fetchone() == (1,)
    manager.status("256 partitions in 1 process")

    with psycopg.connect(dsn) as conn:
        Outbox(dsn).publish(conn, "OrderPlaced", 1)
    eventually(lambda: (tmp_path / "handled").exists() and (tmp_path / "handled").read_text())
    told = json.loads((tmp_path / "handled").read_text())
    assert told == {"NOTIFY_SOCKET": None, "WATCHDOG_USEC": None, "WATCHDOG_PID": None}

    process.send_signal(signal.SIGTERM)
    assert "the node is stopping" in manager.hear("STOPPING", "1")["STATUS"]
    assert process.wait() == 0
    manager.nothing_left()
    assert [name for said in manager.heard for name in said if name in ("READY", "STOPPING")] == ["READY", "STOPPING"]


def test_a_suspended_supervisor_gives_no_sign_of_life_until_it_goes_on(tmp_path, service, manager):
    (tmp_path / "open").touch()
    process = service(*WORKER, WATCHDOG_USEC="600000")
    manager.hear("READY", "1")
    manager.hear("WATCHDOG", "1")
    process.send_signal(signal.SIGSTOP)
    eventually(lambda: processes.is_stopped(process.pid))
    manager.nothing_left()
    assert manager.next(1.2) is None, "two times what the watchdog allows"
    process.send_signal(signal.SIGCONT)
    manager.hear("WATCHDOG", "1")


def test_a_relay_is_a_service_too(tmp_path, service, manager):
    service("relay", "--to", f"file:{tmp_path}/events", "--processes", "1")
    manager.hear("READY", "1")
    assert not any("WATCHDOG" in said for said in manager.heard), "nobody has asked for it"


def test_a_worker_that_is_disabled_has_not_failed(service, manager):
    process = service(*WORKER, PARTBOX_ENABLED="false")
    assert "enabled is false" in manager.hear("READY", "1")["STATUS"]
    assert process.wait() == 0
