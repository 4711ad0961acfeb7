"""The demo's live page, on a free port of this machine."""

from partbox.db.inspect.cached_overview import CachedOverview
from partbox.errors import PartboxError
from partbox.http.address import LOOPBACK, Address
from partbox.http.server import HttpServer, check_installed
from partbox.settings import Settings
from partbox.terminal.roster import Roster


class LivePage:
    """`start` never fails: without a page `address` is None, and `complaint` has the reason in one line."""

    def __init__(self, dsn: str, settings: Settings, roster: Roster) -> None:
        self._dsn = dsn
        self._settings = settings
        self._roster = roster
        self._glance = CachedOverview(settings, lambda: dsn)
        self._server: HttpServer | None = None
        self.address: str | None = None
        self.complaint = ""

    def start(self) -> None:
        """Serve it; its processes have the letters of the terminal."""
        try:
            check_installed()
            self._server, token = self._made()
            self._server.start()
        except PartboxError as error:
            self.complaint = f"no live page: {error}"
        else:
            self.address = f"{self._server.address}/#token={token}"

    def stop(self) -> None:
        """End it, even while somebody watches."""
        if self._server is not None:
            self._server.stop()
        self._glance.close()

    def _made(self) -> tuple[HttpServer, str | None]:
        from starlette.applications import Starlette

        from partbox.dashboard import access, from_roster, routes

        allowed, faces = access(Address(LOOPBACK, 0), None, new=True), from_roster(self._roster)
        made = routes(self._glance, lambda: self._dsn, self._settings, allowed, lambda: faces)
        return HttpServer(Starlette(routes=made), LOOPBACK, 0), allowed.token
