"""The worker nodes of a chaos run: their start, restart, settings, and end."""

import time
from dataclasses import dataclass, field
from pathlib import Path

from psycopg.conninfo import make_conninfo

from partbox_lab.chaos.application import FOLDER, TARGET
from partbox_lab.chaos.clock import Clock
from partbox_lab.chaos.faults import DRAIN, HEARTBEAT, LEASE
from partbox_lab.chaos.network import HOST, Network, Wire
from partbox_lab.chaos.node import Node
from partbox_lab.workspace import Workspace

ROLE = "node"
RESTART = 1.0  # seconds until a node that ended by itself is started again


@dataclass(slots=True, eq=False)
class Host:
    """A place for one node at a time, with its own proxy and clock. The last of `nodes` is the current node."""

    name: str
    wire: Wire | None = None
    clock: Clock | None = None
    nodes: list[Node] = field(default_factory=list)
    kept: bool = True  # a node that ends by itself is started again
    ended_at: float | None = None  # when the end was first seen, monotonic

    @property
    def node(self) -> Node:
        """The current node."""
        return self.nodes[-1]

    @property
    def up(self) -> bool:
        """True if the current node runs and was not asked to leave."""
        return self.node.runs and not self.node.leaving


@dataclass(frozen=True, slots=True)
class DatabaseRoute:
    """The way from the nodes to the database: through proxies, or directly if `network` is None."""

    network: Network | None
    host: str
    password: str | None
    clocks: bool
    user: str | None = None  # None: the role of the run


class Fleet:
    """All hosts of a run, each with `processes` worker processes of this `concurrency`."""

    def __init__(self, place: Workspace, route: DatabaseRoute, processes: int, concurrency: int) -> None:
        self._place = place
        self._route = route
        self._processes = processes
        self._concurrency = concurrency
        self.hosts: list[Host] = []
        self.restarted = 0

    def join(self) -> Host:
        """Add a host with its proxy and clock, and start its first node."""
        name = f"node-{len(self.hosts) + 1}"
        host = Host(name)
        if self._route.network is not None:
            host.wire = self._route.network.wire()
        if self._route.clocks:
            host.clock = Clock(self._place.folder / f"{name}.clock")
        self.start(host)
        self.hosts.append(host)
        return host

    def start(self, host: Host) -> None:
        """Start a new node on a host."""
        name = f"{host.name}.{len(host.nodes) + 1}"
        surroundings = {FOLDER: str(self._place.folder)} | dict(host.clock.surroundings if host.clock else {})
        arguments = [TARGET, "--processes", str(self._processes)]
        host.nodes.append(Node(name, self._place.folder, arguments, self._settings(host), surroundings))
        host.kept, host.ended_at = True, None

    def tend(self) -> None:
        """Start nodes that have ended again, as a service manager does. One cause is a database away at their start."""
        for host in self.hosts:
            if not host.kept or host.up:
                continue
            if host.ended_at is None:
                host.ended_at = time.monotonic()
            elif time.monotonic() > host.ended_at + RESTART:
                self.restarted += 1
                self.start(host)

    @property
    def network(self) -> Network | None:
        """The proxies of the nodes, or None."""
        return self._route.network

    def up(self) -> list[Host]:
        """Return the hosts whose nodes run and were not asked to leave."""
        return [host for host in self.hosts if host.up]

    def leaving(self, name: str) -> bool:
        """Return True if the node of this name was asked to leave."""
        return any(node.leaving for node in self._nodes() if node.name == name)

    def stop(self, timeout: float) -> list[str]:
        """Ask all nodes to leave, kill each after `timeout` seconds, and return the names of the killed nodes."""
        for host in self.hosts:
            host.kept = False
            for node in host.nodes:
                node.ask_to_leave()
        return [node.name for node in self._nodes() if not node.end(timeout)]

    def kill(self) -> None:
        """Kill all nodes."""
        for node in self._nodes():
            node.end(0)

    def logged(self, words: str) -> int:
        """Return the number of lines in all nodes' logs that contain some words."""
        logs = [node.log_file for node in self._nodes() if node.log_file.exists()]
        return sum(words in line for log in logs for line in log.read_text(errors="replace").splitlines())

    def last_words(self) -> str:
        """Return the last line of the log of each host's current node, joined."""
        return "; ".join(filter(None, (_last_line(host.node.log_file) for host in self.hosts)))

    def _nodes(self) -> list[Node]:
        return [node for host in self.hosts for node in host.nodes]

    def _settings(self, host: Host) -> dict[str, object]:
        return {
            "dsn": self._dsn(host.wire),
            "schema": self._place.schema,
            "concurrency": self._concurrency,
            "lease": LEASE,
            "heartbeat": HEARTBEAT,
            "drain_timeout": DRAIN,
            "retry": "fixed:0.2",
            "max_attempts": "none",
            # Not every event rings: `TwoPhase` publishers must not (see ledger.py).
            "bell": "on",
        }

    def _dsn(self, wire: Wire | None) -> str:
        ours = {"application_name": self._place.named(ROLE)} | ({"user": self._route.user} if self._route.user else {})
        if wire is None:
            return make_conninfo(self._place.dsn, **ours)
        through = {"host": self._route.host, "hostaddr": HOST, "port": str(wire.port)}
        password = {"password": self._route.password} if self._route.password else {}
        return make_conninfo(self._place.dsn, **ours, **through, **password)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return lines[-1] if lines else ""
