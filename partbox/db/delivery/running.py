"""The long-running handlers of a process, as stored in its row of `instance`.

`instance.running` is an array of objects with the fields of `Running`, but instead of `seconds` the database stores
`since`, by its own clock, when it writes. So ages are read by one clock, whatever the clocks of the hosts say. Handlers
that do not fit are counted by a last object, as `more`.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from partbox.db.sql import Conn, query


@dataclass(frozen=True, slots=True)
class Running:
    """A handler that has run for `seconds`, with its event; of a list, the first.

    Texts are cut, and may hold anything. `timeout` in seconds; None: no timeout.
    """

    handler: str
    event_type: str
    aggregate_type: str
    aggregate_id: str | None
    record_id: int
    seconds: float
    partition: int | None = None
    timeout: float | None = None


def note(conn: Conn, schema: str, instance: UUID, running: Sequence[Running], more: int) -> None:
    """Store the long-running handlers of this process, and how many `more`; with none the column becomes null."""
    said = [*map(asdict, running), *([{"more": more}] if more else [])]
    conn.execute(query("note_running", schema), {"instance": instance, "running": orjson.dumps(said).decode()})


def noted(said: list[dict[str, Any]] | None, at: datetime) -> tuple[tuple[Running, ...], int]:
    """The handlers stored in a row, as of `at`, and how many more there are."""
    rows, known = said or [], {each.name for each in fields(Running)}
    running = [
        Running(**{name: row[name] for name in known & row.keys()}, seconds=max(0.0, at.timestamp() - row["since"]))
        for row in rows
        if "since" in row
    ]
    return tuple(running), sum(each.get("more", 0) for each in rows)
