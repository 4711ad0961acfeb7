"""Forms of settings that are texts; a function returns the value, or raises ValueError with the form it must have."""

import re

LONGEST = 255  # characters of a name


def archive_place(value: object) -> object:
    """A place of an archive."""
    if isinstance(value, str) and (not value.strip() or "\0" in value):
        raise ValueError("name a directory, or a URL such as s3://bucket/prefix, or none")
    if isinstance(value, str) and (url := re.match(r"([a-z][a-z0-9+.-]+):/?(?!/)(.*)", value)):
        raise ValueError(f"write {url[1]}://{url[2]}, or ./{value} for a folder of that name")
    return value


def http_address(value: object) -> object:
    """An address to serve HTTP at."""
    if isinstance(value, str) and not re.fullmatch(r"\S*:\d{1,5}", value):
        raise ValueError("give HOST:PORT, such as 127.0.0.1:9464, or :9464 for this machine alone, or off")
    return value


def metric_name(value: object) -> object:
    """The first part of the names of metrics."""
    if isinstance(value, str) and not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", value):
        raise ValueError("use letters of a to z, digits and _, and no digit in front, such as shop_outbox")
    return value


def node_name(value: object) -> object:
    """The name of a host, which logs, metrics and terminals show."""
    if isinstance(value, str) and not (value.isprintable() and 0 < len(value.strip()) <= LONGEST):
        raise ValueError(f"a name of 1 to {LONGEST} visible characters is needed: give one by --node or PARTBOX_NODE")
    return value
