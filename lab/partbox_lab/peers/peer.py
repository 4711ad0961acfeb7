"""The protocol that every peer is behind, and the events that all of them publish."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import psycopg
from psycopg.pq import Conninfo

from partbox_lab.peers.install import Folder

Order = Literal["none", "key", "queue"]
"""The order that is kept: none, that of the events of a key, or that of all events of a queue."""

SIZE = 200
"""Bytes of a payload, as JSON."""
KEYS = 5_000
_BARE = len(json.dumps({"number": 10**9, "note": ""}))


@dataclass(frozen=True, slots=True)
class Sample:
    """An event to publish; what its number lacks in digits the note has in letters."""

    number: int

    @property
    def key(self) -> str:
        return f"order-{self.number % KEYS}"

    @property
    def payload(self) -> dict[str, Any]:
        return {"number": self.number, "note": "x" * (SIZE - _BARE + 10 - len(str(self.number)))}

    @property
    def text(self) -> str:
        return json.dumps(self.payload)


@dataclass(frozen=True, slots=True)
class PeerRun:
    """One run of one peer in a database of its own."""

    order: Order
    processes: int
    watched: bool = False
    """True if the workers report each event with its time, for latency; else they only count."""


class Peer(ABC):
    """An outbox or a queue that is measured."""

    name: ClassVar[str]
    orders: ClassVar[Mapping[Order, float]]
    """By order the part of `--events` that is drained, so that a run of a slow peer takes seconds too."""
    settings: ClassVar[str]
    """The settings that differ from the defaults, in one line."""

    @abstractmethod
    def install(self, folder: Folder) -> str:
        """Install what it needs; the versions that came."""

    @abstractmethod
    def prepare(self, database: "Database", run: PeerRun) -> None:
        """Make its schema in an empty database."""

    @abstractmethod
    def publish(self, conn: psycopg.Connection[Any], samples: Sequence[Sample], run: PeerRun) -> None:
        """Publish in the transaction of `conn`."""

    @abstractmethod
    def commands(self, run: PeerRun) -> list[list[str]]:
        """The command of each process to start; a peer with a supervisor has one for all processes."""

    @abstractmethod
    def is_done(self, conn: psycopg.Connection[Any], run: PeerRun) -> bool:
        """True if the database says that everything published is consumed; `conn` is in autocommit."""

    def environment(self) -> dict[str, str]:
        """Environment variables of its commands, beside those that name the database."""
        return {}


@dataclass(frozen=True, slots=True)
class Database:
    """A database of one run."""

    dsn: str
    conn: psycopg.Connection[Any]
    """In autocommit; not measured."""

    @property
    def environment(self) -> dict[str, str]:
        """libpq's variables, which every client library reads."""
        parts = Conninfo.parse(self.dsn.encode())
        return {each.envvar.decode(): each.val.decode() for each in parts if each.envvar and each.val}
