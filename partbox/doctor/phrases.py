"""Texts for sessions, names and errors in findings. The texts never contain a payload or a password."""

import re

from partbox.db.inspect.facts import OpenSession
from partbox.text.secrets import mask_secrets
from partbox.text.wording import shorten_text

LISTENER = "partbox listener"
WORKER_COMMAND = "worker MODULE:OUTBOX"
# `alter system set` takes effect after a reload only.
RELOAD_COMMAND = "`select pg_reload_conf()`"
MORE_WORKERS = "then run more handlers at once: `partbox worker … --concurrency`, `--processes`, or another node"

# Characters of an error in a title, which stays readable on one line or two.
TITLE_ERROR = 90

_LITERAL = re.compile(r"'|\$[A-Za-z_]*\$")
_TRACEBACK_HEAD = "Traceback (most recent call last):\n"
_FRAME = re.compile(r'  File ".*", line \d+, in (.+)')
_LONGEST = 100  # characters of a name that people still copy


def is_copyable(*names: str) -> bool:
    """Return True if the names can safely be pasted into a terminal as parts of a command."""
    # A long name cannot be copied, and a name with control characters may act on the terminal.
    return all(each.isprintable() and len(each) <= _LONGEST for each in names)


def format_error(text: str | None, most: int = 160) -> str:
    """Shorten an error text to one line of at most `most` characters, with secrets masked."""
    return shorten_text(mask_secrets(text), most) if text else "no reason is given"


def describe_failure(event_type: str, error: str | None, traceback: str | None = None) -> str:
    """Return which event fails, in which function of the application and with which error, for a title."""
    # The first frame of the last error in a traceback is the handler, or a function that the application put around it.
    _, found, frames = (traceback or "").rpartition(_TRACEBACK_HEAD)
    handler = _FRAME.search(frames) if found else None
    place = f" in {shorten_text(handler[1], 60)}()" if handler else ""
    return f"{shorten_text(event_type, 60)}{place}: {format_error(error, TITLE_ERROR)}"


def format_statement(query: str | None) -> str:
    """Return an SQL statement for display, cut off before its first literal."""
    # A literal may hold a payload.
    if not query:
        return ""
    sql_literal = _LITERAL.search(query)
    return shorten_text(mask_secrets(f"{query[: sql_literal.start()]}…" if sql_literal else query))


def format_session(each: OpenSession) -> str:
    parts = [f"user {each.user}"] if each.user else []
    parts += [f"application {shorten_text(each.application, 60)}"] if each.application else []
    parts += [f"from {each.address}"] if each.address else []
    query = format_statement(each.query)
    return f"pid {each.pid} ({', '.join(parts)})" + (f": {query}" if query else "")


def end_session_text(pid: int, application: str | None) -> str:
    """Return advice on how to end a database session, for an error report."""
    # The text follows "or".
    # The session of a worker's listener is not terminated, because the trouble lies in a worker process that does not
    # read.
    if application == LISTENER:
        return (
            "look at the listener's worker process, which does not read its notifications: resume or end it if it is "
            "stopped"
        )
    return f"end it: `select pg_terminate_backend({pid})`"


def quote_name(name: str) -> str:
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
