"""Reports on imports from a table or an archive, as text, tables and JSON."""

from collections.abc import Sequence
from typing import Any

import orjson
import typer

from partbox.cli.shell.output import (
    build_table,
    escape_unprintable,
    format_count,
    format_time,
    make_console,
    print_json,
    shorten_text,
)
from partbox.cli.shell.progress import report_interrupt
from partbox.db.operator.archive import ArchiveRow
from partbox.db.operator.imports import OpenWriter
from partbox.imports import ImportResult, RestoreResult
from partbox.imports.rows import ImportRow
from partbox.text.wording import format_age

COLUMNS = ("row", "becomes", "type", "aggregate", "occurred", "payload")
ARCHIVE_COLUMNS = ("record", "published", "type", "aggregate", "payload")
EVENT = ("event_type", "aggregate_type", "aggregate_id", "tenant_id")
SHOWN = 20


def print_done(done: ImportResult, json: bool) -> int:
    # The result is the exit code.
    _print_result(done, json, dry_run=False)
    if not done.complete:
        return report_interrupt("the same command continues with the rest")
    if done.writers and not json:
        typer.echo(f"{_open_writers_text(done.writers)}: repeat the command when no such transaction is open")
    elif done.has_imported_all and not json:
        typer.echo(f"nothing is left in {escape_unprintable(done.source)}")
    return 0


def print_dry_run(found: ImportResult, json: bool) -> None:
    _print_result(found, json, dry_run=True)
    if found.writers and not json:
        typer.echo(f"{_open_writers_text(found.writers)}: rows of open transactions come with a later pass")


def _print_result(done: ImportResult, json: bool, *, dry_run: bool) -> None:
    if json:
        print_json(_to_json(done, dry_run=dry_run))
        return
    typer.echo(_format_summary("would import" if dry_run else "imported", done))
    if done.sample:
        make_console().print(build_table(COLUMNS, map(_build_row, done.sample), ("row",), ("occurred",)))
    for each in done.listed[:SHOWN]:
        typer.echo(f"row {escape_unprintable(each.key)}: {escape_unprintable(each.problem)}", err=True)
    if done.bad > SHOWN:
        typer.echo(f"… and {done.bad - SHOWN:,} more", err=True)


def print_line(done: ImportResult, json: bool) -> None:
    if json:
        typer.echo(orjson.dumps(_to_json(done, dry_run=False)).decode())
    else:
        typer.echo(_format_summary("imported", done))


def _format_summary(verb: str, done: ImportResult) -> str:
    parts = [f"{verb} {format_count(done.pending, 'pending record')}"]
    parts += [f"{format_count(done.dead, 'dead one')}"] if done.dead else []
    left = _format_left_out((done.done, "done"), (done.before, "imported before"), (done.bad, "that cannot be records"))
    return f"{' and '.join(parts)} from {escape_unprintable(done.source)}{left}"


def _format_left_out(*counts: tuple[int, str]) -> str:
    left = [f"{number:,} {why}" for number, why in counts if number]
    return f"; left: {', '.join(left)}" if left else ""


def _open_writers_text(writers: Sequence[OpenWriter]) -> str:
    first = writers[0]
    who = "a prepared transaction" if first.pid is None else f"the transaction of pid {first.pid}"
    name = f" ({escape_unprintable(shorten_text(first.application, 60))})" if first.application else ""
    since = f", open for {format_age(first.open_seconds)}," if first.open_seconds is not None else ""
    more = f" and {len(writers) - 1:,} more have" if len(writers) > 1 else " has"
    return f"{who}{name}{since}{more} written to the table"


def _build_row(each: ImportRow) -> tuple[str, ...]:
    event = each.event
    aggregate = f"{event.aggregate_type} {event.aggregate_id}" if event.aggregate_id is not None else ""
    becomes = "pending" if each.failed_row is None else "dead"
    payload = f"{each.content_type or 'JSON'}, {each.size:,} bytes"
    return each.key, becomes, event.event_type, aggregate, format_time(event.occurred_at), payload


def _to_json(done: ImportResult, *, dry_run: bool) -> dict[str, Any]:
    return {
        "table": done.source,
        "dry_run": dry_run,
        **_select_fields(done, "pending", "dead", "done", "before", "bad"),
        "bad_rows": [{"row": each.key, "problem": each.problem} for each in done.listed],
        "open_writers": len(done.writers),
        "complete": done.complete,
        "nothing_left": done.has_imported_all and not dry_run,
        **({"first": [_build_plain_row(each) for each in done.sample]} if dry_run else {}),
    }


def _build_plain_row(each: ImportRow) -> dict[str, Any]:
    return {
        "row": each.key,
        "becomes": "pending" if each.failed_row is None else "dead",
        **_select_fields(each.event, *EVENT, "occurred_at", "available_at"),
        "content_type": each.content_type,
        "payload_bytes": each.size,
    }


def _select_fields(of: object, *names: str) -> dict[str, Any]:
    return {name: getattr(of, name) for name in names}


def print_restored(done: RestoreResult, json: bool, dry_run: bool) -> int:
    # The result is the exit code.
    if json:
        print_json(_build_restored_json(done, dry_run))
    else:
        verb = "would import" if dry_run else "imported"
        left = _format_left_out(
            (done.before, "imported before"), (done.kept, "still in the log"), (done.unwanted, "others")
        )
        where = f"{format_count(done.files, 'file')} of {escape_unprintable(done.source)}"
        typer.echo(f"{verb} {format_count(done.imported, 'record')} from {where}{left}")
        if done.sample:
            make_console().print(
                build_table(ARCHIVE_COLUMNS, map(_build_archive_row, done.sample), ("record",), ("published",))
            )
    return 0 if done.complete else report_interrupt("the same command continues with the rest")


def _build_archive_row(row: ArchiveRow) -> tuple[str, ...]:
    aggregate = f"{row.aggregate_type} {row.aggregate_id}" if row.aggregate_id is not None else ""
    payload = f"{row.content_type or 'JSON'}, {_measure_payload(row):,} bytes"
    return str(row.id), row.created_at, row.event_type, aggregate, payload


def _measure_payload(row: ArchiveRow) -> int:
    return len(row.payload_bytes or (row.payload or "").encode())


def _build_restored_json(done: RestoreResult, dry_run: bool) -> dict[str, Any]:
    times = ("created_at", "occurred_at", "content_type")
    first = [
        {"record": row.id, **_select_fields(row, "event_id", *EVENT, *times), "payload_bytes": _measure_payload(row)}
        for row in done.sample
    ]
    return {
        "archive": done.source,
        "dry_run": dry_run,
        **_select_fields(done, "files", "read", "imported", "before"),
        "in_log": done.kept,
        "others": done.unwanted,
        "complete": done.complete,
        **({"first": first} if dry_run else {}),
    }
