"""The rights on the page: who may look, see payloads, and act. A `Guard` judges every request.

`Access` guards a page that partbox serves. Acting always needs the token; without one nobody acts. Looking needs none
where only this machine can reach the page, and the token everywhere else: error texts and aggregate ids are shown.
Another page in the same browser can neither guess the token nor send its header unasked. A name that was made to point
here (DNS rebinding) is refused where no token comes with it. With the token it may be the name of a reverse proxy on
this machine.

`ApplicationAccess` guards a page that is mounted in an application, which knows its people. There a cookie may be the
right, which browsers send unasked. So a request that another site's page has made is refused by its origin; actions are
JSON besides, which no form can send.
"""

import hmac
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, get_args
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from partbox.errors import SettingsError
from partbox.http.address import Address

Action = Literal["look", "payload", "replay", "discard", "retry", "skip", "pause", "resume", "limit"]
"""The right that a request needs: to look at the page, to see payloads, or one of the operators' actions."""
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)

May = Callable[[Request, str], Awaitable[object] | object]
"""`may(request, action)`: the identity of who may do that, else None; `str()` of it is logged as who acted."""

MIN_TOKEN_LENGTH = 16  # characters of a chosen token
NO_TOKEN = "this needs a token, and there is none: set PARTBOX_HTTP_TOKEN where the page is served"  # noqa: S105
NO_PAYLOADS = "payloads are not shown here: the setting http_payloads allows it to those who have the token"
ELSEWHERE = "this page is served to 127.0.0.1 and localhost: use one of these names, or bring the token"
TOKEN_HOLDER = "the holder of the page's token"  # noqa: S105
NOT_ALLOWED = "you may not {action} here: the application that serves this page decides who may"
FOREIGN = "this request comes from another site"
TOKEN_FORM = re.compile(rf"[A-Za-z0-9_-]{{{MIN_TOKEN_LENGTH},}}")


@dataclass(frozen=True, slots=True)
class Refusal:
    """The status and the reason of a refused request."""

    status: int
    why: str


class Guard(Protocol):
    """The judge of all requests to a page."""

    @property
    def unlock(self) -> bool | None:
        """True if a token unlocks actions, False if there is no token, None if tokens are not what it asks for."""

    @property
    def guards_all(self) -> bool:
        """True if the empty page too is for those alone who may look."""

    async def judge(self, request: Request, action: Action) -> str | Refusal:
        """The identity of who may do that, or the refusal of the request."""


@dataclass(frozen=True, slots=True)
class Access:
    """`token` None: nobody may act. `open_to_look`: nobody but this machine can reach the page. `payloads`: the holder
    of the token may see them."""

    token: str | None
    open_to_look: bool
    payloads: bool = False
    guards_all: bool = False

    @property
    def unlock(self) -> bool:
        return self.token is not None

    async def judge(self, request: Request, action: Action) -> str | Refusal:
        return self._find_refusal(action, request, request.headers) or TOKEN_HOLDER

    def _find_refusal(self, action: Action, request: Request, headers: Mapping[str, str]) -> Refusal | None:
        if self.open_to_look and not _is_this_machine(headers.get("host", "")) and not self.has_token(headers):
            return Refusal(403, ELSEWHERE)
        if _is_foreign(request):
            return Refusal(403, FOREIGN)
        if action == "payload" and not self.payloads:
            return Refusal(403, NO_PAYLOADS)
        if (action == "look" and self.open_to_look) or self.has_token(headers):
            return None
        if self.token is None:
            return Refusal(403, NO_TOKEN)
        wrong = "that is not the token" if "authorization" in headers else "this needs the token"
        return Refusal(401, f"{wrong}: open the address that was printed when the page's server started")

    def has_token(self, headers: Mapping[str, str]) -> bool:
        """True if a request carries the token."""
        if self.token is None:
            return False
        scheme, _, given = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self.token.encode())


@dataclass(frozen=True, slots=True)
class ApplicationAccess:
    """The rights that an application gives by `may`, which may wait: one that is no coroutine runs in a thread."""

    may: May
    unlock: None = None
    guards_all: bool = True

    async def judge(self, request: Request, action: Action) -> str | Refusal:
        if _is_foreign(request):
            return Refusal(403, FOREIGN)
        found: Any = await run_in_threadpool(self.may, request, action)
        identity = await found if isinstance(found, Awaitable) else found
        return str(identity) if identity else Refusal(403, NOT_ALLOWED.format(action=action))


def access(address: Address, chosen: str | None, *, new: bool = False, payloads: bool = False) -> Access:
    """The rights on a page at `address`. The token is the `chosen` one, else a `new` one, else there is none.

    SettingsError if the chosen one is easily guessed.
    """
    if chosen is not None and not TOKEN_FORM.fullmatch(chosen):
        raise SettingsError(
            f"http_token ({len(chosen)} characters) must have {MIN_TOKEN_LENGTH} or more, of letters, digits, - and _"
        )
    return Access(chosen or (secrets.token_urlsafe(18) if new else None), address.is_loopback, payloads)


def _is_this_machine(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        return False
    return name is not None and (name == "localhost" or Address(name, 0).is_loopback)


def _is_foreign(request: Request) -> bool:
    """True if a browser says that another site's page has asked; other programs say nothing. A link there may lead
    here: that page does not see what it shows."""
    headers = request.headers
    if request.method == "GET" and headers.get("sec-fetch-mode") == "navigate":
        return False
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")
    if origin is None:
        return False
    try:
        return urlsplit(origin).netloc != headers.get("host")
    except ValueError:
        return True
