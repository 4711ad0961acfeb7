"""Carry out the faults of a chaos run and undo them in time.

Each method of `_ACTS` causes one fault, plans its undoing, and notes a `Disturbance` if the fault explains duplicates.
"""

import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count

import psycopg

from partbox import Outbox
from partbox.embedded.server import Server
from partbox.platform import boottime as now
from partbox_lab import processes
from partbox_lab.chaos import network, statements
from partbox_lab.chaos.backends import Backends
from partbox_lab.chaos.clock import FARTHEST
from partbox_lab.chaos.deferred_undo import DeferredUndo
from partbox_lab.chaos.explained_duplicates import CRASH, Disturbance
from partbox_lab.chaos.failover import Failover
from partbox_lab.chaos.faults import DRAIN, LEASE
from partbox_lab.chaos.fleet import ROLE, Fleet, Host
from partbox_lab.chaos.full_disk import FullDisk
from partbox_lab.chaos.handler_faults import FaultFile, HandlerFault
from partbox_lab.chaos.node import Node
from partbox_lab.chaos.publishers import ROLE as PUBLISHER
from partbox_lab.chaos.publishers import ChaosPublisher, Large, Leaping
from partbox_lab.chaos.rights import FAULTS as RIGHTS
from partbox_lab.chaos.rights import RETRY, Rights
from partbox_lab.chaos.schedule import ScheduledFault
from partbox_lab.chaos.segment_churn import KILLS, SegmentChurn
from partbox_lab.chaos.tamperer import Tamperer
from partbox_lab.chaos.watcher import Watcher
from partbox_lab.workspace import Workspace

HANDLERS = ("partbox_lab.chaos.application.step", "partbox_lab.chaos.application.async_step")
LOOK = 0.1  # seconds
BLINK = 0.5  # seconds until a signal or a cut takes effect
PATIENCE = DRAIN + 20.0  # seconds from the request to leave until a node is killed
REST = 12.0  # seconds without the long transactions that keep segments locked
RESTART = "database restart"
TO_TAKE = 2.0  # seconds in which a handler must take a ticket


