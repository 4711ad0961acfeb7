"""Reports on the import of an archive, in words and JSON."""

from typing import Any

import typer

from partbox.cli.shell.confirm import INTERRUPTED
from partbox.cli.shell.output import console, counted, print_json, printable, table
from partbox.db.operator.archive import ArchiveRow
from partbox.imports import Restored

COLUMNS = ("record", "published", "type", "aggregate", "payload")


def print_restored(done: Restored, json: bool, dry_run: bool) -> int:
    """Report an import, or its dry run; return the exit code."""
    if json:
        print_json(_plain(done, dry_run))
    else:
        typer.echo(_said(done, dry_run))
        if done.sample:
            console().print(table(COLUMNS, map(_cells, done.sample), ("record",), ("published",)))
    if done.complete:
        return 0
    typer.echo("partbox: interrupted: the same command continues with the rest", err=True)
    return INTERRUPTED


def _said(done: Restored, dry_run: bool) -> str:
    verb = "would import" if dry_run else "imported"
    left = [f"{done.before:,} imported before"] if done.before else []
    left += [f"{done.kept:,} still in the log"] if done.kept else []
    left += [f"{done.unwanted:,} others"] if done.unwanted else []
    where = f"from {counted(done.files, 'file')} of {printable(done.source)}"
    return f"{verb} {counted(done.imported, 'record')} {where}{'; left: ' + ', '.join(left) if left else ''}"


def _size(row: ArchiveRow) -> int:
    return len(row.payload_bytes or (row.payload or "").encode())


def _cells(row: ArchiveRow) -> tuple[str, ...]:
    aggregate = f"{row.aggregate_type} {row.aggregate_id}" if row.aggregate_id is not None else ""
    payload = f"{row.content_type or 'JSON'}, {_size(row):,} bytes"
    return str(row.id), row.created_at, row.event_type, aggregate, payload


def _plain(done: Restored, dry_run: bool) -> dict[str, Any]:
    return {
        "archive": done.source,
        "dry_run": dry_run,
        "files": done.files,
        "read": done.read,
        "imported": done.imported,
        "before": done.before,
        "in_log": done.kept,
        "others": done.unwanted,
        "complete": done.complete,
        **({"first": [_plain_row(each) for each in done.sample]} if dry_run else {}),
    }


def _plain_row(row: ArchiveRow) -> dict[str, Any]:
    return {
        "record": row.id,
        "event_id": row.event_id,
        "event_type": row.event_type,
        "aggregate_type": row.aggregate_type,
        "aggregate_id": row.aggregate_id,
        "tenant_id": row.tenant_id,
        "created_at": row.created_at,
        "occurred_at": row.occurred_at,
        "content_type": row.content_type,
        "payload_bytes": _size(row),
    }
