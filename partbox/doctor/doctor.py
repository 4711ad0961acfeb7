"""Looks, looks again where a moment may deceive, and judges."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from psycopg import Connection

from partbox.db.connect import connect
from partbox.db.inspect.evidence import Evidence, Thresholds, gather, gather_again
from partbox.db.inspect.stats import Overview
from partbox.doctor.case import Case, living, ownerless, standing
from partbox.doctor.checks import CHECKS
from partbox.doctor.crowd import gathered
from partbox.doctor.finding import Finding, Severity, healthy
from partbox.doctor.limits import BACKLOG, BLOCKED, LATELY, Limits
from partbox.settings import Settings

PATIENCE = 30.0  # seconds a statement may take
LOOK_AGAIN = 3.0  # seconds; a handover takes less than one

ORDER = tuple(Severity)


@dataclass(frozen=True, slots=True)
class Report:
    """Doctor's findings, the worst first; `checks` are the names of all checks made."""

    schema: str
    at: datetime
    healthy: bool
    findings: tuple[Finding, ...]
    checks: tuple[str, ...]


def examine(
    dsn: Callable[[], str],
    settings: Settings,
    limits: Limits,
    *,
    wait: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.time,
) -> Report:
    """A report on the outbox, nothing changed; SchemaError or psycopg.Error if there is none that can be looked at."""
    with connect(dsn(), lease=PATIENCE, pooler=settings.pooler, name="partbox doctor") as conn:
        return report(settings.schema_name, judge(_case(conn, settings.schema_name, limits, wait, clock)))


def judge(case: Case) -> list[Finding]:
    """The findings of every check on the case, the worst first."""
    found = [finding for check in CHECKS for finding in gathered(case, check(case))]
    return sorted(found, key=lambda each: ORDER.index(each.severity))


def report(schema: str, findings: Sequence[Finding]) -> Report:
    """A report of these findings as of now."""
    checks = tuple(check.name for check in CHECKS)
    return Report(schema, datetime.now(UTC), healthy(findings), tuple(findings), checks)


def _case(
    conn: Connection[Any],
    schema: str,
    limits: Limits,
    wait: Callable[[float], object],
    clock: Callable[[], float],
) -> Case:
    asked = clock()
    evidence = gather(conn, schema, Thresholds(LATELY, limits.overdue))
    first = evidence.overview
    case = Case(schema, evidence, limits, skew=_skew(evidence, asked, clock()))
    if first is None or not _doubtful(first):
        return case
    wait(LOOK_AGAIN)
    return replace(case, before=first, evidence=gather_again(conn, schema, evidence))


def _doubtful(seen: Overview) -> bool:
    """True if a second look tells a handover from a partition that nobody takes, a burst from a growing backlog, what
    has just become visible from what has been waiting."""
    return any(
        ownerless(each) or standing(each) or (each.pending >= BACKLOG and (each.oldest_age or 0) > BLOCKED)
        for each in seen.clusters
        if living(each) and not each.paused
    )


def _skew(evidence: Evidence, before: float, after: float) -> float:
    """Seconds by which this host's clock is ahead of the database's, which was read in between."""
    if evidence.server is None:
        return 0.0
    there = evidence.server.clock
    return before - there if there < before else after - there if there > after else 0.0
