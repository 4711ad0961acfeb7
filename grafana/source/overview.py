"""The dashboard to begin with: is everything delivered, how fast, and what is in the way?"""

import board
from grafana_foundation_sdk.builders import dashboard
from look import bars, lines, number, stacked
from queries import BY, OF_HANDLER, WHOSE, database, increase, nodes, quantiles, rate

Thresholds = dict[str, dict[str, float]]


def overview(limits: Thresholds) -> dashboard.Dashboard:
    made = board.board("partbox-overview", "overview", "Is everything delivered, how fast, and what is in the way?")
    return board.rows(
        made,
        ("Now", _now(limits)),
        ("Flow", _flow(limits)),
        ("Time", _time()),
        ("Trouble", _trouble()),
        ("Processes", _processes()),
    )


def _now(limits: Thresholds) -> tuple[object, ...]:
    return (
        number(
            "Pending",
            database("records", status="pending"),
            "Records that no cursor has passed: exact up to 10,000 of a partition, then an estimate. Red: as the alert "
            "PartboxBacklogGrowing, which also asks whether they become more.",
            red_from=limits["backlog"]["records"],
        ),
        number(
            "Oldest pending",
            database("oldest_pending_age_seconds"),
            "Age of the oldest record that waits. It grows while nothing is delivered: run `partbox doctor`.",
            unit="s",
            red_from=limits["oldest"]["seconds"],
        ),
        number(
            "Dead",
            database("records", status="dead"),
            "Events that were given up. See why with `partbox dead list`; after the cure `partbox dead replay`.",
            red_from=limits["dead"]["records"] + 1,
        ),
        number(
            "Blocked aggregates",
            database("blocked_keys"),
            "Aggregates that wait for a failed event of theirs. See them with `partbox blocked list`.",
        ),
        number(
            "Unowned partitions",
            database("partitions_unowned"),
            "Partitions that no process delivers. Some for seconds in a rebalance; else too few processes live, or the "
            "subscription is paused.",
            red_from=1,
        ),
        number(
            "Worker processes",
            database("instances"),
            "Living processes of all nodes, as the database knows them.",
        ),
    )


def _flow(limits: Thresholds) -> tuple[object, ...]:
    return (
        lines(
            "Events a second",
            (rate("delivered_total"), f"delivered {WHOSE}"),
            (rate("records_read_total"), f"read {WHOSE}"),
            ("sum by (job) (rate(partbox_published_total[$__rate_interval]))", "published by {{job}}"),
            description="Delivered keeps up with published, or the backlog grows. Published is counted by the "
            "publishing applications, `Outbox(registry=…)`: all that this Prometheus scrapes.",
            unit="cps",
        ),
        lines(
            "Pending records",
            (database("records", status="pending"), WHOSE),
            description="Records that no cursor has passed. Growing for long: more processes (`--processes`), more "
            "handlers at once (`--concurrency`), or a faster handler; see the dashboard of handlers.",
            limit=limits["backlog"]["records"],
        ),
        lines(
            "Age of the oldest pending record",
            (database("oldest_pending_age_seconds"), WHOSE),
            description="A straight line upwards: nothing is delivered there. `partbox doctor` names the cause.",
            unit="s",
            limit=limits["oldest"]["seconds"],
        ),
    )


def _time() -> tuple[object, ...]:
    return (
        lines(
            "From published to delivered",
            *quantiles("lag_seconds", WHOSE),
            description="From the publishing statement to the end of the handler; waiting for a retry counts.",
            unit="s",
        ),
        lines(
            "Time in handlers",
            *quantiles("handler_seconds", WHOSE),
            description="How long one call of a handler takes. By handler: see the dashboard of handlers.",
            unit="s",
        ),
        lines(
            "Saving progress",
            (
                f"{rate('save_seconds_total')} / {rate('saves_total')}",
                f"mean time of a save {WHOSE}",
            ),
            description="What a save takes on the server. It grows while a foreign transaction stays open for long: "
            "look for it with `partbox doctor`.",
            unit="s",
        ),
    )


