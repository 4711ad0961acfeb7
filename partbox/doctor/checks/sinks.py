"""Brokers that do not take what is sent to them."""

from collections.abc import Iterator

from partbox.db.traffic import Traffic
from partbox.doctor.case import Case, check
from partbox.doctor.finding import Finding, Severity
from partbox.doctor.limits import UNREACHABLE
from partbox.doctor.words import said
from partbox.rules.wording import age, brief, counted, in_short


@check("sink", Severity.PROBLEM, Severity.NOTE)
def sink(case: Case) -> Iterator[Finding]:
    """A broker has acknowledged nothing for ten seconds, and what is sent to it fails: its events wait in the log. As a
    note: the messages that each sink has sent since its processes began, and how long its broker takes.
    """
    for cluster in case.clusters:
        failing = [each for each in cluster.sinks if (each.failing or 0.0) > UNREACHABLE]
        working = [each for each in cluster.sinks if each not in failing]
        for each in failing:
            yield Finding(
                Severity.PROBLEM,
                f"{in_short(each.sink)} has acknowledged nothing for {age(each.failing)}",
                (f"the last error: {said(each.error)}", figures(each)),
                (
                    "bring the broker back, or what is between it and the workers: what waits is then sent in order, "
                    "and nothing is lost meanwhile",
                ),
                cluster.subscription,
            )
        if working:
            yield Finding(
                Severity.NOTE,
                f"{counted(len(working), 'sink')} at work",
                tuple(figures(each) for each in working),
                subscription=cluster.subscription,
            )


def figures(each: Traffic) -> str:
    """All numbers of a sink in a line."""
    took = "" if each.mean is None else f", acknowledged in {brief(each.mean)} on average"
    again = f", {each.retries:,} sent again" if each.retries else ""
    return f"{in_short(each.sink)}: {each.sent:,} sent{took}, {each.in_flight:,} in flight{again}"
