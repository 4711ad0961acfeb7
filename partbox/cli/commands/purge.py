"""`partbox purge`: deletes expired records that every subscription has consumed."""

from dataclasses import asdict
from functools import partial
from typing import Annotated

import orjson
import psycopg
import typer
from rich.console import Console

from partbox.archive.location import location_of
from partbox.cli.shell.flags import build_dsn
from partbox.cli.shell.options import ActionOptions, flag, option, parse_duration, with_option_groups
from partbox.cli.shell.output import escape_unprintable, format_count, format_error_line, print_json
from partbox.cli.shell.progress import report_interrupt
from partbox.cli.shell.stopping import stoppable
from partbox.db.operator.archive import end_archive
from partbox.db.session import open_session
from partbox.duration import format_duration
from partbox.errors import PartboxError
from partbox.operations.purge import Purged, list_segments
from partbox.operations.purge import purge as by_anybody
from partbox.protocol.segments import has_expired_records
from partbox.segments.retention import list_reasons
from partbox.settings import Settings
from partbox.supervisor.signals import SignalFlag

DryRun = Annotated[
    bool, flag("Count what would be deleted, say what holds back the rest, delete nothing.", "--dry-run")
]
Every = Annotated[str | None, option("TIME", "Repeat at this interval, such as 30m, until stopped.")]
ToArchive = Annotated[
    str | None,
    option(
        "DIR|URL",
        "Where to archive records before they are deleted, such as s3://bucket/prefix (else PARTBOX_ARCHIVE).",
    ),
]
NoArchive = Annotated[
    bool,
    flag("Stop archiving: this and all later purges may delete records that are in no archive.", "--no-archive"),
]

run = partial(by_anybody, by_hand=True)
ELSEWHERE = "another purge, or a change of subscriptions, is running; the rest is purged next time"


@with_option_groups
def purge(
    *,
    archive: ToArchive = None,
    no_archive: NoArchive = False,
    dry_run: DryRun = False,
    every: Every = None,
    outbox: ActionOptions,
) -> None:
    """Delete expired handled and dead records, idempotency keys and inbox rows.

    Workers purge every purge_interval by themselves. Use --every if no worker runs, for a writer-only outbox or an
    inbox. Nothing is deleted that a subscription still needs, even a paused one. Ctrl-C ends the purge after the
    current batch. If something is due and nothing could be done, the command prints the reason, and ends with exit code
    1.

    Once a record was archived, here or by the setting, no purge deletes a record that is in no archive, and neither do
    workers: set `archive` for them, or repeat this command. --no-archive ends that.

    Example: partbox purge --dry-run
    """
    if no_archive and (archive is not None or dry_run):
        raise PartboxError(f"--no-archive goes without {'--dry-run' if archive is None else '--archive'}")
    settings = outbox.load_settings(archive="none" if no_archive else archive)
    interval = None if every is None else _parse_interval(every, dry_run)
    if settings.archive is not None:
        # An invalid location, or a missing library for it, ends the command before anything is deleted.
        location_of(settings.archive)
    archive_ended = False
    if no_archive:
        with open_session(lambda: build_dsn(settings), settings, "partbox purge") as conn:
            archive_ended = end_archive(conn, settings.schema_name)
            if archive_ended:
                typer.echo("partbox: no archive is kept any more", err=True)
    with stoppable() as stopped:
        if interval is None:
            raise typer.Exit(_purge_once(settings, dry_run, outbox.json, stopped, archive_ended))
        _purge_repeatedly(settings, interval, outbox.json, stopped)


def _parse_interval(every: str, dry_run: bool) -> float:
    if dry_run:
        raise PartboxError("--dry-run counts once: leave --every out")
    interval = parse_duration("--every", every)
    if interval <= 0:
        raise PartboxError(f"--every {every!r} must be more than 0")
    return interval


def _purge_once(settings: Settings, dry_run: bool, json: bool, stopped: SignalFlag, archive_ended: bool) -> int:
    # If `archive_ended` is True, something was done already, so a purge of nothing is no failure. The result is the
    # exit code.
    verb = "would purge" if dry_run else "purged"
    with Console(stderr=True).status(f"{verb} …") as status:

        def progress(sofar: Purged) -> None:
            archived = f"archived {format_count(sofar.archived, 'record')}, " if sofar.archived else ""
            status.update(f"{archived}{verb} {sofar} so far")

        purged = run(
            lambda: build_dsn(settings), settings, dry_run=dry_run, is_stopped=stopped.is_set, progress=progress
        )
    # Segments whose oldest record has expired, with the reasons to keep them. A reason may have gone since the purge.
    found = [] if purged.total and not dry_run else list_segments(lambda: build_dsn(settings), settings)
    past_due = [each for each in found if has_expired_records(each.segment, settings.retain_done)]
    held = {each.segment.name: why for each in past_due if (why := list_reasons(each))}
    if json:
        print_json(asdict(purged) | {"dry_run": dry_run} | ({"held": held} if dry_run else {}))
    else:
        if purged.archived:
            typer.echo(_format_archived(purged, dry_run))
        is_clear = purged.complete and purged.unarchived is None and purged.waiting is None and not past_due
        nothing = "would purge nothing" if dry_run else "nothing was purged"
        typer.echo(f"{verb} {purged}" if purged.total else "nothing has expired" if is_clear else nothing)
        for name, why in held.items():
            typer.echo(f"held back in {name}: {escape_unprintable('; '.join(why))}")
    if _print_problems(purged):
        return 1
    if purged.complete:
        is_due = purged.waiting is not None or any(each.is_needed for each in past_due)
        return int(is_due and not (purged.total or purged.archived or dry_run or archive_ended))
    if stopped.is_set():
        return report_interrupt("the same command continues with the rest")
    typer.echo(f"partbox: not complete: {ELSEWHERE}", err=True)
    return 0


def _format_archived(purged: Purged, dry_run: bool) -> str:
    if dry_run:
        return f"would archive {format_count(purged.archived, 'record')}; more may be purged after that"
    return f"archived {format_count(purged.archived, 'record')} in {format_count(purged.files, 'file')}"


def _purge_repeatedly(settings: Settings, interval: float, json: bool, stopped: SignalFlag) -> None:
    # An error of the first purge is raised. Errors of later purges are printed.
    once = partial(run, lambda: build_dsn(settings), settings, patient=True, is_stopped=stopped.is_set)
    _print_line(once(), json)
    while not stopped.wait(interval):
        try:
            _print_line(once(), json)
        except (PartboxError, psycopg.Error) as error:
            consequence = f"expired data stays until the next purge in {format_duration(interval)}"
            typer.echo(
                f"partbox: purge failed, {consequence}: {escape_unprintable(format_error_line(error))}", err=True
            )


def _print_line(purged: Purged, json: bool) -> None:
    if json:
        typer.echo(orjson.dumps(asdict(purged) | {"dry_run": False}).decode())
        return
    if purged.archived:
        typer.echo(_format_archived(purged, False))
    if purged.total:
        typer.echo(f"purged {purged}")
    _print_problems(purged)


def _print_problems(purged: Purged) -> bool:
    # The result is True if anything failed. An archive that is waited for is no failure.
    if purged.waiting is not None:
        typer.echo(f"partbox: not archived yet: {escape_unprintable(purged.waiting)}", err=True)
    if purged.unarchived is not None:
        typer.echo(f"partbox: not archived, so the records stay: {escape_unprintable(purged.unarchived)}", err=True)
    if purged.untended is not None:
        typer.echo(f"partbox: segments of the log were not changed: {escape_unprintable(purged.untended)}", err=True)
    return purged.unarchived is not None or purged.untended is not None
