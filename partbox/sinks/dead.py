"""The sink of dead events: from its URL to a function that sends one."""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from partbox.errors import SettingsError
from partbox.events import DeliveredEvent
from partbox.rules.secrets import masked
from partbox.sinks.document import document

Letterbox = Callable[[DeliveredEvent, str], None]
"""Takes a dead event and its error; raises if it was not taken, and is then called again."""

TIMEOUT = 30.0  # seconds
_HEADER = re.compile(r"[!-~]+( [!-~]+)*")
SCHEMES = "file:PATH (JSON lines), stdout:, http://… or https://…"


def letterbox_of(url: str) -> Letterbox:
    """The function for a URL; SettingsError in one line if the URL is invalid."""
    parts = urlsplit(url)
    match parts.scheme:
        case "stdout":
            return _print
        case "file" if parts.path:
            return lambda event, error: _append(Path(parts.path), event, error)
        case "http" | "https" if parts.hostname:
            return lambda event, error: _post(url, event, error)
    raise SettingsError(f"{masked(url)!r} is not a target for dead events: use {SCHEMES}")


def _print(event: DeliveredEvent, error: str) -> None:
    sys.stdout.buffer.write(document(event, error) + b"\n")
    sys.stdout.buffer.flush()


def _append(path: Path, event: DeliveredEvent, error: str) -> None:
    """One write to a file opened for appending, so that lines of several processes do not mix; then to the disk."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, document(event, error) + b"\n")
        os.fsync(handle)
    finally:
        os.close(handle)


def _post(url: str, event: DeliveredEvent, error: str) -> None:
    """A POST of JSON; any answer but 2xx is an error."""
    headers = {"Content-Type": "application/json", "Idempotency-Key": idempotency_key(event)}
    with urlopen(Request(url, document(event, error), headers, method="POST"), timeout=TIMEOUT):
        pass


def idempotency_key(event: DeliveredEvent) -> str:
    """The event's own key where it has one that a header can hold (visible ASCII, single spaces), else its id."""
    key = event.idempotency_key
    return key if key is not None and _HEADER.fullmatch(key) else str(event.event_id)
