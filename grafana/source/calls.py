"""Handler by handler: how much, how fast, how often in vain; sinks and their brokers."""

import board
from grafana_foundation_sdk.builders import dashboard
from look import buckets, lines
from queries import OF_HANDLER, WHOSE, database, mean, nodes, quantiles, rate, series

ONE = {"handler": "$handler"}
NAME = f"{{{{handler}}}} {WHOSE}"


def calls() -> dashboard.Dashboard:
    query = 'label_values(partbox_handler_seconds_count{job="$job", subscription=~"$subscription"}, handler)'
    made = board.board(
        "partbox-handlers",
        "handlers",
        "Handler by handler: how much, how fast, how often in vain.",
        (board.several("handler", "Handler", query),),
    )
    titled = ("Work", _work()), ("Time", _time()), ("In vain", _in_vain()), ("Limits", _limits()), ("Sinks", _sinks())
    return board.rows(made, *titled)


def _work() -> tuple[object, ...]:
    return (
        lines(
            "Delivered a second",
            (rate("delivered_total", OF_HANDLER, **ONE), NAME),
            description="Events that each handler has done. Where it stops while events wait: see the handler's "
            "failures and circuit.",
            unit="cps",
        ),
        lines(
            "Handlers at work",
            (rate("handler_seconds_sum", OF_HANDLER, **ONE), NAME),
            description="Seconds of handler a second: how many calls ran at once, in the mean. Near processes times "
            "concurrency the handlers are the bottleneck.",
        ),
        lines(
            "Share of attempts that failed",
            (_share("failed_total"), NAME),
            description="Of all attempts. The errors: `partbox blocked list`, `partbox dead list`, and the log.",
            unit="percentunit",
        ),
    )


def _time() -> tuple[object, ...]:
    return (
        lines(
            "Time of a call",
            (mean("handler_seconds", OF_HANDLER, **ONE), f"mean {NAME}"),
            *quantiles("handler_seconds", NAME, OF_HANDLER, (0.5, 0.99), **ONE),
            description="What gets slower here makes everything behind it wait; see what the handler waits for.",
            unit="s",
        ),
        buckets(
            "Times of calls",
            f"sum by (le) (increase({series('handler_seconds_bucket', **ONE)}[$__rate_interval]))",
            description="How many calls took how long, of all chosen handlers.",
        ),
        lines(
            "From published to delivered",
            *quantiles("lag_seconds", NAME, OF_HANDLER, (0.5, 0.99), **ONE),
            description="With all waiting. Far above the time of a call: a backlog, retries, or long transactions.",
            unit="s",
        ),
    )


def _in_vain() -> tuple[object, ...]:
    return (
        lines(
            "Failed a second",
            (rate("failed_total", OF_HANDLER, **ONE), NAME),
            description="Attempts that raised or timed out. They are tried again as the handler's retry policy says.",
            unit="cps",
        ),
        lines(
            "Put off or given up, a second",
            (rate("deferred_total", OF_HANDLER, **ONE), f"deferred {NAME}"),
            (rate("dead_total", OF_HANDLER, **ONE), f"dead {NAME}"),
            description="Deferred ones were not charged: the handler asked for it, or its circuit is open.",
            unit="cps",
        ),
        lines(
            "Open circuits",
            (nodes("circuit_open", OF_HANDLER, **ONE), NAME),
            description="In how many processes the handler's downstream counts as out of order; it closes by itself "
            "with the first success.",
        ),
    )


def _limits() -> tuple[object, ...]:
    return (
        lines(
            "Calls a second, and the limit",
            (rate("handler_seconds_count", OF_HANDLER, **ONE), NAME),
            (database("limit_per_second", OF_HANDLER, **ONE), f"limit {NAME}"),
            description="With `limit_by` the limit holds for each value, and calls of all values may be more. It "
            "changes by `partbox limit set`.",
            unit="cps",
        ),
        lines(
            "Calls at once, and the limit",
            (rate("handler_seconds_sum", OF_HANDLER, **ONE), NAME),
            (database("limit_at_once", OF_HANDLER, **ONE), f"limit {NAME}"),
            description="Seconds of handler a second are how many calls ran at once, in the mean.",
        ),
        lines(
            "Waiting for a turn",
            (database("limit_waiting", OF_HANDLER, **ONE), NAME),
            description="Events in the memory of workers that their handler's limit holds back; more may wait in the "
            "log, unread. `partbox limit list` names the values that wait longest.",
        ),
        lines(
            "The first has waited",
            (database("limit_wait_seconds", OF_HANDLER, **ONE), NAME),
            description="Where it grows, more is published than the limit lets through: raise it, or have less come.",
            unit="s",
        ),
    )


def _sinks() -> tuple[object, ...]:
    return (
        lines(
            "Acknowledged a second",
            (rate("sink_sent_total", OF_HANDLER, **ONE), NAME),
            (rate("sink_retries_total", OF_HANDLER, **ONE), f"sent again {NAME}"),
            description="Messages that a sink's broker has acknowledged. What is sent again was not: `partbox doctor` "
            "shows the error.",
            unit="cps",
        ),
        lines(
            "Time to the acknowledgement",
            (mean("sink_acknowledged_seconds", OF_HANDLER, **ONE), f"mean {NAME}"),
            *quantiles("sink_acknowledged_seconds", NAME, OF_HANDLER, (0.99,), **ONE),
            description="From sending a list of messages until the broker has acknowledged all of it.",
            unit="s",
        ),
        lines(
            "In flight",
            (nodes("sink_in_flight", OF_HANDLER, **ONE), NAME),
            description="Messages that were sent and not answered yet. Where it stands while nothing is acknowledged, "
            "the broker is out of reach.",
        ),
    )


def _share(metric: str) -> str:
    vain, done = rate(metric, OF_HANDLER, **ONE), rate("delivered_total", OF_HANDLER, **ONE)
    return f"{vain} / ({vain} + {done})"
