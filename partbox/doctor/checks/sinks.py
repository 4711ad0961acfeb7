"""Brokers that do not take what is sent to them."""

from collections.abc import Iterator

from partbox.db.delivery.traffic import Traffic
from partbox.db.inspect.stats import Cluster
from partbox.doctor.case import Case, Severity, Symptom, subscription_check
from partbox.doctor.limits import UNREACHABLE
from partbox.doctor.words import said
from partbox.text.wording import age, brief, counted, in_short, several


@subscription_check("sink", Severity.PROBLEM, Severity.NOTE)
def sink(case: Case, cluster: Cluster) -> Iterator[Symptom]:
    """A broker has acknowledged nothing for ten seconds, and what is sent to it fails: its events wait in the log. As a
    note: the messages that each sink has sent since its processes began, and how long its broker takes.
    """
    failing = [each for each in cluster.sinks if (each.failing or 0.0) > UNREACHABLE]
    failing.sort(key=lambda each: -(each.failing or 0.0))
    if failing:
        yield Symptom(
            f"nothing is acknowledged by the broker of {several([in_short(each.sink) for each in failing])}, for "
            f"{age(failing[0].failing)}",
            (
                *(f"{in_short(each.sink)}, for {age(each.failing)}: {said(each.error)}" for each in failing),
                *map(_figures, cluster.sinks),
            ),
            (
                "bring the broker back, or what is between it and the workers: what waits is then sent in order, "
                "and nothing is lost meanwhile",
            ),
            lasts=failing[0].failing,
        )
    elif cluster.sinks:
        yield Symptom(
            f"{counted(len(cluster.sinks), 'sink')} at work",
            tuple(map(_figures, cluster.sinks)),
            severity=Severity.NOTE,
        )


def _figures(each: Traffic) -> str:
    took = "" if each.mean is None else f", acknowledged in {brief(each.mean)} on average"
    again = f", {each.retries:,} sent again" if each.retries else ""
    return f"{in_short(each.sink)}: {each.sent:,} sent{took}, {each.in_flight:,} in flight{again}"
