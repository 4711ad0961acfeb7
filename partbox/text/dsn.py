"""Parses DSNs as libpq does, and URLs. An unreadable one is never quoted, because any part may be the password."""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from urllib.parse import parse_qsl, urlsplit

from psycopg import Error, pq
from psycopg.conninfo import conninfo_to_dict

from partbox.errors import SettingsError
from partbox.text.printing import shorten_line
from partbox.text.secrets import MASK, is_secret, mask_secrets, mask_url
from partbox.text.wording import format_hint

LONGEST = 60  # characters of a database's name
LAST_PORT = 65_535
BYTE_ORDER_MARK = "\ufeff"  # some editors write it at the beginning of a file

REMEDY = (
    "write postgresql://user@host/database, with special characters of a password percent-encoded (@ is %40, / is "
    "%2F), or key=value pairs with quotes around values with spaces, or embedded:"
)

# Texts by the beginning of libpq's error, up to the first quoted part.
_REASONS = {
    "invalid percent-encoded token": "a % that is no percent-encoding (it must be %25)",
    "forbidden value %00": "a character 0",
    "unexpected spaces found": "a space or a line break in a URL (a space must be %20)",
    'missing "="': 'a word without "=" where key=value pairs are expected',
    "unterminated quoted string": "a quote that is not closed",
    "invalid connection option": "a key that libpq does not know",
    "invalid URI query parameter": "a key after the ? that libpq does not know",
    "extra key/value separator": 'a second "=" in a pair after the ? (it must be %3D)',
    "missing key/value separator": 'a word without "=" after the ?',
    "end of string reached": "a [ without its ]",
    "IPv6 host address may not": "an empty IPv6 address",
    "unexpected character": "an unexpected character after an IPv6 address",
}

# URLs of SQLAlchemy name a driver in this way.
_DIALECT = re.compile(r"\s*postgres(?:ql)?(\+\w+)://", re.IGNORECASE)
# The length is bounded, so that a long word without "=" is not tried from each of its letters.
_KEY = re.compile(r"\b(\w{1,63})\s*=")
_OPTION = re.compile(r"[\w.-]{1,60}", re.ASCII)
_URL = re.compile(r"postgres(?:ql)?://", re.IGNORECASE)


def strip_text(text: str) -> str:
    """Strip white space and a byte order mark from both ends of a text, such as a DSN."""
    # A secret often ends with a line break, which libpq would take for a part of the last value of a URL.
    return text.strip().removeprefix(BYTE_ORDER_MARK).strip()


def parse_dsn(dsn: str) -> dict[str, str]:
    """Parse a database connection string into a dict of parameters. Raise SettingsError if it is unreadable."""
    # Errors of libpq quote the part they stumbled over. Therefore the reasons have texts of their own.
    # The error quotes no part of the DSN.
    dsn = strip_text(dsn)
    # libpq would stop reading at the null character.
    if "\0" in dsn:
        raise make_dsn_error(_REASONS["forbidden value %00"])
    if (dialect := _DIALECT.match(dsn)) is not None:
        raise SettingsError(
            f"the DSN names a driver, as URLs of SQLAlchemy do: drop {dialect[1]}, as in postgresql://…"
        )
    try:
        found = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
    except Error as error:
        raise make_dsn_error(_find_reason(str(error)) + _find_hint(dsn)) from None
    # The DSN holds a lone surrogate.
    except ValueError:
        raise make_dsn_error("characters that are no text") from None
    if (reason := _find_misread_sign(dsn, found)) is not None:
        raise make_dsn_error(reason)
    return found


def connect_share(whole: float, given: dict[str, str]) -> int:
    """Return the connect timeout in seconds for each server of a DSN: an equal share of the whole, but at least 2."""
    # A dead server so leaves time for the others. 2 seconds are the minimum of libpq.
    servers = max(given.get(name, "").count(",") + 1 for name in ("host", "hostaddr"))
    return max(2, int(whole / servers))


def make_dsn_error(reason: str) -> SettingsError:
    # `reason` completes "it has".
    return SettingsError(f"the DSN cannot be read: it has {reason}: {REMEDY}")


def mask_dsn(dsn: str) -> str:
    """Return a database connection string for display, with its secrets masked."""
    # If the secrets cannot be located, only the mask is returned.
    if dsn.startswith("embedded:"):
        return dsn
    text = mask_secrets(dsn)
    try:
        safe = all(value == MASK for name, value in parse_dsn(text).items() if is_secret(name))
    except SettingsError:
        return MASK
    return text if safe else MASK


