"""The alert rules: what calls a person, what it means and what to do.

Each has a `for`, so that what passes by itself calls nobody. What a pause explains is not told a second time. All
numbers are those of thresholds.toml.
"""

from typing import Any

Limits = dict[str, Any]

OF = "job, database, subscription"
NOT_PAUSED = f"unless on ({OF}) max by ({OF}) (partbox_subscription_paused) == 1"
DOCTOR = "`partbox doctor` names the cause."


def rules(limits: Limits) -> dict[str, Any]:
    """The rule file, as data."""
    groups = {"partbox-subscriptions": OF_SUBSCRIPTIONS, "partbox-nodes": OF_NODES}
    return {"groups": [{"name": name, "rules": [make(limits) for make in made]} for name, made in groups.items()]}


def backlog(limits: Limits) -> dict[str, Any]:
    own = limits["backlog"]
    pending = 'partbox_records{status="pending"}'
    return alert(
        "PartboxBacklogGrowing",
        f"(max by ({OF}) ({pending}) > {own['records']} and max by ({OF}) (deriv({pending}[{own['window']}])) > 0)"
        f" {NOT_PAUSED}",
        own["for"],
        "warning",
        "{{ $value | humanize }} records wait in {{ $labels.subscription }}, and they become more",
        "More is published than is delivered. If handlers are busy, start more processes or raise --concurrency; if "
        f"they are not: {DOCTOR}",
    )


def oldest(limits: Limits) -> dict[str, Any]:
    own = limits["oldest"]
    return alert(
        "PartboxOldestPending",
        f"max by ({OF}) (partbox_oldest_pending_age_seconds) > {own['seconds']} {NOT_PAUSED}",
        own["for"],
        "critical",
        "A record of {{ $labels.subscription }} has waited for {{ $value | humanizeDuration }}",
        f"A partition is read no further, or none is; what waits behind a failure is not counted here. {DOCTOR}",
    )


def lag(limits: Limits) -> dict[str, Any]:
    own = limits["lag"]
    age = "partbox_oldest_pending_age_seconds"
    return alert(
        "PartboxLagGrowing",
        f"(max by ({OF}) (deriv({age}[{own['window']}])) > 0 and max by ({OF}) ({age}) > {own['seconds']})"
        f" {NOT_PAUSED}",
        own["for"],
        "warning",
        "{{ $labels.subscription }} falls further behind, by {{ $value | humanize }} s each second",
        f"At 1 s a second nothing of its oldest partition is delivered; below, too little. {DOCTOR}",
    )


def failures(limits: Limits) -> dict[str, Any]:
    own = limits["failures"]
    return alert(
        "PartboxFailing",
        f"sum by ({OF}, handler) (rate(partbox_failed_total[{own['window']}])) > 0",
        own["for"],
        "warning",
        "{{ $labels.handler }} of {{ $labels.subscription }} keeps failing, {{ $value | humanize }} times a second",
        "The events are tried again; those of the same aggregates wait behind them. The errors: `partbox blocked list "
        "--subscription {{ $labels.subscription }}` and the log. When it is cured: `partbox blocked retry`.",
    )


def blocked(limits: Limits) -> dict[str, Any]:
    own = limits["blocked"]
    return alert(
        "PartboxBlocked",
        f"max by ({OF}) (partbox_blocked_keys) > {own['keys']} {NOT_PAUSED}",
        own["for"],
        "warning",
        "{{ $value | humanize }} aggregates of {{ $labels.subscription }} wait for a failed event of theirs",
        "They go on by themselves when it succeeds or is dead. `partbox blocked list --subscription "
        "{{ $labels.subscription }}` shows its error and when it is tried again; `partbox blocked retry` tries it now, "
        "`partbox blocked skip` gives it up.",
    )


def dead(limits: Limits) -> dict[str, Any]:
    own = limits["dead"]
    return alert(
        "PartboxDead",
        f'max by ({OF}) (partbox_records{{status="dead"}}) > {own["records"]}',
        own["for"],
        "warning",
        "{{ $value | humanize }} events of {{ $labels.subscription }} were given up",
        "They are delivered to nobody until somebody acts: `partbox dead list --subscription "
        "{{ $labels.subscription }}` shows why, then `partbox dead replay` or `partbox dead discard`.",
    )


def unowned(limits: Limits) -> dict[str, Any]:
    return alert(
        "PartboxUnowned",
        f"max by ({OF}) (partbox_partitions_unowned) > 0 {NOT_PAUSED}",
        limits["unowned"]["for"],
        "critical",
        "Nobody delivers {{ $value | humanize }} partitions of {{ $labels.subscription }}",
        f"Too few processes live, or one of them does not claim what is planned for it. {DOCTOR}",
    )