class FaultInjector:
    """The means to carry out each kind of fault. `done` and `missed` count faults with and without a target."""

    def __init__(
        self,
        place: Workspace,
        fleet: Fleet,
        watcher: Watcher,
        tell: Callable[[str], None],
        publishers: Sequence[ChaosPublisher] = (),
        disk: FullDisk | None = None,
        churn: SegmentChurn | None = None,
    ) -> None:
        self._place = place
        self._publishers = publishers
        self._disk = disk
        self._churn = churn
        self._fleet = fleet
        self._watcher = watcher
        self._tell = tell
        self._faults = FaultFile(place.folder)
        self._undo = DeferredUndo()
        self._backends = Backends(place)
        self._failover = Failover(place)
        self._numbers = count()
        self.disturbances: list[Disturbance] = []
        self._rights = Rights(place, self._undo, self.disturbances)
        self.done: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()

    def do(self, step: ScheduledFault) -> None:
        """Carry out a scheduled fault, and count it as done, or as missed if it found no target."""
        said = _ACTS[step.fault](self, step)
        (self.missed if said is None else self.done)[step.fault] += 1
        self._tell(f"{step.fault}: {'there is nothing to hit now' if said is None else said}")

    def settle(self) -> None:
        """Undo the faults whose time is over."""
        self._undo.settle()

    def finish(self) -> None:
        """Undo all faults at once, resume all stopped backends, and start a node if none is left."""
        self._undo.finish()
        self._backends.go_on()
        if not any(host.kept for host in self._fleet.hosts):
            self._fleet.join()

    def _hit(self, cause: str, pids: list[int], at: float, until: float, frozen: bool = False) -> None:
        self.disturbances += [Disturbance(cause, at, until, pid, frozen) for pid in pids]

    def _host(self, step: ScheduledFault) -> Host | None:
        up = self._fleet.up()
        return up[int(step.who * len(up))] if up else None

    def _worker(self, step: ScheduledFault) -> tuple[Host, int] | None:
        """Return a random worker process with an instance row. One that is still starting has nothing to lose."""
        members = [(host, pid) for host in self._fleet.up() for pid in self._members(host.node)]
        return members[int(step.who * len(members))] if members else None

    def _members(self, node: Node) -> list[int]:
        return sorted(set(node.workers()) & set(self._watcher.pids(node.name)))

    def _kill_process(self, step: ScheduledFault) -> str | None:
        found = self._worker(step)
        if found is None:
            return None
        host, pid = found
        self._hit(step.fault, [pid], now(), now() + BLINK)
        _send(pid, signal.SIGKILL)
        return f"{host.node.name}, process {pid}"

    def _kill_supervisor(self, step: ScheduledFault) -> str | None:
        host = self._host(step)
        if host is None:
            return None
        self._hit(step.fault, host.node.workers(), now(), now() + LEASE)
        host.kept = False
        _send(host.node.pid, signal.SIGKILL)
        self._undo.after(step.lasts, lambda: self._fleet.start(host))
        return host.node.name

    def _kill_node(self, step: ScheduledFault) -> str | None:
        host = self._host(step)
        if host is None:
            return None
        self._hit(step.fault, host.node.workers(), now(), now() + BLINK)
        host.kept = False
        host.node.signal_all(signal.SIGKILL)
        self._undo.after(step.lasts, lambda: self._fleet.start(host))
        return host.node.name

    def _freeze_process(self, step: ScheduledFault) -> str | None:
        found = self._worker(step)
        if found is None:
            return None
        host, pid = found
        self._freeze(step, host.node, [pid])
        return f"{host.node.name}, process {pid}, for {step.lasts:.1f} s"

    def _freeze_node(self, step: ScheduledFault) -> str | None:
        host = self._host(step)
        if host is None:
            return None
        self._freeze(step, host.node, host.node.family())
        return f"{host.node.name}, for {step.lasts:.1f} s"

    def _freeze(self, step: ScheduledFault, node: Node, pids: list[int]) -> None:
        at = now()
        for pid in pids:
            _send(pid, signal.SIGSTOP)

        def thaw() -> None:
            for pid in set(pids) & set(node.family()):
                _send(pid, signal.SIGCONT)
            self._hit(step.fault, pids, at, now(), frozen=True)

        self._undo.after(step.lasts, thaw)

    def _restart_node(self, step: ScheduledFault) -> str | None:
        host = self._host(step)
        if host is None:
            return None
        self._let_go(host, lambda: self._undo.after(step.lasts, lambda: self._fleet.start(host)))
        return host.node.name

    def _let_go(self, host: Host, then: Callable[[], None]) -> None:
        """Ask a node to leave, and call `then` once its processes have ended or were killed after `PATIENCE`."""
        host.kept, node = False, host.node
        node.ask_to_leave()
        until = time.monotonic() + PATIENCE

        def look() -> None:
            if node.family() and time.monotonic() < until:
                # Reap the supervisor, or its zombie would count as running. `finish` calls this without a pause, hence
                # the sleep.
                node.process.poll()
                time.sleep(0.02)
                self._undo.after(LOOK, look)
                return
            if left := node.family():
                self._hit("did not leave in time", left, now(), now() + BLINK)
                node.end(0)
            then()

        self._undo.after(LOOK, look)

    def _scale(self, step: ScheduledFault) -> str:
        up = self._fleet.up()
        want = 1 + int(step.how * (len(up) + 1))
        if want >= len(up):
            return f"{self._fleet.join().node.name} joins"
        leavers = up[want:]
        for host in leavers:
            self._let_go(host, lambda: None)
        return f"{', '.join(host.node.name for host in leavers)} leave" + ("s" if len(leavers) == 1 else "")

    def _cut(self, step: ScheduledFault) -> str | None:
        return self._backends.cut(step, ROLE if step.fault == "cut-backends" else PUBLISHER)

    def _misbehave(self, step: ScheduledFault) -> str:
        fault = HandlerFault(step.fault, f"{step.fault}-{next(self._numbers)}")
        self._faults.set(fault)
        self._undo.after(step.lasts or TO_TAKE, lambda: self._calm(fault))
        return f"for {step.lasts:.1f} s" if step.lasts else "one handler"

    def _calm(self, fault: HandlerFault) -> None:
        # A later fault may have replaced this one.
        if self._faults.now() == fault:
            self._faults.set(HandlerFault())

    def _restart_server(self, step: ScheduledFault) -> str | None:
        """Stop the embedded server and start it later. All but a fast stop may lose saved cursors, as a crash does."""
        server = self._free_server()
        if server is None:
            return None
        at = now()
        if step.fault == "restart-fast":
            server.stop("fast")
        elif step.fault == "restart-immediate":
            server.stop("immediate")
        else:
            server.kill()
        if step.fault != "restart-fast":
            self._watcher.crashed()

        def start() -> None:
            server.start()
            cause = RESTART if step.fault == "restart-fast" else CRASH
            self.disturbances.append(Disturbance(cause, at, now()))

        self._undo.after(step.lasts, start)
        return f"PostgreSQL is away for {step.lasts:.1f} s"

    def _fail_over(self, step: ScheduledFault) -> str | None:
        """Promote a standby. It has all saved cursors, so this explains no more duplicates than a restart does."""
        server = self._free_server()
        at = None if server is None else self._failover.happen(server)
        if at is None:
            return None
        self.disturbances.append(Disturbance(RESTART, at, now()))
        return "a standby is promoted in the place of PostgreSQL"

    def _free_server(self) -> Server | None:
        """Return the embedded server if it runs, after undoing the faults that would delay its stop."""
        server = self._place.server
        if server is None or not server.is_running:
            return None
        self._backends.go_on()
        self._make_room()
        return server

    def _fill_disk(self, step: ScheduledFault) -> str | None:
        """Fill the disk of the server. The watcher expects a crash at once, as the server may end at any time."""
        server, disk = self._place.server, self._disk
        if disk is None or disk.full or server is None or not server.is_running:
            return None
        self._backends.go_on()
        self._watcher.crashed()
        try:
            disk.begin(step.fault == "wal-full")
        except psycopg.OperationalError:
            return None
        self._undo.after(step.lasts, self._make_room)
        return f"for {step.lasts:.1f} s"

    def _make_room(self) -> None:
        """Make room on the disk if it is full, and note a crash if the server had ended."""
        disk = self._disk
        if disk is None or not disk.full:
            return
        if ended := disk.end():
            self.disturbances.append(Disturbance(CRASH, disk.since, now()))
        self._watcher.crashed(ended)

    def _disturb_wire(self, step: ScheduledFault) -> str | None:
        host = self._host(step)
        if host is None or host.wire is None or self._fleet.network is None:
            return None
        at, wire, node = now(), host.wire, host.node
        self._fleet.network.set(wire, step.fault)

        def mend() -> None:
            if self._fleet.network is not None:
                self._fleet.network.set(wire, network.PASS)
            self._hit(step.fault, node.workers(), at, now())

        # Noted now as well: a process may end before the fault is mended.
        self._hit(step.fault, node.workers(), at, at + step.lasts)
        self._undo.after(step.lasts, mend)
        return f"{node.name}, for {step.lasts:.1f} s"

    def _hang_connection(self, step: ScheduledFault) -> str | None:
        # Explains no duplicate: a node that notices in time only reconnects, and the watcher sees a lost lease.
        host, connections = self._host(step), self._fleet.network
        if host is None or host.wire is None or connections is None:
            return None
        wire = host.wire
        link = connections.stick(wire, step.how)
        if link is None:
            return None
        if int(step.how * 1_000) % 2 == 0:
            return f"one of {host.node.name}, for good"
        self._undo.after(step.lasts, lambda: connections.loosen(wire, link))
        return f"one of {host.node.name}, for {step.lasts:.1f} s"

    def _stop_backend(self, step: ScheduledFault) -> str | None:
        return self._backends.stop(step)

    def _kill_maintenance(self, step: ScheduledFault) -> str | None:
        # Explains no duplicate, since maintenance delivers no event. Publishers with long transactions rest, because a
        # step of maintenance gives way to their locks.
        if self._churn is None:
            return None
        for each in self._publishers:
            if each.lingers:
                each.rest(REST)
        self._churn.kill(step.fault)
        return "the next one"

    def _ask_publishers(self, step: ScheduledFault) -> str | None:
        kind = Large if step.fault == "large-payloads" else Leaping
        asked = [each for each in self._publishers if isinstance(each, kind)]
        for each in asked:
            each.ask(step.lasts or TO_TAKE)
        what = f"for {step.lasts:.1f} s" if step.lasts else "beside a transaction that stays open"
        return what if asked else None

    def _tamper(self, step: ScheduledFault) -> str:
        # Explains no duplicate: a missed notification costs latency only.
        tamperer = Tamperer(self._place, step.fault)
        tamperer.start()
        self._undo.after(step.lasts, tamperer.end)
        return f"for {step.lasts:.1f} s"

    def _limit(self, step: ScheduledFault) -> str | None:
        # Explains no duplicate: throttled events are only late.
        limits = Outbox(self._place.dsn, schema=self._place.schema).limits
        rate, at_once = f"{1 + int(step.how * 300)}/s", 1 + int(step.who * 8)

        # A limit that is left behind would keep the run from draining, so a failed reset is tried again.
        def lift() -> None:
            try:
                for handler in HANDLERS:
                    limits.reset(handler)
            except psycopg.OperationalError:
                self._undo.after(RETRY, lift)

        self._undo.after(step.lasts, lift)
        try:
            for handler in HANDLERS:
                limits.set(handler, rate=rate, at_once=at_once)
        except psycopg.OperationalError:
            return None
        return f"{rate}, {at_once} at once, for {step.lasts:.1f} s"

    def _deny(self, step: ScheduledFault) -> str | None:
        # The watcher sees a process that loses its lease of this, or is killed for its lack of progress.
        return RIGHTS[step.fault](self._rights, step)

    def _jump(self, step: ScheduledFault) -> str | None:
        host = self._host(step)
        if host is None or host.clock is None:
            return None
        clock, offset = host.clock, (2 * step.how - 1) * FARTHEST
        clock.set(offset)
        self._undo.after(step.lasts, lambda: clock.set(0.0))
        return f"{host.node.name} by {offset:+.0f} s, for {step.lasts:.1f} s"


