"""The right to look at the page, and the right to act.

Acting always needs the token; without one nobody acts. Looking needs none where only this machine can reach the page,
and the token everywhere else: error texts and aggregate ids are shown there.

Another page in the same browser can neither guess the token nor send its header unasked. It is refused by its origin
besides; and a name that was made to point here (DNS rebinding) is refused where no token comes with it. With the token
it may be the name of a reverse proxy on this machine.
"""

import hmac
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from partbox.errors import SettingsError
from partbox.http.address import Address

LEAST = 16  # characters of a chosen token
NO_TOKEN = "this needs a token, and there is none: set PARTBOX_HTTP_TOKEN where the page is served"  # noqa: S105
ELSEWHERE = "this page is served to 127.0.0.1 and localhost: use one of these names, or bring the token"
FIT = re.compile(rf"[A-Za-z0-9_-]{{{LEAST},}}")


@dataclass(frozen=True, slots=True)
class Refusal:
    """The status and the reason of a refused request."""

    status: int
    why: str


@dataclass(frozen=True, slots=True)
class Access:
    """`token` None: nobody may act. `open_to_look`: nobody but this machine can reach the page."""

    token: str | None
    open_to_look: bool

    def refuses(self, method: str, headers: Mapping[str, str]) -> Refusal | None:
        """The refusal of a request for data (GET) or an action (POST); None if it is allowed."""
        if self.open_to_look and not _is_here(headers.get("host", "")) and not self.holds(headers):
            return Refusal(403, ELSEWHERE)
        if _is_foreign(headers):
            return Refusal(403, "this request comes from another site")
        if (method in ("GET", "HEAD") and self.open_to_look) or self.holds(headers):
            return None
        if self.token is None:
            return Refusal(403, NO_TOKEN)
        wrong = "that is not the token" if "authorization" in headers else "this needs the token"
        return Refusal(401, f"{wrong}: open the address that was printed when the page's server started")

    def holds(self, headers: Mapping[str, str]) -> bool:
        """True if a request carries the token."""
        if self.token is None:
            return False
        scheme, _, given = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self.token.encode())


def access(address: Address, chosen: str | None, *, new: bool = False) -> Access:
    """The rights on a page at `address`. The token is the `chosen` one, else a `new` one, else there is none.

    SettingsError if the chosen one is easily guessed.
    """
    if chosen is not None and not FIT.fullmatch(chosen):
        raise SettingsError(
            f"http_token ({len(chosen)} characters) must have {LEAST} or more, of letters, digits, - and _"
        )
    return Access(chosen or (secrets.token_urlsafe(18) if new else None), address.is_loopback)


def _is_here(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        return False
    return name is not None and (name == "localhost" or Address(name, 0).is_loopback)


def _is_foreign(headers: Mapping[str, str]) -> bool:
    """True if a browser says that another site's page has asked; other programs say nothing."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")
    if origin is None:
        return False
    try:
        return urlsplit(origin).netloc != headers.get("host")
    except ValueError:
        return True
