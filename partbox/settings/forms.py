"""Validators of settings. Each returns the value, or raises ValueError that says which form it must have."""

import re

from partbox.duration import seconds

COLOURS = ("red", "orange", "green", "blue", "violet", "grey")
LONGEST = 255  # characters of a name

# Line breaks and tabs are allowed, as in JSON.
_CONTROL = re.compile(r"[\0-\x08\x0b\x0c\x0e-\x1f\x7f]")


def without_control_characters(value: object) -> object:
    """Return a setting's value unchanged. Raise ValueError if it contains control characters."""
    # Terminals and logs would act on them.
    if isinstance(value, str) and (found := _CONTROL.search(value)) is not None:
        raise ValueError(f"remove the control character {found[0]!a}")
    return value


def none_of_text(value: object) -> object:
    """Convert "none", "off" and False to None. Return other values unchanged."""
    # Environment variables and TOML files have no null.
    nothing = value is False or (isinstance(value, str) and value.strip().lower() in ("none", "off"))
    return None if nothing else value


def on_or_off(value: object) -> object:
    """Convert a bool to "on" or "off", and a text to lower case."""
    # `bell = false` is natural in TOML.
    return ("off", "on")[value] if isinstance(value, bool) else lower(value)


def lower(value: object) -> object:
    """Convert a text to lower case. Other values are returned unchanged."""
    return value.lower() if isinstance(value, str) else value


def optional_seconds(value: object) -> object:
    """Convert a duration such as "30s" to seconds. "none", "off" and False become None."""
    value = none_of_text(value)
    return None if value is None else seconds(value)


def schema_name(value: object) -> object:
    """Return a schema name unchanged. Raise ValueError unless PostgreSQL accepts it."""
    # The text of an SQL function must also be able to quote the name.
    if isinstance(value, str) and (not 0 < len(value.encode()) <= 63 or "\0" in value or value.startswith("pg_")):
        raise ValueError('a schema name has 1 to 63 bytes and does not begin with "pg_"')
    if isinstance(value, str) and re.search(r"[\t\r\n]", value):
        raise ValueError("a schema name is one line without tabs: check for a line break")
    if isinstance(value, str) and "$$" in value:
        raise ValueError("a schema name holds no $$, which ends the text of a function: choose another")
    return value


def routing(value: object) -> object:
    """Check the setting for events that have no handler, and return its value. Raise ValueError if it is invalid."""
    # The setting is `on_unroutable`.
    # The value is returned unchanged. A function may decide for each event.
    if callable(value) or value in ("dead", "ignore", "retry"):
        return value
    raise ValueError("use 'dead', 'ignore' or 'retry', or in Python a function from event to outcome")


def archive_place(value: object) -> object:
    """Return an archive's location, a directory or URL, unchanged. Raise ValueError if it is malformed."""
    # An empty location is refused as well.
    if isinstance(value, str) and (not value.strip() or "\0" in value):
        raise ValueError("name a directory, or a URL such as s3://bucket/prefix, or none")
    if isinstance(value, str) and (url := re.match(r"([a-z][a-z0-9+.-]+):/?(?!/)(.*)", value)):
        raise ValueError(f"write {url[1]}://{url[2]}, or ./{value} for a folder of that name")
    return value


def environment(value: object) -> object:
    """Return the name of an environment, NAME or NAME:COLOUR, unchanged. Raise ValueError if it is invalid."""
    if isinstance(value, str) and not re.fullmatch(rf"[^:]{{1,40}}(:({'|'.join(COLOURS)}))?", value):
        raise ValueError(f"use NAME or NAME:COLOUR, up to 40 characters and one of {', '.join(COLOURS)}")
    return value


def trace_url(value: object) -> object:
    """Validate the URL template of a trace, an http(s) URL with `{trace_id}`. Raise ValueError if it is invalid."""
    # The value is returned unchanged. Other schemes than http(s) could run a script or lead nowhere.
    if not isinstance(value, str):
        return value
    if not re.fullmatch(r"https?://[^\s{}]+(\{trace_id\}[^\s{}]*)+", value):
        raise ValueError("use http(s)://… with {trace_id} in it, such as https://grafana.example.org/trace/{trace_id}")
    return value


def http_address(value: object) -> object:
    """Return the address of an HTTP server unchanged. Raise ValueError unless it has the form HOST:PORT."""
    if isinstance(value, str) and not re.fullmatch(r"\S*:\d{1,5}", value):
        raise ValueError("give HOST:PORT, such as 127.0.0.1:9464, or :9464 for this machine alone, or off")
    return value


def metric_name(value: object) -> object:
    """Return the prefix of metric names unchanged. Raise ValueError if it would make the names invalid."""
    if isinstance(value, str) and not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", value):
        raise ValueError("use letters of a to z, digits and _, and no digit in front, such as shop_outbox")
    return value


def node_name(value: object) -> object:
    """Return the display name of a host unchanged. Raise ValueError if it is empty, too long or unprintable."""
    # Logs, metrics and terminals show it.
    if isinstance(value, str) and not (value.isprintable() and 0 < len(value.strip()) <= LONGEST):
        raise ValueError(f"a name of 1 to {LONGEST} visible characters is needed: give one by --node or PARTBOX_NODE")
    return value