def _trouble() -> tuple[object, ...]:
    parked = {"status": "retrying|deferred|scheduled|held|ready|dead"}
    return (
        lines(
            "Failures a second",
            (rate("failed_total", OF_HANDLER), "failed {{handler}}"),
            (rate("deferred_total", OF_HANDLER), "deferred {{handler}}"),
            (rate("dead_total", OF_HANDLER), "dead {{handler}}"),
            description="Attempts that failed; deferred: put off without a charge, as its downstream is away; dead: "
            "given up. The errors are in the log and in `partbox blocked list`, `partbox dead list`.",
            unit="cps",
        ),
        stacked(
            "Parked records, by state",
            (database("records", (*BY, "status"), **parked), f"{{{{status}}}} {WHOSE}"),
            description="Records that are in the way: retrying and deferred are tried again by themselves, held ones "
            "wait behind such a one of their aggregate, scheduled ones for their time, dead ones for you.",
        ),
        bars(
            "Parked, by state",
            (increase("parked_total", (*BY, "state")), f"{{{{state}}}} {WHOSE}"),
            description="How many records were put aside in each minute. Each costs a row; a flow of them makes "
            "delivery slow.",
        ),
        lines(
            "Open circuits",
            (nodes("circuit_open", OF_HANDLER), "{{handler}}"),
            description="In how many processes a handler's downstream counts as out of order: its events are deferred, "
            "one is tried now and then, and the first success goes on with all.",
        ),
        stacked(
            "Blocked aggregates",
            (database("blocked_keys"), WHOSE),
            description="They wait for a failed event of theirs: `partbox blocked list`, then `retry` or `skip`.",
        ),
        lines(
            "Paused",
            (database("subscription_paused"), WHOSE),
            description="1: the subscription is paused and nothing of it is delivered, until `partbox subscription "
            "resume`.",
        ),
        lines(
            "Segments ahead",
            (database("segments_ahead"), WHOSE),
            description="Segments of the log that begin above the newest id: three or more. At none new events fall "
            "into the default one, which slows polls and purges down: run `partbox doctor`.",
        ),
        lines(
            "Found by doctor",
            (
                'max by (database, severity) (partbox_doctor_problems{job="$job", database=~"$database"})',
                "{{severity}} {{database}}",
            ),
            description="Findings in the whole outbox, of all subscriptions. A problem means that events wait or are "
            "lost until somebody acts: run `partbox doctor`, or open the live page.",
        ),
    )


def _processes() -> tuple[object, ...]:
    return (
        lines(
            "Worker processes",
            (nodes("processes"), WHOSE),
            description="Those that live on the nodes scraped here. What died and was replaced: see the dashboard of "
            "partitions and rebalance.",
        ),
        lines(
            "Handlers that run",
            (nodes("handlers_running"), WHOSE),
            (nodes("lanes"), f"aggregates at work or waiting {WHOSE}"),
            description="At processes times concurrency all handlers are busy: more of either makes it faster, if the "
            "handlers wait for something else than this machine's processors.",
        ),
        lines(
            "Window used",
            (database("window_used_ratio"), WHOSE),
            description="The fullest process. At 1 it reads no further until what it holds is done: handlers are the "
            "bottleneck, or one aggregate with many events is.",
            unit="percentunit",
        ),
        lines(
            "Ids looked through for late commits, a second",
            (rate("late_scan_ids_total"), WHOSE),
            description="It rises after long transactions that publish. It costs reading, not delivery.",
        ),
        lines(
            "Database reached",
            ('partbox_database_up{job="$job"}', "{{instance}} {{database}}"),
            description="0: that node cannot ask the database; numbers of the database are missing from it.",
        ),
        lines(
            "What this monitoring costs",
            ('partbox_scrape_seconds{job="$job"}', "{{instance}}"),
            description="How long a scrape of each node takes. Longer than its timeout: raise `scrape_timeout`.",
            unit="s",
        ),
    )
