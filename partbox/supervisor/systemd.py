"""The notifications of a systemd service (`Type=notify`): readiness, status, and signs of life. The main thread sends
them, after a check of the loops of all supervisors."""

import os
import socket
import threading
import time
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from operator import or_

from partbox.observe.health.health import list_fatal_problems, list_temporary_problems
from partbox.observe.health.vitals import SupervisorVitals
from partbox.supervisor.supervisor import Supervisor
from partbox.text.wording import format_count

MAX_VALUE_LENGTH = 1_000  # characters of a value
STATUS_INTERVAL = 1.0  # seconds between two status lines
READY, STOPPING = "READY", "STOPPING"
SIGNS_PER_TIMEOUT = 2  # signs of life within the watchdog's timeout


class NotifySocket:
    """A client that sends messages to systemd by the sd_notify(3) protocol, without a library.

    Each message is one datagram. `address` is a path, or "@name" of the abstract namespace. A sign of life is due every
    `watchdog_seconds` seconds."""

    def __init__(self, address: str, watchdog: float | None = None) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self.watchdog_seconds = watchdog

    def send(self, **values: str) -> bool:
        """Send values, such as READY or STATUS, to systemd without waiting. Return False if they must be sent again."""
        # Each value has one line.
        lines = [f"{name}={' '.join(value.split())[:MAX_VALUE_LENGTH]}" for name, value in values.items()]
        try:
            self._socket.sendto("\n".join(lines).encode(errors="replace"), self._address)
        # The socket is full, or its reader is away for a moment.
        except OSError:
            return False
        return True

    def close(self) -> None:
        self._socket.close()


def take_socket(environ: MutableMapping[str, str]) -> NotifySocket | None:
    """Return the socket for notifying systemd that the environment names, or None, and remove its variables."""
    # Without them, no child process, and no handler in one, notifies for the service.
    address, within, of = (environ.pop(name, "") for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"))
    if not address.startswith(("/", "@")):
        return None
    mine = not of or of == str(os.getpid())
    return NotifySocket(address, int(within) / 1e6 if mine and within.isdecimal() and int(within) else None)


class SystemdService:
    """The sender of systemd notifications about the readiness, status and health of a group of supervisors.

    Only one thread uses it."""

    def __init__(self, supervisors: Sequence[Supervisor], given: NotifySocket | None) -> None:
        self._supervisors = supervisors
        self._socket = given
        # States that were sent, and are sent only once.
        self._sent_states: set[str] = set()
        self._sent_status = ""
        self._next_status_at = 0.0
        self._next_sign_at = 0.0

    def notify(self) -> None:
        """Send systemd the service's state, its status line and the watchdog's keep-alive message, each if due."""
        # This never waits.
        # The states are sent when they are newly reached.
        if self._socket is not None:
            self._send(
                self._socket, [(each.database, each.read_vitals()) for each in self._supervisors], time.monotonic()
            )

    def _send(self, to: NotifySocket, nodes: Sequence[tuple[str, SupervisorVitals]], now: float) -> None:
        values = dict.fromkeys({*list_reached_states([node for _, node in nodes])} - self._sent_states, "1")
        if (text := format_status_line(nodes)) != self._sent_status and (values or now >= self._next_status_at):
            values["STATUS"] = text
        if to.watchdog_seconds is not None and now >= self._next_sign_at:
            values |= (
                {"WATCHDOG": "1"}
                if all(is_alive(node, to.watchdog_seconds / SIGNS_PER_TIMEOUT) for _, node in nodes)
                else {}
            )
        if not values or not to.send(**values):
            return
        self._sent_states |= values.keys() & {READY, STOPPING}
        if "STATUS" in values:
            self._sent_status, self._next_status_at = text, now + STATUS_INTERVAL
        if "WATCHDOG" in values:
            self._next_sign_at = now + (to.watchdog_seconds or 0.0) / SIGNS_PER_TIMEOUT


@contextmanager
def run_as_service(supervisors: Sequence[Supervisor]) -> Iterator[SystemdService]:
    """Yield an object that sends systemd the state of the supervisors, if this process runs as a service."""
    # It sends nothing unless the main thread of this process runs the supervisors.
    given = take_socket(os.environ) if threading.current_thread() is threading.main_thread() else None
    with nullcontext() if given is None else closing(given):
        yield SystemdService(supervisors, given)


def report_unneeded(why: str) -> None:
    """Tell systemd that the service is ready although it has nothing to do, with `why` as its status."""
    # A service that ends before it is ready counts as failed.
    if (given := take_socket(os.environ)) is not None:
        with closing(given):
            given.send(READY="1", STATUS=why)


def list_reached_states(vitals: Sequence[SupervisorVitals]) -> Iterator[str]:
    """Yield the systemd states READY and STOPPING, each if all supervisors have reached it."""
    # Each is sent once.
    if are_all_delivering(vitals):
        yield READY
    if all(node.is_stopping for node in vitals):
        yield STOPPING


def are_all_delivering(vitals: Sequence[SupervisorVitals]) -> bool:
    """Return True if each database has a worker process that is ready to deliver and holds a lease."""
    # Unusable databases are excused, but not all of them.
    leases = [any(process.is_ready and process.is_trusted for process in node.processes) for node in vitals]
    excused = [node.hindrance is not None for node in vitals]
    return any(leases) and not any(node.is_stopping for node in vitals) and all(map(or_, leases, excused))


def is_alive(vitals: SupervisorVitals, within: float) -> bool:
    """Return True if the supervisor's loop ran within the last `within` seconds and no fatal problem is known."""
    # The supervisor needs no restart then. A loop that has not started or has ended is not measured.
    # A loop without steps is as bad as a main thread that hangs, and in both cases the watchdog restarts the service. A
    # loop that waits for its database counts as alive, because a restart would not help.
    turns = not vitals.has_started or not vitals.is_running or vitals.loop_age <= within
    return turns and not any(list_fatal_problems(vitals))


def format_status_line(nodes: Sequence[tuple[str, SupervisorVitals]]) -> str:
    """Return one line about the partitions, processes and problems of all supervisors, for systemd's status display."""
    values = [(database, _format_status(node)) for database, node in nodes]
    return "; ".join(f"{database}: {text}" if len(values) > 1 else text for database, text in values)


def _format_status(vitals: SupervisorVitals) -> str:
    owned = sum(process.partitions for process in vitals.processes)
    has = f"{format_count(owned, 'partition')} in {format_count(len(vitals.processes), 'process')}"
    return ", ".join((has, *list_fatal_problems(vitals), *list_temporary_problems(vitals)))
