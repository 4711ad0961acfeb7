"""The interface of every peer, and the events that all of them publish."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import psycopg
from psycopg.pq import Conninfo

from partbox_lab.peers.install import Folder

# The order that is kept: none, by key, or over a whole queue.
Order = Literal["none", "key", "queue"]

SIZE = 200  # bytes of a payload as JSON
KEYS = 5_000
_BARE = len(json.dumps({"number": 10**9, "note": ""}))


@dataclass(frozen=True, slots=True)
class Sample:
    """An event to publish. The note of its payload is padded, so that all payloads have the same size."""

    number: int

    @property
    def key(self) -> str:
        """The key of the event, one of 5,000."""
        return f"order-{self.number % KEYS}"

    @property
    def payload(self) -> dict[str, Any]:
        """The payload with the number of the event."""
        return {"number": self.number, "note": "x" * (SIZE - _BARE + 10 - len(str(self.number)))}

    @property
    def text(self) -> str:
        """The payload as JSON."""
        return json.dumps(self.payload)


@dataclass(frozen=True, slots=True)
class PeerRun:
    """A run of a peer in a database of its own."""

    order: Order
    processes: int
    watched: bool = False  # workers report each event with its time, not only counts


class Peer(ABC):
    """An outbox or a queue under measurement."""

    name: ClassVar[str]
    # The share of `--events` to drain, by order, so that a run takes seconds with a slow peer too.
    orders: ClassVar[Mapping[Order, float]]
    settings: ClassVar[str]  # in one line, where they differ from the defaults

    @abstractmethod
    def install(self, folder: Folder) -> str:
        """Install the peer and return the installed versions."""

    @abstractmethod
    def prepare(self, database: "Database", run: PeerRun) -> None:
        """Create the peer's schema in an empty database."""

    @abstractmethod
    def publish(self, conn: psycopg.Connection[Any], samples: Sequence[Sample], run: PeerRun) -> None:
        """Publish in the transaction of `conn`."""

    @abstractmethod
    def commands(self, run: PeerRun) -> list[list[str]]:
        """Return the command of each process to start. A peer with a supervisor has one command for all processes."""

    @abstractmethod
    def is_done(self, conn: psycopg.Connection[Any], run: PeerRun) -> bool:
        """Return True if the database shows that everything published is consumed. `conn` is in autocommit mode."""

    def environment(self) -> dict[str, str]:
        """Return environment variables for the commands, in addition to those that name the database."""
        return {}


@dataclass(frozen=True, slots=True)
class Database:
    """The database of one run. `conn` is in autocommit mode and not measured."""

    dsn: str
    conn: psycopg.Connection[Any]

    @property
    def environment(self) -> dict[str, str]:
        """The variables of libpq, which every client library reads."""
        parts = Conninfo.parse(self.dsn.encode())
        return {each.envvar.decode(): each.val.decode() for each in parts if each.envvar and each.val}
