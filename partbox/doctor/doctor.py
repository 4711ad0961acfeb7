"""Runs the checks on evidence that is read once, or twice where one moment may mislead."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from partbox.db.connect import connect
from partbox.db.inspect.evidence import Evidence, Thresholds, gather_evidence, reread_overview
from partbox.db.inspect.stats import Overview
from partbox.db.sql import Conn
from partbox.doctor.case import (
    Case,
    Finding,
    Severity,
    count_waiting,
    is_healthy,
    list_stalled_partitions,
    list_unowned_partitions,
    list_working_processes,
)
from partbox.doctor.checks import CHECKS
from partbox.doctor.limits import KEY_WAIT, MANY_PENDING, RECENT_DEATH_AGE, Limits
from partbox.settings import Settings
from partbox.text.wording import shorten_text

STATEMENT_TIMEOUT = 30.0  # seconds
SECOND_LOOK_AFTER = 3.0  # seconds; a handover takes less than one

# A check that finds more subscriptions than that yields one finding, which names as many.
MAX_SEPARATE = 5
SEVERITY_ORDER = tuple(Severity)


@dataclass(frozen=True, slots=True)
class Report:
    """The result of `partbox doctor`: the problems that were found and the names of the checks that were made."""

    # The worst findings come first.

    schema: str
    at: datetime
    healthy: bool
    findings: tuple[Finding, ...]
    checks: tuple[str, ...]


def examine_outbox(
    dsn: Callable[[], str],
    settings: Settings,
    limits: Limits,
    *,
    wait: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.time,
) -> Report:
    """Look for problems in an outbox without changing it, and return a report."""
    # Raises SchemaError or psycopg.Error if there is no outbox that can be read.
    with connect(dsn(), lease=STATEMENT_TIMEOUT, pooler=settings.pooler, name="partbox doctor") as conn:
        return build_report(
            settings.schema_name, run_checks(_build_case(conn, settings.schema_name, limits, wait, clock))
        )


def run_checks(case: Case) -> list[Finding]:
    """Run all checks of `partbox doctor` on a snapshot of an outbox, and return the problems, the worst first."""
    found = [finding for check in CHECKS for finding in _merge_findings(case, check(case))]
    return sorted(found, key=lambda each: SEVERITY_ORDER.index(each.severity))


def build_report(schema: str, findings: Sequence[Finding]) -> Report:
    checks = tuple(check.name for check in CHECKS)
    return Report(schema, datetime.now(UTC), is_healthy(findings), tuple(findings), checks)


def _build_case(
    conn: Conn, schema: str, limits: Limits, wait: Callable[[float], object], clock: Callable[[], float]
) -> Case:
    asked = clock()
    evidence = gather_evidence(conn, schema, Thresholds(RECENT_DEATH_AGE, limits.overdue_age))
    first = evidence.overview
    case = Case(schema, evidence, limits, clock_skew=_measure_clock_skew(evidence, asked, clock()))
    if first is None or not _needs_second_look(first):
        return case
    wait(SECOND_LOOK_AFTER)
    return replace(case, before=first, evidence=reread_overview(conn, schema, evidence))


def _needs_second_look(seen: Overview) -> bool:
    # A second look tells a handover from a partition that nobody takes, a burst from a growing backlog, and records
    # that just became visible from records that have waited.
    return any(
        list_unowned_partitions(each)
        or list_stalled_partitions(each)
        or (each.pending >= MANY_PENDING and (each.oldest_age or 0) > KEY_WAIT)
        for each in seen.clusters
        if list_working_processes(each) and not each.paused
    )


def _measure_clock_skew(evidence: Evidence, before: float, after: float) -> float:
    # The result is the minimal number of seconds by which this host's clock is ahead of the database's.
    # The database's clock was read between the local times `before` and `after`.
    if evidence.server is None:
        return 0.0
    there = evidence.server.clock
    return before - there if there < before else after - there if there > after else 0.0


def _merge_findings(case: Case, found: Iterable[Finding]) -> Iterator[Finding]:
    # Findings of the same severity in more than MAX_SEPARATE subscriptions are merged into one.
    every = [*found]
    for severity in Severity:
        alike = [each for each in every if each.severity is severity]
        own = [each for each in alike if each.subscription is not None]
        yield from (
            alike
            if len(own) <= MAX_SEPARATE
            else (*(each for each in alike if each not in own), _merge_alike(case, own))
        )


def _merge_alike(case: Case, alike: Sequence[Finding]) -> Finding:
    most = {each.subscription: count_waiting(each) for each in case.clusters}
    worst, *others = sorted(alike, key=lambda each: -most.get(each.subscription or "", 0))
    name = _format_subscription(worst)
    return Finding(
        worst.severity,
        f"{len(alike):,} subscriptions, the worst {name}: {worst.summary}",
        (
            *(
                f"{_format_subscription(each)}: {'; '.join((each.summary, *each.evidence[:1]))}"
                for each in (worst, *others)[:MAX_SEPARATE]
            ),
            f"and {len(alike) - MAX_SEPARATE:,} more",
        ),
        (f"for {name}, and for each other subscription with its own name:", *worst.remedy),
        cause=worst.cause,
        since=min((each.since for each in alike if each.since), default=None),
    )


def _format_subscription(finding: Finding) -> str:
    return shorten_text(finding.subscription or "", 60)
