"""Reports on imports from a table or an archive, as text, tables and JSON."""

from collections.abc import Sequence
from typing import Any

import orjson
import typer

from partbox.cli.shell.output import console, counted, in_short, moment, print_json, printable, table
from partbox.cli.shell.progress import report_interrupt
from partbox.db.operator.archive import ArchiveRow
from partbox.db.operator.imports import OpenWriter
from partbox.imports import ImportResult, RestoreResult
from partbox.imports.rows import ImportRow
from partbox.text.wording import age

COLUMNS = ("row", "becomes", "type", "aggregate", "occurred", "payload")
ARCHIVE_COLUMNS = ("record", "published", "type", "aggregate", "payload")
EVENT = ("event_type", "aggregate_type", "aggregate_id", "tenant_id")
SHOWN = 20


def print_done(done: ImportResult, json: bool) -> int:
    # The result is the exit code.
    _print(done, json, dry_run=False)
    if not done.complete:
        return report_interrupt("the same command continues with the rest")
    if done.writers and not json:
        typer.echo(f"{_open_writers_text(done.writers)}: run this again when that has ended")
    elif done.nothing_left and not json:
        typer.echo(f"nothing is left in {printable(done.source)}")
    return 0


def print_dry_run(found: ImportResult, json: bool) -> None:
    _print(found, json, dry_run=True)
    if found.writers and not json:
        typer.echo(f"{_open_writers_text(found.writers)}: what it writes comes with a later pass")


def _print(done: ImportResult, json: bool, *, dry_run: bool) -> None:
    if json:
        print_json(_to_json(done, dry_run=dry_run))
        return
    typer.echo(_summary_text("would import" if dry_run else "imported", done))
    if done.sample:
        console().print(table(COLUMNS, map(_row, done.sample), ("row",), ("occurred",)))
    for each in done.listed[:SHOWN]:
        typer.echo(f"row {printable(each.key)}: {printable(each.problem)}", err=True)
    if done.bad > SHOWN:
        typer.echo(f"… and {done.bad - SHOWN:,} more", err=True)


def print_line(done: ImportResult, json: bool) -> None:
    if json:
        typer.echo(orjson.dumps(_to_json(done, dry_run=False)).decode())
    else:
        typer.echo(_summary_text("imported", done))


def _summary_text(verb: str, done: ImportResult) -> str:
    parts = [f"{verb} {counted(done.pending, 'pending record')}"]
    parts += [f"{counted(done.dead, 'dead one')}"] if done.dead else []
    left = _left_out_text((done.done, "done"), (done.before, "imported before"), (done.bad, "that cannot be records"))
    return f"{' and '.join(parts)} from {printable(done.source)}{left}"


def _left_out_text(*counts: tuple[int, str]) -> str:
    left = [f"{number:,} {why}" for number, why in counts if number]
    return f"; left: {', '.join(left)}" if left else ""


def _open_writers_text(writers: Sequence[OpenWriter]) -> str:
    first = writers[0]
    who = "a prepared transaction" if first.pid is None else f"the transaction of pid {first.pid}"
    name = f" ({printable(in_short(first.application, 60))})" if first.application else ""
    since = f", open for {age(first.open)}," if first.open is not None else ""
    more = f" and {len(writers) - 1:,} more have" if len(writers) > 1 else " has"
    return f"{who}{name}{since}{more} written to it"


def _row(each: ImportRow) -> tuple[str, ...]:
    event = each.event
    aggregate = f"{event.aggregate_type} {event.aggregate_id}" if event.aggregate_id is not None else ""
    becomes = "pending" if each.failed is None else "dead"
    payload = f"{each.content_type or 'JSON'}, {each.size:,} bytes"
    return each.key, becomes, event.event_type, aggregate, moment(event.occurred_at), payload


def _to_json(done: ImportResult, *, dry_run: bool) -> dict[str, Any]:
    return {
        "table": done.source,
        "dry_run": dry_run,
        **_fields(done, "pending", "dead", "done", "before", "bad"),
        "bad_rows": [{"row": each.key, "problem": each.problem} for each in done.listed],
        "open_writers": len(done.writers),
        "complete": done.complete,
        "nothing_left": done.nothing_left and not dry_run,
        **({"first": [_plain_row(each) for each in done.sample]} if dry_run else {}),
    }


def _plain_row(each: ImportRow) -> dict[str, Any]:
    return {
        "row": each.key,
        "becomes": "pending" if each.failed is None else "dead",
        **_fields(each.event, *EVENT, "occurred_at", "available_at"),
        "content_type": each.content_type,
        "payload_bytes": each.size,
    }


def _fields(of: object, *names: str) -> dict[str, Any]:
    return {name: getattr(of, name) for name in names}


def print_restored(done: RestoreResult, json: bool, dry_run: bool) -> int:
    # The result is the exit code.
    if json:
        print_json(_restored_json(done, dry_run))
    else:
        verb = "would import" if dry_run else "imported"
        left = _left_out_text(
            (done.before, "imported before"), (done.kept, "still in the log"), (done.unwanted, "others")
        )
        where = f"{counted(done.files, 'file')} of {printable(done.source)}"
        typer.echo(f"{verb} {counted(done.imported, 'record')} from {where}{left}")
        if done.sample:
            console().print(table(ARCHIVE_COLUMNS, map(_archive_row, done.sample), ("record",), ("published",)))
    return 0 if done.complete else report_interrupt("the same command continues with the rest")


def _archive_row(row: ArchiveRow) -> tuple[str, ...]:
    aggregate = f"{row.aggregate_type} {row.aggregate_id}" if row.aggregate_id is not None else ""
    payload = f"{row.content_type or 'JSON'}, {_size(row):,} bytes"
    return str(row.id), row.created_at, row.event_type, aggregate, payload


def _size(row: ArchiveRow) -> int:
    return len(row.payload_bytes or (row.payload or "").encode())


def _restored_json(done: RestoreResult, dry_run: bool) -> dict[str, Any]:
    times = ("created_at", "occurred_at", "content_type")
    first = [
        {"record": row.id, **_fields(row, "event_id", *EVENT, *times), "payload_bytes": _size(row)}
        for row in done.sample
    ]
    return {
        "archive": done.source,
        "dry_run": dry_run,
        **_fields(done, "files", "read", "imported", "before"),
        "in_log": done.kept,
        "others": done.unwanted,
        "complete": done.complete,
        **({"first": first} if dry_run else {}),
    }
