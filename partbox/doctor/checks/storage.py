"""Checks of the log: its ids, cursors and segments, and records that should have been purged."""

from collections.abc import Iterator

from partbox.db.delivery.proof import lower_cursors_sql, raise_sequence_sql
from partbox.db.inspect.facts import SegmentFacts, SequenceFacts
from partbox.db.inspect.stats import Cluster
from partbox.doctor.case import Case, Severity, Symptom, check, list_working_processes
from partbox.doctor.limits import SEGMENT_LEFT
from partbox.doctor.phrases import format_error, quote_literal, quote_name
from partbox.protocol.segments import MIN_AHEAD
from partbox.segments.provisioning import describe_trigger_remedy
from partbox.text.wording import format_age, format_count

DEFAULT_ID = "CASE WHEN (pg_current_xact_id() IS NOT NULL) THEN nextval("
DEFAULT_XID = "pg_current_xact_id()"


@check("copied", Severity.PROBLEM)
def copied(case: Case) -> Iterator[Symptom]:
    """Report that the schema came from a dump or by logical replication. The cursors refer to transactions of another
    server, so workers would lose events, and refuse to start."""
    if not case.evidence.is_original:
        yield Symptom(
            "this schema is a logical copy: its cursors refer to another database cluster",
            ("the marker in table meta was not written here, or a saved snapshot lies in this server's future",),
            (
                f"stop all workers of this schema and run {case.format_command('rebase')}; once restarted, they "
                "deliver the events that were undelivered when the copy was made",
            ),
        )


@check("sequence-behind", Severity.PROBLEM)
def sequence_behind(case: Case) -> Iterator[Symptom]:
    """Report that the id sequence is behind ids in use, of the log, a cursor or a parked event. The sequence was set
    back, or was not copied with the rest. New events get ids that are taken, or that count as consumed. Workers read
    nothing until the sequence is raised."""
    sequence, highest_used_id = case.evidence.sequence, case.evidence.highest_used_id
    if sequence is None or sequence.last is None or highest_used_id is None or highest_used_id <= sequence.last:
        return
    yield Symptom(
        f"ids up to {highest_used_id:,} are used, the sequence is at {sequence.last:,}",
        ("events that are published now get ids that are taken, or that a subscription has passed",),
        (f"before anything else is published, run `{raise_sequence_sql(case.schema, highest_used_id)}`",),
    )


@check("hidden", Severity.PROBLEM)
def hidden(case: Case) -> Iterator[Symptom]:
    """Report that events got ids that cursors had passed, because the id sequence was set back. Workers that start read
    nothing until the cursors are lowered. The check covers the last 10,000 ids that were passed."""
    found = case.evidence.hidden
    if found is not None:
        yield Symptom(
            f"{format_count(found.records, 'record')} got ids that cursors had passed, and would never be delivered",
            (f"their ids lie between {found.first:,} and {found.last:,}",),
            (f"`{lower_cursors_sql(case.schema, found.first)}`, then they are delivered",),
        )


@check("life", Severity.PROBLEM)
def life(case: Case) -> Iterator[Symptom]:
    """Report that the sequence `life` cannot be read, so no worker reads: a standby was promoted before its first
    restartpoint. Workers that start, and migrations, create the sequence again."""
    if case.evidence.life_error is not None:
        yield Symptom(
            'the sequence "life" cannot be read, so no worker reads events',
            (case.evidence.life_error,),
            (f"{case.format_command('migrate')} creates the sequence again, as starting workers do",),
        )


@check("sequence", Severity.PROBLEM)
def sequence(case: Case) -> Iterator[Symptom]:
    """Report that ids are not drawn as the cursors require: one by one, rising, after the transaction id. With a cache,
    a cycle, another increment or other defaults, events are lost or reordered."""
    found = case.evidence.sequence
    wrong = list(_list_sequence_faults(case, found)) if found else []
    if wrong:
        yield Symptom(
            "record ids are not drawn as the cursors require",
            tuple(what for what, _ in wrong),
            tuple(f"`{remedy}`" for _, remedy in wrong),
        )


@check("segments", Severity.WARNING)
def segments(case: Case) -> Iterator[Symptom]:
    """Report that the log runs out of segments, or segments cannot be changed.

    The last segment is nearly full, or the default segment already holds records: it takes any record, but slows down
    polls and purges. Or no segment can be made, emptied or dropped, because an event trigger of the database fails, as
    most triggers do that name a table without its schema. Or a segment was begun and is missing, so that publishing
    will fail at its first id."""
    found, ids = case.evidence.segments, case.evidence.sequence
    if found is None or ids is None or ids.last is None:
        return
    if found.barred is not None:
        yield Symptom(
            f"the segment from id {found.barred:,} was begun but is missing: publishing would fail at that id",
            (f"the newest id is {ids.last:,}",),
            _list_segment_remedies(case),
        )
    triggers, ahead = case.evidence.event_triggers, sum(each > ids.last for each in found.lowers)
    # If the last segment has room, records in the default segment are old ones, and no reason for a finding.
    near = found.end is None or ids.last > found.end - SEGMENT_LEFT
    if not near and found.refused is None and not (triggers and not ahead):
        return
    yield Symptom(
        _format_segments(found, near, ahead),
        (
            f"the last segment ends before id {found.end:,}; the newest id is {ids.last:,}"
            if found.end
            else "there is no segment",
            *(("the default segment holds records",) if found.in_default and near else ()),
            *((f"changing a segment failed: {format_error(found.refused)}",) if found.refused else ()),
            *(f"an event trigger runs when a segment is made: {each}" for each in triggers),
        ),
        (
            *((f"if an event trigger is the cause: {describe_trigger_remedy(triggers)}",) if triggers else ()),
            *_list_segment_remedies(case),
        ),
    )


