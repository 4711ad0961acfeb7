"""A failover of the embedded server: a standby is promoted before its first restartpoint.

Until then a standby has unlogged sequences created since its base backup in its buffers only, and a promotion leaves
them unreadable. So the sequence `life` is restarted while the standby follows.
"""

import shutil
import time
from contextlib import ExitStack
from itertools import count
from typing import Final

import psycopg

from partbox.db.delivery import server_incarnation
from partbox.demo.workspace import DATA
from partbox.embedded.server import Server
from partbox.platform import boottime as now
from partbox_lab.chaos import statements
from partbox_lab.servers import follow
from partbox_lab.workspace import Workspace

PATIENCE: Final = 30.0  # seconds for the standby to catch up
LOOK: Final = 0.05  # seconds


class Failover:
    """Makes a standby for each failover, on the disk of the server."""

    def __init__(self, place: Workspace) -> None:
        self._place = place
        self._numbers = count(1)

    def happen(self, server: Server) -> float | None:
        """Promote a standby that has all WAL of the server. Return when the server was stopped, or None if no standby
        followed."""
        standby = Server(self._place.folder / DATA / f"standby-{next(self._numbers)}", options=server.options)
        with ExitStack() as undo:
            undo.callback(shutil.rmtree, standby.data_folder, ignore_errors=True)
            undo.callback(standby.stop, "immediate")
            if not self._follows(standby, server):
                return None
            at = now()
            # A fast stop sends all WAL to the standby first, also WAL that nobody had acknowledged.
            server.stop("fast")
            with psycopg.connect(standby.dsn, autocommit=True) as conn:
                statements.promote(conn, self._place.schema)
            self._place.move(standby)
            undo.pop_all()
        shutil.rmtree(server.data_folder / "pgdata")
        return at

    def _follows(self, standby: Server, server: Server) -> bool:
        """Start the standby, restart `life`, and return True once the standby has replayed that."""
        try:
            follow(standby, server)
            with self._place.connect("chaos") as conn:
                # `life` is still unreadable if no node has come back since the last failover.
                server_incarnation.read_incarnation(conn, self._place.schema)
                statements.change_rights(conn, self._place.schema, "renew", "life", "")
                written = statements.written(conn, self._place.schema)
                until = time.monotonic() + PATIENCE
                while not (followed := statements.replayed(conn, self._place.schema, written)):
                    if time.monotonic() > until:
                        break
                    time.sleep(LOOK)
        except psycopg.OperationalError:
            return False
        return followed
