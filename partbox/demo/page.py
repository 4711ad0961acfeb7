"""The demo's live page, on a free port of this machine."""

from typing import TYPE_CHECKING

from partbox.db.glance import Glance
from partbox.errors import PartboxError
from partbox.observe.address import LOOPBACK, Address
from partbox.observe.server import HttpServer, check_installed
from partbox.settings import Settings
from partbox.terminal.roster import Roster

if TYPE_CHECKING:
    from starlette.applications import Starlette


class LivePage:
    """`start` never fails: where there is no page, `complaint` says why in one line and `address` is None."""

    def __init__(self, dsn: str, settings: Settings, roster: Roster) -> None:
        self._dsn = dsn
        self._settings = settings
        self._roster = roster
        self._glance = Glance(settings, lambda: dsn)
        self._server: HttpServer | None = None
        self.address: str | None = None
        self.complaint: str | None = None

    def start(self) -> None:
        """Serve it; its processes are called as on the terminal."""
        try:
            check_installed()
            app, token = self._app()
            self._server = HttpServer(app, LOOPBACK, 0)
            self._server.start()
        except PartboxError as error:
            self.complaint = f"no live page: {error}"
        else:
            self.address = f"{self._server.address}/#token={token}"

    def stop(self) -> None:
        """End it, whoever looks at it."""
        if self._server is not None:
            self._server.stop()
        self._glance.close()

    def _app(self) -> "tuple[Starlette, str | None]":
        from starlette.applications import Starlette

        from partbox.dashboard import access, of_pids, routes

        allowed = access(Address(LOOPBACK, 0), None, new=True)
        faces = of_pids(self._roster)
        made = routes(self._glance, lambda: self._dsn, self._settings, allowed, lambda: faces)
        return Starlette(routes=made), allowed.token