def _format_segments(found: SegmentFacts, near: bool, ahead: int) -> str:
    if near:
        return "the log's last segment is full" if found.in_default else "the log's last segment is nearly full"
    if ahead < MIN_AHEAD:
        return f"segments of the log are not made ahead of need: {ahead} of {MIN_AHEAD}"
    return "segments of the log cannot be emptied or dropped"


@check("archive", Severity.WARNING)
def archive(case: Case) -> Iterator[Symptom]:
    """Report that an archive is kept, but expired records do not get into it: writing fails, or no process writes it. A
    purge removes archived records only, so the log grows."""
    found = case.evidence.archive
    if found is None:
        return
    end = f"or stop archiving: {case.format_command('purge --no-archive')}"
    waits = () if found.first is None else (f"record {found.first:,} and all later records wait to be archived",)
    if found.problem is not None:
        yield Symptom(
            f"writing the archive has failed for {format_age(found.failing)}: expired records stay in the log",
            (found.problem, *waits),
            ("the reason names the remedy; archiving is tried again at the next purge", end),
        )
    elif found.oldest is not None and found.oldest > case.limits.overdue_age:
        yield Symptom(
            f"an archive is kept, but records up to {format_age(found.oldest)} old are not in it: they stay in the log",
            (f"retention {format_age(case.limits.retain_done)}", *waits),
            ("set `archive` for the workers, or repeat " + case.format_command("purge --archive DIR"), end),
        )


@check("purge", Severity.WARNING)
def purge(case: Case) -> Iterator[Symptom]:
    """Report that records are long past their retention. A subscription still needs them (it is named, with the
    reason), or no process purges. The log grows."""
    for held in case.evidence.retention_holds:
        cluster = next((each for each in case.clusters if each.subscription == held.subscription), None)
        yield Symptom(
            f"the subscription keeps records up to {format_age(held.age)} old from being purged",
            (
                f"{format_count(held.partitions, 'partition')}; retention {format_age(case.limits.retain_done)}",
                _keep_reason(cluster, held.floors, held.partitions),
            ),
            (
                "find out why the subscription is behind: see the other findings",
                f"or, if nobody needs it: {case.format_command('subscription drop', None, held.subscription)}",
            ),
            held.subscription,
        )
    expired = case.evidence.expired
    if expired and expired.partitions and expired.age is not None:
        yield Symptom(
            f"records up to {format_age(expired.age)} old, which nobody needs, have not been purged",
            (f"{format_count(expired.partitions, 'partition')}; retention {format_age(case.limits.retain_done)}",),
            (
                f"now: {case.format_command('purge')}",
                "workers purge every `purge_interval`: look for `purge failed` in their logs; without workers: "
                f"{case.format_command('purge --every 30m')}",
            ),
        )


def _keep_reason(cluster: Cluster | None, floors: int, partitions: int) -> str:
    if cluster is not None and cluster.paused:
        return "it is paused"
    if cluster is not None and not list_working_processes(cluster):
        return "no process works on it"
    if floors == partitions:
        return (
            "the subscription has consumed these records, but a transaction that was open at its last save may still "
            "write records among them"
        )
    return "it has not read that far yet"


def _format_sequence(case: Case) -> str:
    return quote_literal(f"{quote_name(case.schema)}.record_id_seq")


def _list_sequence_faults(case: Case, found: SequenceFacts) -> Iterator[tuple[str, str]]:
    name = f"{quote_name(case.schema)}.record_id_seq"
    column = f"alter table {quote_name(case.schema)}.record alter column"
    defaults = found.defaults or {}
    if found.increment != 1:
        yield f"the sequence increases by {found.increment}, not 1", f"alter sequence {name} increment by 1"
    if found.cache != 1:
        yield f"the sequence caches {found.cache} ids, so ids do not rise over time", f"alter sequence {name} cache 1"
    if found.cycle:
        yield "the sequence would begin again at its end", f"alter sequence {name} no cycle"
    if found.owned_by is not None:
        what = f"the sequence is owned by a column of {found.owned_by}: truncating that table may set back the sequence"
        yield what, f"alter sequence {name} owned by none"
    if not _normalize_spaces(defaults.get("id")).startswith(DEFAULT_ID):
        default = f"case when pg_current_xact_id() is not null then nextval({_format_sequence(case)}) end"
        yield (
            "record.id has another default: a record id could be drawn before the transaction id",
            (f"{column} id set default {default}"),
        )
    if _normalize_spaces(defaults.get("xid")) != DEFAULT_XID:
        yield "record.xid has another default", f"{column} xid set default pg_current_xact_id()"


def _normalize_spaces(expression: str | None) -> str:
    # The quotes come from the setting `quote_all_identifiers`.
    return " ".join((expression or "").replace('"', "").split())


def _list_segment_remedies(case: Case) -> tuple[str, ...]:
    # Both remedies make segments ahead of need, without stopping publishers.
    return (
        f"now: {case.format_command('purge')}",
        "workers make missing segments twice a minute: look for `segments_failed` in their logs; without workers: "
        f"{case.format_command('purge --every 30m')}",
    )