def fence(limits: Limits) -> dict[str, Any]:
    own = limits["fence"]
    return alert(
        "PartboxFenceRejections",
        f"sum by ({OF}) (increase(partbox_fence_rejections_total[{own['window']}])) > {own['rejections']}",
        own["for"],
        "warning",
        "A process of {{ $labels.subscription }} went on after it had lost its partitions",
        "Its saves were refused and nothing is lost, but events may have been delivered twice. It was frozen or cut "
        "off for longer than its lease: look for swapping, stopped containers, and pauses of the machine.",
    )


def no_instance(limits: Limits) -> dict[str, Any]:
    return alert(
        "PartboxNoInstance",
        f'(max by ({OF}) (partbox_records{{status="pending"}}) > 0 and max by ({OF}) (partbox_instances) == 0)'
        f" {NOT_PAUSED}",
        limits["no_instance"]["for"],
        "critical",
        "{{ $value | humanize }} records wait in {{ $labels.subscription }}, which has no process",
        "Start one: `partbox worker … --subscription {{ $labels.subscription }}`. If nobody needs it any more: "
        "`partbox subscription drop`, as it also keeps the log from being purged.",
    )


def paused(limits: Limits) -> dict[str, Any]:
    return alert(
        "PartboxPaused",
        f"max by ({OF}) (partbox_subscription_paused) == 1",
        limits["paused"]["for"],
        "warning",
        f"{{{{ $labels.subscription }}}} has been paused for more than {limits['paused']['for']}",
        "Nothing of it is delivered, and what it has not consumed is not purged: `partbox subscription resume "
        "{{ $labels.subscription }}`.",
    )


def segments(limits: Limits) -> dict[str, Any]:
    own = limits["segments"]
    return alert(
        "PartboxNoSegmentAhead",
        f"max by ({OF}) (partbox_segments_ahead) < {own['ahead']}",
        own["for"],
        "warning",
        "The log of {{ $labels.subscription }} has no segment ahead of its newest id",
        "Supervisors make them twice a minute; look for `segments_failed` in their logs. Publishing goes on, into the "
        "default segment, which slows polls and purges down. `partbox purge` makes them now.",
    )


def restarts(limits: Limits) -> dict[str, Any]:
    own = limits["restarts"]
    return alert(
        "PartboxRestarting",
        f"round(sum by ({OF}) (increase(partbox_process_restarts_total[{own['window']}]))) > {own['times']}",
        own["for"],
        "critical",
        "Processes of {{ $labels.subscription }} die again and again",
        "Each death repeats what was not saved and holds its partitions up. The node's log says how they ended: a "
        "handler that kills its process, too little memory, a timeout.",
    )


def doctor(limits: Limits) -> dict[str, Any]:
    return alert(
        "PartboxDoctorProblem",
        'max by (job, database) (partbox_doctor_problems{severity="problem"}) > 0',
        limits["doctor"]["for"],
        "warning",
        "Doctor finds {{ $value }} problem{{ if gt $value 1.0 }}s{{ end }} in the outbox",
        "Events wait or are lost until somebody acts. `partbox doctor` names each cause, with what shows it and the "
        "command that mends it; the live page shows the same.",
    )


def target(limits: Limits) -> dict[str, Any]:
    return alert(
        "PartboxTargetDown",
        f'up{{job=~"{limits["job"]}"}} == 0',
        limits["target"]["for"],
        "warning",
        "The node at {{ $labels.instance }} does not answer",
        "It has ended, hangs, or its --http address is out of reach. Others take its partitions over, if there are "
        "others: `partbox status` shows who lives.",
    )


def nobody(limits: Limits) -> dict[str, Any]:
    return alert(
        "PartboxNoNode",
        "absent(partbox_database_up)",
        limits["nobody"]["for"],
        "critical",
        "No node of partbox can be seen",
        "Either all workers are down, and events wait in the log, or Prometheus does not find them. `partbox status` "
        "asks the database: if it names no processes, start `partbox worker … --http HOST:PORT`.",
    )


def database(limits: Limits) -> dict[str, Any]:
    return alert(
        "PartboxDatabaseDown",
        "partbox_database_up == 0",
        limits["database"]["for"],
        "critical",
        "The node at {{ $labels.instance }} cannot ask its database{{ with $labels.database }} {{ . }}{{ end }}",
        "While it lasts it delivers nothing and its numbers of the database are missing; it goes on by itself. "
        "`partbox doctor` on that node tells what it meets.",
    )


OF_SUBSCRIPTIONS = (
    backlog,
    oldest,
    lag,
    failures,
    blocked,
    dead,
    unowned,
    fence,
    no_instance,
    paused,
    segments,
    restarts,
)
OF_NODES = (doctor, target, nobody, database)


def alert(name: str, expression: str, wait: str, severity: str, summary: str, description: str) -> dict[str, Any]:
    return {
        "alert": name,
        "expr": expression,
        "for": wait,
        "labels": {"severity": severity},
        "annotations": {"summary": summary, "description": description},
    }
