"""Validators of settings. Each returns the value, or raises ValueError that says which form it must have."""

import re

from partbox.duration import seconds

COLOURS = ("red", "orange", "green", "blue", "violet", "grey")
LONGEST = 255  # characters of a name

# Line breaks and tabs are allowed, as in JSON.
_CONTROL = re.compile(r"[\0-\x08\x0b\x0c\x0e-\x1f\x7f]")


def without_control_characters(value: object) -> object:
    """Return a value without control characters, which terminals and logs would act on."""
    if isinstance(value, str) and (found := _CONTROL.search(value)) is not None:
        raise ValueError(f"take the control character {found[0]!a} out of it")
    return value


def none_of_text(value: object) -> object:
    """Return None for "none", "off" and False, because files and environments have no null."""
    nothing = value is False or (isinstance(value, str) and value.strip().lower() in ("none", "off"))
    return None if nothing else value


def on_or_off(value: object) -> object:
    """Return "on" or "off" for a bool, because `bell = false` is natural in TOML."""
    return ("off", "on")[value] if isinstance(value, bool) else lower(value)


def lower(value: object) -> object:
    """Return a text in lower case."""
    return value.lower() if isinstance(value, str) else value


def optional_seconds(value: object) -> object:
    """Return a duration in seconds, or None."""
    value = none_of_text(value)
    return None if value is None else seconds(value)


def schema_name(value: object) -> object:
    """Return a schema name that PostgreSQL accepts and that the text of a function can quote."""
    if isinstance(value, str) and (not 0 < len(value.encode()) <= 63 or "\0" in value or value.startswith("pg_")):
        raise ValueError('a schema name has 1 to 63 bytes and does not begin with "pg_"')
    if isinstance(value, str) and re.search(r"[\t\r\n]", value):
        raise ValueError("a schema name is one line without tabs: check for a line break")
    if isinstance(value, str) and "$$" in value:
        raise ValueError("a schema name holds no $$, which ends the text of a function: choose another")
    return value


def routing(value: object) -> object:
    """Return the fate of events without a handler, or a function that decides it."""
    if callable(value) or value in ("dead", "ignore", "retry"):
        return value
    raise ValueError("use 'dead', 'ignore' or 'retry', or in Python a function from event to outcome")


def archive_place(value: object) -> object:
    """Return the location of an archive."""
    if isinstance(value, str) and (not value.strip() or "\0" in value):
        raise ValueError("name a directory, or a URL such as s3://bucket/prefix, or none")
    if isinstance(value, str) and (url := re.match(r"([a-z][a-z0-9+.-]+):/?(?!/)(.*)", value)):
        raise ValueError(f"write {url[1]}://{url[2]}, or ./{value} for a folder of that name")
    return value


def environment(value: object) -> object:
    """Return the name of an environment, with its colour if it has one."""
    if isinstance(value, str) and not re.fullmatch(rf"[^:]{{1,40}}(:({'|'.join(COLOURS)}))?", value):
        raise ValueError(f"use NAME or NAME:COLOUR, up to 40 characters and one of {', '.join(COLOURS)}")
    return value


def trace_url(value: object) -> object:
    """Return a web address with a placeholder for the id of a trace. Other schemes than http(s) could run a script or
    lead nowhere."""
    if not isinstance(value, str):
        return value
    if not re.fullmatch(r"https?://[^\s{}]+(\{trace_id\}[^\s{}]*)+", value):
        raise ValueError("use http(s)://… with {trace_id} in it, such as https://grafana.example.org/trace/{trace_id}")
    return value


def http_address(value: object) -> object:
    """Return an address at which HTTP is served."""
    if isinstance(value, str) and not re.fullmatch(r"\S*:\d{1,5}", value):
        raise ValueError("give HOST:PORT, such as 127.0.0.1:9464, or :9464 for this machine alone, or off")
    return value


def metric_name(value: object) -> object:
    """Return the prefix of the names of metrics."""
    if isinstance(value, str) and not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", value):
        raise ValueError("use letters of a to z, digits and _, and no digit in front, such as shop_outbox")
    return value


def node_name(value: object) -> object:
    """Return the name of a host, which logs, metrics and terminals show."""
    if isinstance(value, str) and not (value.isprintable() and 0 < len(value.strip()) <= LONGEST):
        raise ValueError(f"a name of 1 to {LONGEST} visible characters is needed: give one by --node or PARTBOX_NODE")
    return value
