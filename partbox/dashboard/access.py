"""The rights to look at the page, to see payloads, and to act. `Access` guards a page that partbox serves, and
`ApplicationAccess` guards one that is mounted in an application, which knows its users."""

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

# The right that a request needs: to look at the page, to see payloads, or to perform an operator's action.
Action = Literal["look", "payload", "replay", "discard", "retry", "skip", "pause", "resume", "limit"]
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)

# `may(request, action)` returns the identity of the user if the action is allowed, else None. The log of actions shows
# `str()` of the identity.
May = Callable[[Request, str], Awaitable[object] | object]

MIN_TOKEN_LENGTH = 16  # characters
NO_TOKEN = "this needs a token, and none is set: set PARTBOX_HTTP_TOKEN for the process that serves the page"  # noqa: S105
NO_PAYLOADS = "payloads are not shown here: the setting http_payloads shows them to holders of the token"
ELSEWHERE = "this page is served at 127.0.0.1 and localhost only: use one of these names, or send the token"
TOKEN_HOLDER = "the holder of the page's token"  # noqa: S105
NOT_ALLOWED = "you may not {action} here: the application that serves this page decides who may"
FOREIGN = "this request comes from another site"
TOKEN_FORM = re.compile(rf"[A-Za-z0-9_-]{{{MIN_TOKEN_LENGTH},}}")


@dataclass(frozen=True, slots=True)
class Refusal:
    status: int
    reason: str


class Guard(Protocol):
    """The access control of a dashboard, which decides who may look and who may act."""

    @property
    def has_unlock_token(self) -> bool | None:
        """True if a token permits actions, False if nobody has a token, None if rights do not depend on tokens."""

    @property
    def guards_all(self) -> bool:
        """True if even the dashboard's empty HTML page is refused to users without the right to look."""

    async def judge_request(self, request: Request, action: Action) -> str | Refusal:
        """Return the identity of the user if the request may perform this action, else the refusal."""


@dataclass(frozen=True, slots=True)
class Access:
    """The access control of a dashboard by a secret token."""

    # If `token` is None, nobody may act. `is_open_to_look` means that only this machine can reach the page.
    # `may_see_payloads` lets the holder of the token see payloads.

    token: str | None
    is_open_to_look: bool
    may_see_payloads: bool = False
    guards_all: bool = False

    @property
    def has_unlock_token(self) -> bool:
        return self.token is not None

    async def judge_request(self, request: Request, action: Action) -> str | Refusal:
        return self._find_refusal(action, request, request.headers) or TOKEN_HOLDER

    def _find_refusal(self, action: Action, request: Request, headers: Mapping[str, str]) -> Refusal | None:
        if self.is_open_to_look and not _is_this_machine(headers.get("host", "")) and not self.has_token(headers):
            return Refusal(403, ELSEWHERE)
        if _is_foreign(request):
            return Refusal(403, FOREIGN)
        if action == "payload" and not self.may_see_payloads:
            return Refusal(403, NO_PAYLOADS)
        if (action == "look" and self.is_open_to_look) or self.has_token(headers):
            return None
        if self.token is None:
            return Refusal(403, NO_TOKEN)
        wrong = "that is not the token" if "authorization" in headers else "this needs the token"
        return Refusal(401, f"{wrong}: open the address that was printed when the page's server started")

    def has_token(self, headers: Mapping[str, str]) -> bool:
        # A page of another site in the same browser can neither guess the token nor make the browser send this header.
        if self.token is None:
            return False
        scheme, _, given = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self.token.encode())


@dataclass(frozen=True, slots=True)
class ApplicationAccess:
    """The access control of a dashboard inside an application, whose function `may` decides."""

    # The function may block.

    may: May
    has_unlock_token: None = None
    guards_all: bool = True

    async def judge_request(self, request: Request, action: Action) -> str | Refusal:
        if _is_foreign(request):
            return Refusal(403, FOREIGN)
        found: Any = await run_in_threadpool(self.may, request, action)
        identity = await found if isinstance(found, Awaitable) else found
        return str(identity) if identity else Refusal(403, NOT_ALLOWED.format(action=action))


def build_access(address: Address, chosen: str | None, *, new: bool = False, payloads: bool = False) -> Access:
    """Return the access control of a dashboard by token. Raise SettingsError if the chosen token is easy to guess."""
    # The dashboard is served at `address`. The token is `chosen`, else a new one if `new`, else none.
    # Acting always needs the token. Looking needs no token if only this machine can reach the page, and the token
    # otherwise, because error texts and aggregate ids are shown. A host name that was made to point here (DNS
    # rebinding) is refused without the token. With the token, the name may be that of a reverse proxy on this machine.
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
    # In an application, the right may come from a cookie, which browsers send with every request. So a request is
    # refused if the browser says that another site's page sent it. Programs other than browsers say nothing. Links from
    # other sites are allowed, because the other site does not see the page.
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