_ACTS: dict[str, Callable[[FaultInjector, ScheduledFault], str | None]] = {
    "kill-process": FaultInjector._kill_process,
    "kill-supervisor": FaultInjector._kill_supervisor,
    "kill-node": FaultInjector._kill_node,
    "freeze-process": FaultInjector._freeze_process,
    "freeze-node": FaultInjector._freeze_node,
    "restart-node": FaultInjector._restart_node,
    "scale": FaultInjector._scale,
    **dict.fromkeys(("cut-backends", "cut-publishers"), FaultInjector._cut),
    **dict.fromkeys(("fail", "hang", "block-gil"), FaultInjector._misbehave),
    **dict.fromkeys(("restart-fast", "restart-immediate", "crash"), FaultInjector._restart_server),
    "promoted-standby": FaultInjector._fail_over,
    **dict.fromkeys(("disk-full", "wal-full"), FaultInjector._fill_disk),
    **dict.fromkeys(KILLS, FaultInjector._kill_maintenance),
    **dict.fromkeys((network.DELAY, network.HANG, network.HALF, network.CUT), FaultInjector._disturb_wire),
    "conn-hang": FaultInjector._hang_connection,
    "backend-stop": FaultInjector._stop_backend,
    **dict.fromkeys(("large-payloads", "id-leap"), FaultInjector._ask_publishers),
    **dict.fromkeys(statements.TAMPERS, FaultInjector._tamper),
    "limit": FaultInjector._limit,
    **dict.fromkeys(RIGHTS, FaultInjector._deny),
    "clock": FaultInjector._jump,
}


def _send(pid: int, number: signal.Signals) -> None:
    processes.signal_all([pid], number)
