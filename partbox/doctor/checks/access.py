"""Causes that keep workers from seeing everything: row security, privileges, tables and segments in other places."""

from collections.abc import Iterator

from partbox.db.inspect.facts import WorkerAccess
from partbox.doctor.case import Case, check
from partbox.doctor.finding import Finding, Severity
from partbox.doctor.words import listed, quoted
from partbox.rules.wording import counted


@check("row-security", Severity.PROBLEM)
def row_security(case: Case) -> Iterator[Finding]:
    """Row security is on for a table and hides rows from the role of the workers: they read nothing until it is off, or
    the role is exempt."""
    hidden = [each for each in case.evidence.access if each.hidden]
    for role in dict.fromkeys(each.role for each in hidden):
        tables = [each.name or "" for each in hidden if each.role == role]
        yield Finding(
            Severity.PROBLEM,
            f"row security hides rows of {listed(tables)} from role {role}: its workers read nothing",
            ("an event that a worker may not see would be lost, so PostgreSQL is asked to fail instead",),
            (
                *(f"`alter table {quoted(case.schema)}.{each} disable row level security`" for each in tables),
                f"or exempt the role: `alter role {quoted(role)} bypassrls`",
            ),
        )


@check("privileges", Severity.PROBLEM)
def privileges(case: Case) -> Iterator[Finding]:
    """A privilege that workers need was taken from their role: what needs it fails, and is tried again until it is
    granted."""
    lacking = [each for each in case.evidence.access if each.missing]
    for role in dict.fromkeys(each.role for each in lacking):
        its = [each for each in lacking if each.role == role]
        yield Finding(
            Severity.PROBLEM,
            f"role {role} of workers lacks {counted(sum(len(each.missing) for each in its), 'privilege')}",
            tuple(f"{listed(each.missing)} on {_object(each)}" for each in its),
            (f"{case.command('init', None, options=(f'--worker-role={role}',))} grants all that it needs again",),
        )


@check("displaced", Severity.PROBLEM)
def displaced(case: Case) -> Iterator[Finding]:
    """Something else stands in the place of a table of ours, or a segment was detached from the log by hand: events in
    it are invisible. Workers read nothing until it is back."""
    if case.evidence.displaced is not None:
        problem, remedy = case.evidence.displaced
        yield Finding(Severity.PROBLEM, problem, (), (remedy,) if remedy else ())


def _object(access: WorkerAccess) -> str:
    return access.kind if access.name is None else f"{access.kind} {access.name}"
