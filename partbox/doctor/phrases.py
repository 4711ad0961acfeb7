"""Names that findings use for sessions, aggregates and errors; never a payload or a password."""

import re

from partbox.db.inspect.facts import OpenSession
from partbox.text.secrets import masked
from partbox.text.wording import in_short

LISTENER = "partbox listener"
WORKER_COMMAND = "worker MODULE:OUTBOX"
RELOAD_COMMAND = "`select pg_reload_conf()`"  # else what `alter system` has set is not in force
MORE_WORKERS = "then more of them: `partbox worker … --concurrency`, `--processes`, or another node"

_LITERAL = re.compile(r"'|\$[A-Za-z_]*\$")
_LONGEST = 100  # characters of a name that is still copied by hand


def is_copyable(*names: str) -> bool:
    """True if the names are safe in a command that people copy; hostile ones may be long or act on a terminal."""
    return all(each.isprintable() and len(each) <= _LONGEST for each in names)


def error_text(text: str | None, most: int = 160) -> str:
    """An error's text, shortened."""
    return in_short(masked(text), most) if text else "no reason is given"


def statement_text(query: str | None) -> str:
    """A statement up to its first literal, which may hold a payload."""
    if not query:
        return ""
    sql_literal = _LITERAL.search(query)
    return in_short(masked(f"{query[: sql_literal.start()]}…" if sql_literal else query))


def session(each: OpenSession) -> str:
    """The session's identity and its last statement."""
    parts = [f"user {each.user}"] if each.user else []
    parts += [f"application {in_short(each.application, 60)}"] if each.application else []
    parts += [f"from {each.address}"] if each.address else []
    query = statement_text(each.query)
    return f"pid {each.pid} ({', '.join(parts)})" + (f": {query}" if query else "")


def end_session_text(pid: int, application: str | None) -> str:
    """The words, after "or", for ending a session. A worker's listener is not ended: its process does not read."""
    if application == LISTENER:
        return "look at its worker process, which does not take what it is sent: continue, or end, a stopped one"
    return f"end it: `select pg_terminate_backend({pid})`"


def quote_name(name: str) -> str:
    """A name as SQL takes it."""
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else '"' + name.replace('"', '""') + '"'


def sql_literal(text: str) -> str:
    """A text as SQL takes it."""
    return "'" + text.replace("'", "''") + "'"
