"""The nodes of a run: those that work, those that are down for a while, and those that were."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from psycopg.conninfo import make_conninfo

from partbox.chaos.clock import Clock
from partbox.chaos.faults import DRAIN, HEARTBEAT, LEASE
from partbox.chaos.network import HOST, Network, Wire
from partbox.chaos.node import Node
from partbox.db.workspace import Workspace

ROLE = "node"
RESTART = 1.0  # seconds


@dataclass(slots=True, eq=False)
class Slot:
    """A host: nodes run on it one after the other, over the same wire, by the same clock.

    `kept`: a node that ends by itself is started again, as a service manager does.
    """

    name: str
    wire: Wire | None = None
    clock: Clock | None = None
    nodes: list[Node] = field(default_factory=list)
    kept: bool = True
    ended_at: float | None = None

    @property
    def node(self) -> Node:
        return self.nodes[-1]

    @property
    def up(self) -> bool:
        """Whether its node works, as far as anybody asked it to."""
        return self.node.runs and not self.node.leaving


@dataclass(frozen=True, slots=True)
class Route:
    """How nodes reach the database: over a network of ours, or without one (None)."""

    network: Network | None
    host: str
    password: str | None
    clocks: bool


class Fleet:
    """Starts nodes and keeps track of them; `processes` and `concurrency` are those of a node."""

    def __init__(self, place: Workspace, route: Route, processes: int, concurrency: int) -> None:
        self._place = place
        self._route = route
        self._processes = processes
        self._concurrency = concurrency
        self.slots: list[Slot] = []
        self.restarted = 0

    def join(self) -> Slot:
        """A new host, with a node on it."""
        name = f"node-{len(self.slots) + 1}"
        slot = Slot(name)
        if self._route.network is not None:
            slot.wire = self._route.network.wire()
        if self._route.clocks:
            slot.clock = Clock(self._place.folder / f"{name}.clock")
        self.start(slot)
        self.slots.append(slot)
        return slot

    def start(self, slot: Slot) -> None:
        """The next node of this host."""
        name = f"{slot.name}.{len(slot.nodes) + 1}"
        surroundings: Mapping[str, str] = slot.clock.surroundings if slot.clock is not None else {}
        slot.nodes.append(Node(name, self._place.folder, self._processes, self._settings(slot), surroundings))
        slot.kept, slot.ended_at = True, None

    def tend(self) -> None:
        """Start again what has ended by itself a moment ago: a node whose database is away when it starts does."""
        for slot in self.slots:
            if not slot.kept or slot.up:
                continue
            if slot.ended_at is None:
                slot.ended_at = time.monotonic()
            elif time.monotonic() > slot.ended_at + RESTART:
                self.restarted += 1
                self.start(slot)

    @property
    def network(self) -> Network | None:
        return self._route.network

    def up(self) -> list[Slot]:
        return [slot for slot in self.slots if slot.up]

    def leaving(self, name: str) -> bool:
        """Whether the node of that name was asked to leave."""
        return any(node.leaving for node in self._nodes() if node.name == name)

    def stop(self, timeout: float) -> list[str]:
        """Ask all to leave and wait; the names of those that did not in time, and were killed."""
        for slot in self.slots:
            slot.kept = False
            for node in slot.nodes:
                node.ask_to_leave()
        return [node.name for node in self._nodes() if not node.end(timeout)]

    def kill(self) -> None:
        """End everything at once."""
        for node in self._nodes():
            node.end(0)

    def last_words(self) -> str:
        """The last line that each of the newest nodes has logged."""
        logs = [self._place.folder / f"{slot.node.name}.log" for slot in self.slots]
        return "; ".join(filter(None, map(_last_line, logs)))

    def _nodes(self) -> list[Node]:
        return [node for slot in self.slots for node in slot.nodes]

    def _settings(self, slot: Slot) -> dict[str, object]:
        return {
            "dsn": self._dsn(slot.wire),
            "schema": self._place.schema,
            "concurrency": self._concurrency,
            "lease": LEASE,
            "heartbeat": HEARTBEAT,
            "drain_timeout": DRAIN,
            "retry": "fixed:0.2",
            "max_attempts": "none",
        }

    def _dsn(self, wire: Wire | None) -> str:
        ours = {"application_name": self._place.named(ROLE)}
        if wire is None:
            return make_conninfo(self._place.dsn, **ours)
        through = {"host": self._route.host, "hostaddr": HOST, "port": str(wire.port)}
        password = {"password": self._route.password} if self._route.password else {}
        return make_conninfo(self._place.dsn, **ours, **through, **password)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return lines[-1] if lines else ""