def check_ports(url: str) -> None:
    """Raise SettingsError unless each port in a URL is a number from 1 to 65535."""
    # The port is not quoted: it may be part of a password.
    for server in urlsplit(url).netloc.rpartition("@")[2].split(","):
        port = server.rpartition("]")[2].partition(":")[2]
        if port and not (port.isascii() and port.isdecimal() and 0 < int(port[:6]) <= LAST_PORT):
            raise SettingsError(
                f"{mask_url(url)!r} has a port that is no number from 1 to {LAST_PORT}: correct it (in a password : "
                "is %3A and / is %2F)"
            )


def query_of(url: str, known: Collection[str] | None = None) -> dict[str, str]:
    """Parse the query options of a URL. Raise SettingsError if one is repeated, empty or unknown."""
    # An unknown option is an error, because a misspelt one would be ignored, or would fail at every event.
    # The query is the part after the "?". All options are allowed if `known` is None.
    place, mark, _ = url.partition("#")
    parts, where = urlsplit(place), mask_url(place)
    if mark:
        raise SettingsError(
            f"{where!r} is followed by a #, after which nothing is read: write %23 for a # that is part of a value"
        )
    if "@" in parts.query:
        raise SettingsError(
            f"{where!r} has an @ behind a ?: write %40 and %3F for these signs in a password or a value"
        )
    found: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if known is not None and name not in known:
            raise SettingsError(
                f"{where!r} has the unknown option {mask_option_name(name)!r}: {format_hint(name, sorted(known))}"
            )
        if name in found or not value:
            problem = "twice" if name in found else "without a value"
            raise SettingsError(
                f"{where!r} has the option {mask_option_name(name)!r} {problem}: give it once, with its value"
            )
        found[name] = value
    return found


def mask_option_name(name: str) -> str:
    """Return the name of a URL option for an error message, masked unless it looks like a name."""
    # A text that does not look like a name may be part of a password.
    return name if _OPTION.fullmatch(name) else MASK


def _find_reason(said: str) -> str:
    return next((ours for theirs, ours in _REASONS.items() if said.startswith(theirs)), "a form that no DSN has")


def _find_hint(dsn: str) -> str:
    # The hint is about a misspelt key, and contains no other part of the DSN.
    known = [each.keyword.decode() for each in pq.Conninfo.get_defaults()]
    for name in _KEY.findall(dsn.partition("?")[2] if _URL.match(dsn) else dsn):
        if name not in known and (near := format_hint(name, known, "", likeness=0.75)):
            return f" ({near})"
    return ""


def _find_misread_sign(dsn: str, found: dict[str, str]) -> str | None:
    # libpq accepts some DSNs with another meaning than intended. After an unescaped "@" or "/", the rest of the
    # password becomes a host, a port or a database, which later errors would name.
    # The sign is a text.
    url = _URL.match(dsn)
    if url is not None:
        if re.search(r"\s", dsn):
            return _REASONS["unexpected spaces found"]
        _, _, path = dsn[url.end() :].partition("?")[0].partition("/")
        if "@" in path:
            return "an @ behind a / (in a password they must be %40 and %2F)"
    for name, value in found.items():
        if any(ord(each) < ord(" ") for each in value):
            return f"a control character in its {name} (an inserted secret may end with a line break)"
    if any("@" in host.lstrip("@") for host in found.get("host", "").split(",") if not host.startswith("/")):
        return "an @ in its host (in a password it must be %40)"
    if not all(port.strip().isdecimal() for port in found.get("port", "").split(",") if port.strip()):
        return "a port that is no number (a : and a / in a password must be %3A and %2F)"
    return None


def list_database_names(dsns: Sequence[str]) -> list[str]:
    """Return a short display name for each DSN: the database name, with host and port added to tell equal names
    apart."""
    given = [_parse_or_empty(dsn) for dsn in dsns]
    short = [_shorten_name(each) for each in given]
    names = [
        f"{_format_host_port(each)}/{name}" if short.count(name) > 1 else name
        for each, name in zip(given, short, strict=True)
    ]
    seen: Counter[str] = Counter()
    for at, name in enumerate(names):
        seen[name] += 1
        names[at] = name if seen[name] == 1 else f"{name} #{seen[name]}"
    return names


def _shorten_name(given: dict[str, str]) -> str:
    name = given.get("dbname") or given.get("service") or given.get("user") or "default"
    return shorten_line(name, LONGEST)


def _format_host_port(given: dict[str, str]) -> str:
    return shorten_line(f"{given.get('host') or 'localhost'}:{given.get('port') or '5432'}", LONGEST)


def _parse_or_empty(dsn: str) -> dict[str, str]:
    try:
        return parse_dsn(dsn)
    except SettingsError:
        # Connecting reports the error later.
        return {}
