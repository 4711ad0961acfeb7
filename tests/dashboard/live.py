"""The live page as it is served, in the process of a test; and requests to it as programs send them."""

import http.client
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from starlette.applications import Starlette

from partbox.dashboard import build_access, build_routes
from partbox.db.inspect.cached_overview import CACHE_SECONDS, CachedOverview
from partbox.http.address import Address
from partbox.http.server import HttpServer
from partbox.settings import load

TOKEN = "a-token-of-this-test"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def plain(self) -> Any:
        return json.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.body.splitlines()]


class Served:
    """An ASGI application with the page in it, served by this process."""

    def __init__(self, app: Any) -> None:
        self.server = HttpServer(app)
        self.server.start()

    @property
    def address(self) -> str:
        return f"{self.server.url}/"

    def close(self) -> None:
        self.server.stop()

    def get(self, path: str, headers: dict[str, str] | None = None, **query: Any) -> Answer:
        return self.ask("GET", f"{path}?{urlencode(query)}" if query else path, headers or {})

    def post(self, path: str, headers: dict[str, str] | None = None, token: str | None = TOKEN, **body: Any) -> Answer:
        usual = {"content-type": "application/json"}
        if token is not None:
            usual["authorization"] = f"Bearer {token}"
        return self.ask("POST", path, usual | (headers or {}), json.dumps(body).encode())

    def ask(self, method: str, path: str, headers: dict[str, str], body: bytes | None = None) -> Answer:
        connection = self.connection()
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    def frames(self, count: int, headers: dict[str, str] | None = None, query: str = "", at: str = "") -> list[Any]:
        """The first frames of the stream of the page at this path."""
        connection = self.connection()
        try:
            connection.request("GET", f"{at}/events{query}", headers=headers or {})
            response = connection.getresponse()
            assert response.status == 200, response.read()
            return [self._frame(response) for _ in range(count)]
        finally:
            connection.close()

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=30)

    def _frame(self, response: Any) -> Any:
        line = response.readline()
        assert response.readline() == b"\n"
        return json.loads(line.removeprefix(b"data: "))


class Live(Served):
    """`host`: as what it is served; it listens on this machine alone whatever that says. `settings` beside the DSN."""

    def __init__(
        self,
        dsn: str,
        *,
        token: str | None = TOKEN,
        host: str = "127.0.0.1",
        fresh: float = CACHE_SECONDS,
        **keywords: Any,
    ) -> None:
        settings = load(dsn=dsn, **keywords)
        self._overview_cache = CachedOverview(settings, lambda: dsn, fresh=fresh)
        allowed = build_access(Address(host, 0), token, payloads=settings.http_payloads)
        super().__init__(Starlette(routes=build_routes(self._overview_cache, lambda: dsn, settings, allowed)))

    @property
    def with_token(self) -> str:
        return f"{self.address}#token={TOKEN}"

    def close(self) -> None:
        super().close()
        self._overview_cache.close()
