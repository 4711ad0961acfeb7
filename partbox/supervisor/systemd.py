"""A service of systemd (`Type=notify`): notifies it of readiness, status and life.

The main thread notifies, and checks the loops of all supervisors first: one that does not turn is as bad as a main
thread that is stopped, and in both cases the watchdog restarts the service. A loop that waits for its database turns,
as a restart would not help it.
"""

import os
import socket
import threading
import time
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from operator import or_

from partbox.observe.health.health import deadly, hindering
from partbox.observe.health.vitals import SupervisorVitals
from partbox.supervisor.supervisor import Supervisor
from partbox.text.wording import counted

MOST = 1_000  # characters of a value
PAUSE = 1.0  # seconds between two lines on how it is
READY, STOPPING = "READY", "STOPPING"
ALIVE = 2  # signs of life within the time that the watchdog allows for one


class NotifySocket:
    """The socket for notices to a service manager: the protocol of sd_notify(3), one datagram a message.

    Our own, because it is a dozen lines, and the libraries for it are either unmaintained or bind libsystemd in C.
    `address` is a path, or "@name" of the abstract namespace; a sign of life is due every `watchdog` seconds.
    """

    def __init__(self, address: str, watchdog: float | None = None) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self.watchdog = watchdog

    def post(self, **said: str) -> bool:
        """True if it was taken. Never waits, and the same can be said again. A value is one line."""
        lines = [f"{name}={' '.join(value.split())[:MOST]}" for name, value in said.items()]
        try:
            self._socket.sendto("\n".join(lines).encode(errors="replace"), self._address)
        except OSError:  # it is full, or its reader is away for a moment
            return False
        return True

    def close(self) -> None:
        self._socket.close()


def taken(environ: MutableMapping[str, str]) -> NotifySocket | None:
    """The socket that this process was given, if any. What names it is removed, so that no process that is started from
    here, nor a handler in one, speaks for the service."""
    address, within, of = (environ.pop(name, "") for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"))
    if not address.startswith(("/", "@")):
        return None
    mine = not of or of == str(os.getpid())
    return NotifySocket(address, int(within) / 1e6 if mine and within.isdecimal() and int(within) else None)


class Service:
    """The state of these supervisors together. One thread looks."""

    def __init__(self, supervisors: Sequence[Supervisor], given: NotifySocket | None) -> None:
        self._supervisors = supervisors
        self._socket = given
        self._once: set[str] = set()  # notices sent that are sent once
        self._status = ""
        self._status_at = 0.0
        self._alive_at = 0.0

    def notify(self) -> None:
        """Send their news and their sign of life, if it is time to. Never waits."""
        if self._socket is not None:
            self._send(self._socket, [(each.database, each.vitals()) for each in self._supervisors], time.monotonic())

    def _send(self, to: NotifySocket, nodes: Sequence[tuple[str, SupervisorVitals]], now: float) -> None:
        said = dict.fromkeys({*states([its for _, its in nodes])} - self._once, "1")
        if (text := status(nodes)) != self._status and (said or now >= self._status_at):
            said["STATUS"] = text
        if to.watchdog is not None and now >= self._alive_at:
            said |= {"WATCHDOG": "1"} if all(lives(its, to.watchdog / ALIVE) for _, its in nodes) else {}
        if not said or not to.post(**said):
            return
        self._once |= said.keys() & {READY, STOPPING}
        if "STATUS" in said:
            self._status, self._status_at = text, now + PAUSE
        if "WATCHDOG" in said:
            self._alive_at = now + (to.watchdog or 0.0) / ALIVE


@contextmanager
def service(supervisors: Sequence[Supervisor]) -> Iterator[Service]:
    """The service that this process is, if its main thread runs them; else the application is it, and speaks itself."""
    given = taken(os.environ) if threading.current_thread() is threading.main_thread() else None
    with nullcontext() if given is None else closing(given):
        yield Service(supervisors, given)


def unneeded(why: str) -> None:
    """Report ready although there is nothing to do: a service that ends before it is ready counts as failed."""
    if (given := taken(os.environ)) is not None:
        with closing(given):
            given.post(READY="1", STATUS=why)


def states(vitals: Sequence[SupervisorVitals]) -> Iterator[str]:
    """The states that they have reached, each to be sent once."""
    if works(vitals):
        yield READY
    if all(its.stopping for its in vitals):
        yield STOPPING


def works(vitals: Sequence[SupervisorVitals]) -> bool:
    """True if a process of each database has a lease; one of several that cannot be worked for is excused."""
    leases = [any(process.ready and process.trusted for process in its.processes) for its in vitals]
    excused = [its.hindrance is not None for its in vitals]
    return any(leases) and not any(its.stopping for its in vitals) and all(map(or_, leases, excused))


def lives(vitals: SupervisorVitals, within: float) -> bool:
    """True if its loop has turned within `within` seconds, and nothing else is wrong that needs a restart."""
    turns = not vitals.started or not vitals.running or vitals.stepped <= within
    return turns and not any(deadly(vitals))


def status(nodes: Sequence[tuple[str, SupervisorVitals]]) -> str:
    """One line on all of them: partitions, processes, and hindrances."""
    said = [(database, _status(its)) for database, its in nodes]
    return "; ".join(f"{database}: {text}" if len(said) > 1 else text for database, text in said)


def _status(vitals: SupervisorVitals) -> str:
    owned = sum(process.partitions for process in vitals.processes)
    has = f"{counted(owned, 'partition')} in {counted(len(vitals.processes), 'process')}"
    return ", ".join((has, *deadly(vitals), *hindering(vitals)))
