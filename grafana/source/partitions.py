"""Who owns which partition, and what a rebalance, a crash or a freeze does to it."""

import board
from grafana_foundation_sdk.builders import dashboard
from look import bars, buckets, lines, number, spread, stacked, timeline
from queries import BY, OF_INSTANCE, OF_PARTITION, WHOSE, database, in_order, increase, nodes, quantiles, rate, series

RANKS = {0: "nobody"} | {rank: f"process {rank}" for rank in range(1, 33)}


def partitions() -> dashboard.Dashboard:
    made = board.board(
        "partbox-partitions", "partitions and rebalance", "Who owns which partition, and how that changes."
    )
    return board.rows(
        made, ("Now", _now()), ("Owners", _owners()), ("Rebalance", _rebalance()), ("Partitions", _work())
    )


def _now() -> tuple[object, ...]:
    return (
        number(
            "Partitions", database("partitions"), "256, whatever the number of processes: the unit that they share."
        ),
        number(
            "Unowned",
            database("partitions_unowned"),
            "Nobody delivers these. For more than a minute: start a worker, resume the subscription, or ask "
            "`partbox doctor`.",
            red_from=1,
        ),
        number("Processes", database("instances"), "Living worker processes; the partitions are shared among them."),
        number(
            "Greatest share less smallest",
            f"{_shares('max')} - {_shares('min')}",
            "How unequal the shares are. More than 1 for longer than a rebalance: a process does not let go of a "
            "partition, as its handler takes long.",
            red_from=2,
        ),
        number(
            "Last claim",
            _of_each("min", _owned_for()),
            "How long the ownership has been as it is now: the time since any partition was claimed.",
            unit="s",
        ),
        number(
            "Worst heartbeat",
            database("instance_heartbeat_age_seconds"),
            "Age of the oldest heartbeat. Past the lease (6 s, unless set) the process counts as dead.",
            unit="s",
        ),
    )


def _owners() -> tuple[object, ...]:
    owner = database("partition_owner", OF_PARTITION)
    return (
        timeline(
            "Owner of each partition",
            in_order(owner),
            f"{{{{partition}}}} {WHOSE}",
            description="A row per partition, a colour per process (numbered by node and pid). A join or a leave moves "
            "as few as it can; after a death the red gap is what nobody delivered. Choose one subscription.",
            names=RANKS,
        ),
        stacked(
            "Partitions of each process",
            (database("instance_partitions", OF_INSTANCE), f"{{{{node}}}} {{{{instance}}}} {WHOSE}"),
            description="Equal shares, but for one; unequal only while a rebalance waits for handlers to end.",
            width=12,
        ),
        lines(
            "Heartbeat age of each process",
            (database("instance_heartbeat_age_seconds", OF_INSTANCE), f"{{{{node}}}} {{{{instance}}}} {WHOSE}"),
            description="About a second when healthy. A rising line is a process that is dead or frozen, or a node "
            "that cannot reach the database: past its lease others take its partitions.",
            unit="s",
            width=12,
        ),
    )


def _rebalance() -> tuple[object, ...]:
    changed = f"changes({series('partition_epoch')}[$__interval])"
    return (
        bars(
            "Rebalances",
            (increase("rebalances_total"), f"plans {WHOSE}"),
            (increase("buried_instances_total"), f"processes found dead {WHOSE}"),
            (increase("process_restarts_total"), f"processes restarted {WHOSE}"),
            description="Plans that moved partitions; dead processes that were taken off the list; processes that "
            "their node replaced. Many for no reason: processes die, or heartbeats come too late; see the log.",
        ),
        bars(
            "Partitions moved",
            (increase("moved_partitions_total"), f"planned {WHOSE}"),
            (increase("claimed_partitions_total"), f"claimed {WHOSE}"),
            (increase("lost_partitions_total"), f"lost {WHOSE}"),
            description="Lost ones were taken after the lease was over: what was not saved is delivered again.",
        ),
        bars(
            "Epochs raised",
            (_of_each("sum", f"max by ({', '.join(OF_PARTITION)}) ({changed})"), WHOSE),
            description="How often partitions got an owner anew. Each raise shuts the former owner out.",
        ),
        lines(
            "Unowned partitions",
            (database("partitions_unowned"), WHOSE),
            description="Delivery of these pauses. A spike of seconds is a rebalance; a plateau needs somebody.",
        ),
        lines(
            "Handover pause",
            *quantiles("handover_seconds", WHOSE),
            description="From the release of a partition to its next owner's claim: how long its events waited.",
            unit="s",
        ),
        buckets(
            "Handover pauses",
            f"sum by (le) (increase({series('handover_seconds_bucket')}[$__rate_interval]))",
            description="How many handovers took how long. Slow ones waited for a handler that was running.",
        ),
        bars(
            "Fence rejections",
            (increase("fence_rejections_total"), WHOSE),
            description="Saves that were refused, as others own the partition by now: a process was frozen or cut off "
            "for longer than its lease. Nothing is lost; what it delivered meanwhile may come twice.",
        ),
        lines(
            "Time since partitions were claimed",
            (_of_each("max", _owned_for()), f"longest ago {WHOSE}"),
            (_of_each("min", _owned_for()), f"last {WHOSE}"),
            description="From the epochs, which are the time of the claim. Straight upwards when nothing moves.",
            unit="s",
        ),
        lines(
            "Partitions of each node",
            (nodes("partitions_assigned_here", (*BY, "instance")), f"{{{{instance}}}} {WHOSE}"),
            description="What each scraped node owns; together 256.",
        ),
    )


def _work() -> tuple[object, ...]:
    return (
        spread(
            "Lag of the partitions",
            database("partition_lag_seconds", OF_PARTITION),
            description="How many partitions are how far behind. A faint line far above the others is one blocked or "
            "hot aggregate; all of them rising is too little capacity.",
        ),
        lines(
            "The ten furthest behind",
            (f"topk(10, {database('partition_lag_seconds', OF_PARTITION)})", f"{{{{partition}}}} {WHOSE}"),
            description="The age of the oldest pending record of each. `partbox status` and `partbox blocked list` say "
            "what they wait for.",
            unit="s",
        ),
        lines(
            "Pending in a partition",
            (database("partition_pending_max"), f"most {WHOSE}"),
            (database("partition_pending_avg"), f"mean {WHOSE}"),
            (f"topk(3, {database('partition_pending', OF_PARTITION)})", f"{{{{partition}}}} {WHOSE}"),
            description="Most far above mean: events of few aggregates, or one that blocks its partition.",
        ),
        lines(
            "Read by the nodes, a second",
            (rate("records_read_total", (*BY, "instance")), f"{{{{instance}}}} {WHOSE}"),
            description="Each scraped node's part of the work; it follows the partitions that the node owns.",
            unit="cps",
        ),
    )


def _shares(which: str) -> str:
    return _of_each(which, database("instance_partitions", OF_INSTANCE))


def _of_each(which: str, expression: str) -> str:
    """The `max`, `min` or `sum` of each subscription."""
    return f"{which} by ({', '.join(BY)}) ({expression})"


def _owned_for() -> str:
    """Seconds since each partition was claimed: its epoch is milliseconds since 1970, and 0 before the first claim."""
    return f"time() - ({database('partition_epoch', OF_PARTITION)} > 0) / 1000"
