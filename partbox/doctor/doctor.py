"""Looks, looks again where a moment may deceive, and judges."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from partbox.db.connect import connect
from partbox.db.inspect.evidence import Evidence, Thresholds, gather, gather_again
from partbox.db.inspect.stats import Overview
from partbox.db.sql import Conn
from partbox.doctor.case import Case, Finding, Severity, healthy, living, ownerless, standing, waiting
from partbox.doctor.checks import CHECKS
from partbox.doctor.limits import BACKLOG, BLOCKED, LATELY, Limits
from partbox.settings import Settings
from partbox.text.wording import in_short

PATIENCE = 30.0  # seconds a statement may take
LOOK_AGAIN = 3.0  # seconds; a handover takes less than one

FEW = 5  # subscriptions that have a finding each; of more as many are named
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
    found = [finding for check in CHECKS for finding in _gathered(case, check(case))]
    return sorted(found, key=lambda each: ORDER.index(each.severity))


def report(schema: str, findings: Sequence[Finding]) -> Report:
    """A report of these findings as of now."""
    checks = tuple(check.name for check in CHECKS)
    return Report(schema, datetime.now(UTC), healthy(findings), tuple(findings), checks)


def _case(conn: Conn, schema: str, limits: Limits, wait: Callable[[float], object], clock: Callable[[], float]) -> Case:
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


def _gathered(case: Case, found: Iterable[Finding]) -> Iterator[Finding]:
    """The findings of one check; those of more than a few subscriptions as one, with the worst of them."""
    every = [*found]
    for severity in Severity:
        alike = [each for each in every if each.severity is severity]
        own = [each for each in alike if each.subscription is not None]
        yield from (alike if len(own) <= FEW else (*(each for each in alike if each not in own), _merged(case, own)))


def _merged(case: Case, alike: Sequence[Finding]) -> Finding:
    most = {each.subscription: waiting(each) for each in case.clusters}
    worst, *others = sorted(alike, key=lambda each: -most.get(each.subscription or "", 0))
    name = _name(worst)
    return Finding(
        worst.severity,
        f"{len(alike):,} subscriptions, the worst {name}: {worst.summary}",
        (
            *(f"{_name(each)}: {'; '.join((each.summary, *each.evidence[:1]))}" for each in (worst, *others)[:FEW]),
            f"and {len(alike) - FEW:,} more",
        ),
        (f"for {name}, and for each of the others with its own name:", *worst.remedy),
        cause=worst.cause,
        since=min((each.since for each in alike if each.since), default=None),
    )


def _name(finding: Finding) -> str:
    return in_short(finding.subscription or "", 60)
