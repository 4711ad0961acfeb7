"""Checks for objects that hide rows from workers, keep them from writing, or run foreign code as their role."""

from collections.abc import Iterator

from partbox.db.inspect.facts import ForeignTrigger
from partbox.doctor.case import Case, Severity, Symptom, check, group_by
from partbox.doctor.phrases import is_copyable, quote_name
from partbox.text.wording import format_count, format_names


@check("row-security", Severity.PROBLEM)
def row_security(case: Case) -> Iterator[Symptom]:
    """Report that row security is on for a table and hides rows from the role of the workers. Workers read nothing
    until row security is off or the role is exempt."""
    hidden = (each for each in case.evidence.access if each.hidden)
    for role, of_role in group_by(hidden, lambda each: each.role).items():
        tables = [each.name or "" for each in of_role]
        yield Symptom(
            f"row security hides rows of {format_names(tables)} from role {role}: its workers read nothing",
            ("an event that a worker may not see would be lost, so PostgreSQL is asked to fail instead",),
            (
                *(f"`alter table {quote_name(case.schema)}.{each} disable row level security`" for each in tables),
                f"or exempt the role: `alter role {quote_name(role)} bypassrls`",
            ),
        )


@check("privileges", Severity.PROBLEM)
def privileges(case: Case) -> Iterator[Symptom]:
    """Report that the role of the workers has lost a privilege. Operations that need the privilege fail, and are
    retried until it is granted."""
    lacking = (each for each in case.evidence.access if each.missing)
    for role, of_role in group_by(lacking, lambda each: each.role).items():
        yield Symptom(
            f"role {role} of workers lacks {format_count(sum(len(each.missing) for each in of_role), 'privilege')}",
            tuple(
                f"{format_names(each.missing)} on {' '.join(filter(None, (each.kind, each.name)))}" for each in of_role
            ),
            (
                f"{case.format_command('init', None, options=(f'--worker-role={role}',))} grants all "
                "needed privileges again",
            ),
        )


@check("displaced", Severity.PROBLEM)
def displaced(case: Case) -> Iterator[Symptom]:
    """Report that tables, segments or cursors are missing from their place. Another object stands in the place of a
    table of partbox, a segment was detached from the log by hand, so that its events are invisible, or cursors were
    deleted. Workers read nothing until all is restored."""
    if case.evidence.displaced is not None:
        problem, remedy = case.evidence.displaced
        yield Symptom(problem, (), (remedy,) if remedy else ())


@check("triggers", Severity.PROBLEM, Severity.NOTE)
def triggers(case: Case) -> Iterator[Symptom]:
    """Report that a table of partbox has a trigger or a rule of somebody else. The finding is a problem if it seems to
    suppress writes, which raises no error: publishers and workers count the rows they have written, fail, and retry
    until the trigger or rule is dropped."""
    found, schema = case.evidence.triggers, quote_name(case.schema)
    for severity in (Severity.PROBLEM, Severity.NOTE):
        of_role = [each for each in found if each.may_drop_rows is (severity is Severity.PROBLEM)]
        if not of_role:
            continue
        tables = format_names([*dict.fromkeys(each.table for each in of_role)])
        summary = f"there are triggers or rules that partbox did not make on {tables}"
        if severity is Severity.PROBLEM:
            summary += ", which may keep rows from being written: publishers and workers then fail"
        drops = (f"`drop {each.kind} {quote_name(each.name)} on {schema}.{quote_name(each.table)}`" for each in of_role)
        yield Symptom(summary, tuple(map(_describe_trigger, of_role)), tuple(drops)[:5], severity=severity)


@check("search-path", Severity.WARNING)
def search_path(case: Case) -> Iterator[Symptom]:
    """Report that other roles may create functions in a schema of the `search_path` of the role that doctor connects
    as.

    PostgreSQL prefers a function with exactly matching arguments to its own, so these roles can run code as that role:
    in transactional handlers, behind a pooler, and in other programs. Sessions of partbox do not use the `search_path`.
    PostgreSQL 14 let all roles create in `public`, and a database that comes from it still does."""
    for each in case.evidence.path:
        if not each.creators:
            continue
        ends = tuple(
            f"`alter schema {each.name} owner to …`"
            if who == each.owner
            else f"`revoke create on schema {each.name} from {who}`"
            for who in each.creators
            if is_copyable(each.name, who)
        )
        yield Symptom(
            f"other roles can run code as role {each.user}: they may create functions in schema {each.name}, which is "
            "in its search_path",
            (f"may create there: {format_names(each.creators)}",),
            (*ends[:5], f"or leave the schema out: `alter role {each.user} set search_path = …`"),
        )


def _describe_trigger(each: ForeignTrigger) -> str:
    runs = f", which runs {each.function}" if each.function else ""
    return f"{each.kind} {quote_name(each.name)} on {each.table}{runs}"
