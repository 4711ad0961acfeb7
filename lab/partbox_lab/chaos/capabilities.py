"""Find out which faults are possible here, and set up the proxies, clocks, disks, and roles that they need."""

from collections.abc import Mapping, Sequence
from typing import Final

import psycopg
from psycopg.conninfo import make_conninfo

from partbox_lab.chaos import clock, statements
from partbox_lab.chaos.faults import FAULTS, possible
from partbox_lab.chaos.fleet import DatabaseRoute
from partbox_lab.chaos.full_disk import OwnDisk
from partbox_lab.chaos.network import HOST, Network
from partbox_lab.workspace import Workspace

TWO_PHASE: Final = "two-phase"


class Capabilities:
    """The wanted faults that are possible here, the reasons for the others in `skipped`, and the means for faults."""

    def __init__(self, place: Workspace, wanted: Sequence[str], disk: OwnDisk) -> None:
        self._place = place
        self.disk = disk.disk
        self.network: Network | None = None
        self._user: str | None = None
        lacking = self._lacking({FAULTS[name].needs for name in wanted})
        if disk.lacking is not None:
            lacking["disk"] = disk.lacking
        self.faults, self.skipped = possible(wanted, lacking)
        self.two_phase = TWO_PHASE not in lacking
        if not self.two_phase:
            self.skipped[TWO_PHASE] = lacking[TWO_PHASE]

    @property
    def route(self) -> DatabaseRoute:
        """The way from the nodes to the database."""
        return DatabaseRoute(self.network, self._outer_host, self._password or None, self._clocks, self._user)

    def close(self) -> None:
        """Stop the proxies and make room on the disk."""
        if self.network is not None:
            self.network.stop()
        if self.disk is not None:
            self.disk.make_room()

    def _lacking(self, needs: set[str | None]) -> dict[str, str]:
        lacking = {}
        if self._place.server is None:
            lacking["--embedded"] = "the server is not ours to stop: use --embedded"
        with self._place.connect("chaos") as conn:
            two_phase = statements.allows_two_phase(conn, self._place.schema)
            self._host, self._port, self._password = conn.info.host, conn.info.port, conn.info.password
        if not two_phase:
            lacking[TWO_PHASE] = "two-phase commit is off: the server has max_prepared_transactions = 0"
        for need, prepare in (("queue", self._shrink_queue), ("role", self._make_role)):
            if need in needs and (reason := prepare()):
                lacking[need] = reason
        if "proxy" in needs and (reason := self._open_network()):
            lacking["proxy"] = reason
        if "libfaketime" in needs and (reason := clock.lacking(self._place.folder)):
            lacking["libfaketime"] = reason
        self._clocks = "libfaketime" in needs and "libfaketime" not in lacking
        return lacking

    def _make_role(self) -> str | None:
        """Create the role that nodes connect as, which owns nothing. Return None, or the reason why not."""
        if self._place.server is None:
            return "roles are made on a server of our own alone: use --embedded"
        with self._place.connect("chaos") as conn:
            statements.make_role(self._place.dsn, conn, self._place.schema)
        self._user = statements.NODES
        return None

    def _shrink_queue(self) -> str | None:
        """Make the notification queue so small that a fault can fill it, and return None or the reason why not."""
        server = self._place.server
        if server is None:
            return "the server is not ours to change: use --embedded"
        with self._place.connect("chaos") as conn:
            if conn.info.server_version < statements.QUEUED:
                return "the queue of notifications cannot be made small before PostgreSQL 17"
            statements.small_queue(conn, self._place.schema)
        server.stop("fast")
        server.start()
        return None

    def _open_network(self) -> str | None:
        network = Network(self._host, self._port)
        network.start()
        try:
            through = {"host": self._outer_host, "hostaddr": HOST, "port": str(network.wire().port), **self._secret}
            psycopg.connect(make_conninfo(self._place.dsn, **through)).close()
        except psycopg.OperationalError as error:
            network.stop()
            return f"the database cannot be reached through a proxy: {str(error).splitlines()[0]}"
        self.network = network
        return None

    @property
    def _outer_host(self) -> str:
        """The host name for the nodes, against which certificates are checked. A socket has none."""
        return HOST if self._host.startswith("/") else self._host

    @property
    def _secret(self) -> Mapping[str, str]:
        """The password that libpq found by the server's address, which differs from the proxy's."""
        return {"password": self._password} if self._password else {}
