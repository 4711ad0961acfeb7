"""What a service manager is told of supervisors, by what they say of themselves."""

import os
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from waiting import eventually

from partbox.supervisor.foreground import run_supervisors
from partbox.supervisor.systemd import (
    NotifySocket,
    SystemdService,
    format_status_line,
    is_alive,
    list_reached_states,
    run_as_service,
    take_socket,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "observe"))

from overviews import process, vitals


class Told:
    """A socket that keeps what it is told, unless it is full."""

    watchdog_seconds = 10.0

    def __init__(self) -> None:
        self.said: list[dict[str, str]] = []
        self.full = False

    def send(self, **said: str) -> bool:
        self.said += [] if self.full else [said]
        return not self.full


def looked(told: Told, *nodes) -> SystemdService:
    """A service that has looked at them once."""
    made = SystemdService(
        [SimpleNamespace(database=f"db{n}", read_vitals=lambda its=its: its) for n, its in enumerate(nodes)], told
    )
    made.notify()
    return made


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([vitals(process(is_trusted=False))], []),
        ([vitals(process(is_ready=False))], []),
        ([vitals(process(is_ready=False), process())], ["READY"]),
        ([vitals(), vitals(process(is_trusted=False))], []),
        ([vitals(), vitals(process(is_trusted=False), hindrance="cannot connect")], ["READY"]),
        ([vitals(process(is_trusted=False), hindrance="cannot connect")], []),
        ([vitals(), vitals(is_stopping=True)], []),
        ([vitals(is_stopping=True), vitals(is_stopping=True)], ["STOPPING"]),
    ],
    ids=[
        "no lease",
        "no process",
        "one of two processes",
        "one of two databases has not begun",
        "one of two databases is away",
        "the only one is away",
        "one of two stops",
        "all stop",
    ],
)
def test_a_service_is_ready_when_every_node_that_can_work_does(nodes, said):
    assert [*list_reached_states(nodes)] == said


@pytest.mark.parametrize(
    ("its", "alive"),
    [
        (vitals(), True),
        (vitals(loop_age=6.0), False),
        (vitals(has_started=False, loop_age=1_000.0), True),
        (vitals(is_running=False, loop_age=1_000.0, is_stopping=True), True),
        (vitals(is_running=False), False),
        (vitals(process(silent_seconds=25.0, is_vouched=False)), False),
        (vitals(heartbeat_age=1_000.0), True),
        (vitals(hindrance="cannot connect to the database"), True),
    ],
    ids=["works", "loop hangs", "starts", "has stopped", "has died", "all silent", "database away", "another is away"],
)
def test_a_service_counts_as_alive_unless_a_restart_would_help(its, alive):
    assert is_alive(its, within=5.0) is alive


def test_one_hanging_loop_withholds_the_sign_of_life_of_the_service():
    looked(told := Told(), vitals(), vitals())
    assert told.said[0]["WATCHDOG"] == "1"
    looked(told := Told(), vitals(), vitals(loop_age=6.0))
    assert "WATCHDOG" not in told.said[0]


def test_the_status_names_the_partitions_of_each_database_and_any_hindrance():
    assert (
        format_status_line([("", vitals(process(partitions=100), process(partitions=28)))])
        == "128 partitions in 2 processes"
    )
    said = format_status_line([("a", vitals(process(partitions=256))), ("b", vitals(hindrance="cannot connect"))])
    assert said == "a: 256 partitions in 1 process; b: 0 partitions in 1 process, cannot connect"


def test_a_notification_that_systemd_did_not_take_is_sent_again():
    told = Told()
    told.full = True
    made = looked(told, vitals())
    assert told.said == []
    told.full = False
    made.notify()
    made.notify()
    assert [sorted(each) for each in told.said] == [["READY", "STATUS", "WATCHDOG"]]


def test_the_notify_socket_is_read_from_the_environment_and_removed_there(tmp_path):
    surroundings = {
        "NOTIFY_SOCKET": "@name",
        "WATCHDOG_USEC": "30000000",
        "WATCHDOG_PID": str(os.getpid()),
        "HOME": "/",
    }
    found = take_socket(surroundings)
    assert (found.watchdog_seconds, surroundings) == (30.0, {"HOME": "/"})
    found.close()


@pytest.mark.parametrize(
    ("surroundings", "watchdog"),
    [
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_a_watchdog_setting_for_another_process_is_ignored(surroundings, watchdog):
    found = take_socket({"NOTIFY_SOCKET": "/run/notify", **surroundings})
    assert found.watchdog_seconds == watchdog
    found.close()


@pytest.mark.parametrize("address", ["", "vsock:2:1234", "relative"])
def test_an_address_that_is_no_unix_socket_is_ignored(address):
    assert take_socket({"NOTIFY_SOCKET": address}) is None


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_a_notification_is_one_datagram_with_one_line_for_each_value(tmp_path, kind):
    address = str(tmp_path / "notify") if kind == "path" else f"@partbox-{os.getpid()}-{tmp_path.name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as reader:
        reader.bind(f"\0{address[1:]}" if kind == "abstract" else address)
        ours = NotifySocket(address)
        assert ours.send(READY="1", STATUS="two\nlines\x00 \udc80")
        assert reader.recv(1_000) == b"READY=1\nSTATUS=two lines\x00 ?"
        while ours.send(WATCHDOG="1"):  # until it is full, without waiting
            pass
        ours.close()


def test_a_notification_without_a_reader_is_no_error(tmp_path):
    ours = NotifySocket(str(tmp_path / "nobody"))
    assert not ours.send(READY="1")
    ours.close()


def test_partbox_does_not_notify_systemd_for_an_application_that_runs_nodes_in_its_own_thread(monkeypatch):
    import threading

    monkeypatch.setenv("NOTIFY_SOCKET", "/run/notify")
    seen = []

    def look() -> None:
        with run_as_service([]) as made:
            seen.append(made._socket)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert (seen, os.environ["NOTIFY_SOCKET"]) == ([None], "/run/notify")
    assert run_supervisors([]) == 0
    eventually(lambda: "NOTIFY_SOCKET" not in os.environ)
