"""Service level objectives: two indicators as recorded series, and alerts on how fast their error budget burns.

Each alert compares a long window with a short one: the long one says that it matters, the short one that it still goes
on. The factors are those of Google's SRE workbook: 14.4 spends 2 % of a budget of 30 days in an hour, 6 spends 5 % in
six hours, 1 spends 10 % in three days.
"""

from collections.abc import Iterator
from typing import Any

from alerts import NOT_PAUSED, OF, alert

Limits = dict[str, Any]

FAST = ((14.4, "1h", "5m"), (6, "6h", "30m"))
SLOW = ((1, "3d", "6h"),)
WINDOWS = ("5m", "30m", "1h", "6h", "3d")
LATE, WAITING = "partbox:late:ratio", "partbox:waiting:ratio"
DOCTOR = "`partbox doctor` names the cause."


def objectives(limits: Limits) -> dict[str, Any]:
    """The rule file, as data."""
    own = limits["slo"]
    recorded = [_late(own, window) for window in WINDOWS]
    recorded += [_waiting_now(own), *(_waiting(window) for window in WINDOWS)]
    alerts = [*_burns("PartboxDelivery", LATE, own["deliveries"], own, *TOLD_LATE)]
    alerts += _burns("PartboxWaiting", WAITING, own["time"], own, *TOLD_WAITING)
    groups = {"partbox-indicators": recorded, "partbox-objectives": alerts}
    return {"groups": [{"name": name, "rules": rules} for name, rules in groups.items()]}


TOLD_LATE = (
    "of the events of {{ $labels.subscription }} were late or dead",
    "They were delivered after more than {:g} s, or given up: `partbox dead list --subscription "
    "{{{{ $labels.subscription }}}}` and `partbox blocked list --subscription {{{{ $labels.subscription }}}}` show "
    "errors. A backlog that is worked off burns this budget too. " + DOCTOR,
)
TOLD_WAITING = (
    "of the time, events of {{ $labels.subscription }} waited too long for a process",
    "The oldest one that no process had taken up waited for more than {:g} s: too few processes, handlers that "
    "are too slow, or a partition that nobody reads. " + DOCTOR,
)


def _late(own: Limits, window: str) -> dict[str, Any]:
    """Events that were late or became dead, among all that ended."""
    which = f'handler!~"{own["besides"]}"'

    def rate(metric: str, more: str = "") -> str:
        return f"sum by ({OF}) (rate({metric}{{{which}{more}}}[{window}]))"

    ended = f"({rate('partbox_lag_seconds_count')} + {rate('partbox_dead_total')})"
    # A client of Prometheus writes 60.0; OpenTelemetry's exporters write 60.
    in_time = rate("partbox_lag_seconds_bucket", rf', le=~"{own["seconds"]:g}(\\.0)?"')
    return {"record": f"{LATE}{window}", "expr": f"1 - {in_time} / ({ended} > 0)"}


def _waiting_now(own: Limits) -> dict[str, Any]:
    oldest = f"max by ({OF}) (partbox_oldest_pending_age_seconds)"
    return {"record": "partbox:waiting:now", "expr": f"({oldest} > bool {own['seconds']}) {NOT_PAUSED}"}


def _waiting(window: str) -> dict[str, Any]:
    return {"record": f"{WAITING}{window}", "expr": f"avg_over_time(partbox:waiting:now[{window}])"}


def _burns(
    name: str, ratio: str, objective: float, own: Limits, summary: str, description: str
) -> Iterator[dict[str, Any]]:
    budget = 1 - objective
    for ending, severity, pairs in (("Fast", "critical", FAST), ("Slowly", "warning", SLOW)):
        above = (
            " and ".join(f"{ratio}{window} > {factor * budget:.6g}" for window in windows) for factor, *windows in pairs
        )
        yield alert(
            f"{name}Burns{ending}",
            " or ".join(f"({each})" for each in above),
            own["for"],
            severity,
            f"{{{{ $value | humanizePercentage }}}} {summary}; the objective allows {budget * 100:.6g}%",
            description.format(own["seconds"]),
        )
