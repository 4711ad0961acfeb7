"""The consuming programs, and base classes of peers whose program also creates their schema."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import psycopg

from partbox_lab.peers.install import Folder, node_versions
from partbox_lab.peers.peer import Database, Peer, PeerRun
from partbox_lab.peers.processes import prepare
from partbox_lab.sql import query

_FOLDER = Path(__file__).parents[1] / "workers"


def program(name: str) -> str:
    """Return the path of a worker's program."""
    return str(_FOLDER / name)


class ProgramPeer(Peer):
    """A peer whose program creates its schema, and consumes in each process."""

    command: list[str]  # set by `install`
    waiting: ClassVar[str]  # the query that has a row while work is left

    def prepare(self, database: Database, run: PeerRun) -> None:
        prepare(self.command, database, self, run)

    def commands(self, run: PeerRun) -> list[list[str]]:
        return [self.command for _ in range(run.processes)]

    def is_done(self, conn: psycopg.Connection[Any], run: PeerRun) -> bool:
        return conn.execute(query(self.waiting, "")).fetchone() is None


class NodePeer(ProgramPeer):
    """A peer in Node. `name` is that of its package, the first of `pins`."""

    program: ClassVar[str]
    pins: ClassVar[Mapping[str, str]]

    def install(self, folder: Folder) -> str:
        self.command = ["node", program(self.program)]
        self._home: Path = folder.node(self.name, self.pins)
        return node_versions(self._home, *self.pins)

    def environment(self) -> dict[str, str]:
        return {"PEER_MODULES": str(self._home)}
