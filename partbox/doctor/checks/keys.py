"""Checks for records that cannot be finished: blocked aggregates, brakes, open circuits and dead records."""

from collections.abc import Iterator

from partbox.db.inspect.facts import DeadRows, DeferredRows
from partbox.db.inspect.stats import Cluster
from partbox.db.operator.blocked import BlockedKey
from partbox.doctor.case import Case, Severity, Symptom, check, group_by, list_working_processes, subscription_check
from partbox.doctor.limits import DEAD_FLOOD, FAILED_ATTEMPTS, FLOOD_OVER, KEY_WAIT, MANY_DEFERRED, MANY_PENDING
from partbox.doctor.phrases import MORE_WORKERS, TITLE_ERROR, describe_failure, format_error, is_copyable
from partbox.text.wording import format_age, format_count, shorten_text

MAX_SHOWN = 5


@check("blocked-key", Severity.PROBLEM)
def blocked_key(case: Case) -> Iterator[Symptom]:
    """Report that an aggregate waits for an event whose handler keeps failing. At least three attempts have failed, or
    the aggregate has been blocked for a minute. By default an event is tried 20 times in about two hours before it is
    dead. If there are many subscriptions, the 50 with the most blocked aggregates are examined."""
    for name, keys in _group_by_subscription(case).items():
        if blocked_keys_now := [each for each in keys if each.state == "retrying" and _is_lasting(case, each)]:
            yield _build_blocked_symptom(case, name, blocked_keys_now, "for an event that fails")


@check("blocked-by-dead", Severity.PROBLEM)
def blocked_by_dead(case: Case) -> Iterator[Symptom]:
    """Report that an aggregate waits for a dead event (`on_dead = "block"`). Somebody has to replay or skip the
    event."""
    for name, keys in _group_by_subscription(case).items():
        if blocked_keys_now := [each for each in keys if each.state == "dead"]:
            yield _build_blocked_symptom(case, name, blocked_keys_now, "for a dead event")


@check("braked", Severity.PROBLEM)
def braked(case: Case) -> Iterator[Symptom]:
    """Report that a partition does not read on, because all handlers wait for services that are unavailable and
    `max_parked` records of the partition are parked. The log keeps the other records. While any handler can handle
    events, reading goes on."""
    for name in dict.fromkeys(each.subscription for each in case.evidence.parked_counts):
        if full := case.list_braked(name):
            most = max(each.rows for each in full)
            yield Symptom(
                f"{format_count(len(full), 'partition')} braked: nothing new is read there",
                (f"up to {most:,} open parked records in one partition; max_parked = {case.limits.max_parked:,}",),
                (
                    f"see what the partitions wait for: {case.format_command('blocked list', name)}",
                    "when the services are back, the partitions go on by themselves",
                ),
                name,
            )


@check("waiting", Severity.WARNING, Severity.PROBLEM)
def waiting(case: Case) -> Iterator[Symptom]:
    """Report that at least half of `max_waiting` records of a subscription are parked and not finished: they failed, or
    wait for a turn, for a time or behind others. Each has a row. The finding is a problem at nine tenths: partitions
    with more than their share then read nothing new."""
    most = case.limits.max_waiting
    for name, rows in group_by(case.evidence.parked_counts, lambda each: each.subscription).items():
        waiting = sum(each.waiting for each in rows)
        total = waiting + sum(each.rows for each in rows)
        if 2 * total >= most:
            yield Symptom(
                f"{format_count(total, 'event')} parked and not finished: reading stops at {most:,}",
                (
                    f"{waiting:,} of them only wait for their turn or due time; "
                    f"up to {max(each.rows + each.waiting for each in rows):,} in one partition",
                ),
                (
                    f"see what limits hold back: {case.format_command('limit list', name)}; "
                    f"and what has failed: {case.format_command('blocked list', name)}",
                    "raise the limits that hold back events, mend what fails, or publish less; a higher `max_waiting` "
                    "costs disk: one row per event",
                ),
                name,
                severity=Severity.PROBLEM if 10 * total >= 9 * most else Severity.WARNING,
            )


@subscription_check("deferred", Severity.WARNING, Severity.PROBLEM)
def deferred(case: Case, cluster: Cluster) -> Iterator[Symptom]:
    """Report that events are deferred, without a charged attempt. Handlers return `RetryAfter`, or the circuit of a
    handler is open because the service it calls is down (circuits are not stored in the database). The finding is a
    warning if there are many, and a problem if aggregates have waited for a minute."""
    name = cluster.subscription
    rows = [each for each in case.evidence.deferred if each.subscription == name]
    keys = [each for each in _group_by_subscription(case).get(name, []) if each.state == "deferred"]
    blocked_keys_now = [each for each in keys if _is_lasting(case, each)]
    total = sum(each.rows for each in rows)
    if total >= MANY_DEFERRED or blocked_keys_now:
        yield Symptom(
            f"{format_count(max(total, len(keys)), 'event')} deferred, {_name_reason(rows)}",
            (*_list_deferred_rows(rows), *_list_blocked_rows(case, blocked_keys_now)),
            (
                "bring back the service that the handler calls: one event probes it at least every 30 s, "
                "then all events go on in order",
                f"see which aggregates wait: {case.format_command('blocked list', name)}",
            ),
            name,
            severity=Severity.PROBLEM if blocked_keys_now else Severity.WARNING,
            lasts=max([*(each.age for each in rows), *(_measure_block(case, each) for each in blocked_keys_now)]),
        )


def _name_reason(rows: list[DeferredRows]) -> str:
    handlers = [each.handler for each in rows if each.handler]
    # An event that was not even tried has the name of its handler before the error.
    error = (rows[0].reason or "").rpartition(" waits for its downstream: ")[2] if rows else ""
    reason = f": {format_error(error, TITLE_ERROR)}" if error else ""
    if handlers:
        return f"the circuit of handler {shorten_text(handlers[0])} is open{reason}"
    return f"the circuit of a handler is open, or handlers return RetryAfter{reason}"


def _list_deferred_rows(rows: list[DeferredRows]) -> Iterator[str]:
    for each in rows[:MAX_SHOWN]:
        yield (
            f"{each.rows:,} of type {shorten_text(each.event_type, 60)}, for {format_age(each.age)}: "
            f"{format_error(each.reason)}"
        )


def _list_blocked_rows(case: Case, keys: list[BlockedKey]) -> Iterator[str]:
    if keys:
        longest = max(_measure_block(case, each) for each in keys)
        behind = format_count(sum(each.followers for each in keys), "event")
        yield (
            f"{format_count(len(keys), 'aggregate')} blocked by these events, for up to {format_age(longest)}, "
            f"{behind} behind them"
        )


@check("dead-flood", Severity.PROBLEM, Severity.NOTE)
def dead_flood(case: Case) -> Iterator[Symptom]:
    """Report that many events died within the last hour, so a handler or its input is broken. The most frequent errors
    are listed. The finding is a note if no event has died for five minutes: then the flood is over."""
    for name, rows, lately in _list_dead_rows(case):
        if lately < DEAD_FLOOD:
            continue
        shown = [each for each in rows[:MAX_SHOWN] if each.lately]
        age, ages = min(each.age for each in rows), [each.first_recent_age or 0.0 for each in shown]
        died = f"{lately:,} events died within the last hour"
        if age < FLOOD_OVER:
            yield _build_dead_symptom(case, name, f"{died}, {_name_most_frequent(shown, lately)}", shown, ages)
        else:
            yield Symptom(
                f"{died}, the last {format_age(age)} ago: the cause seems to be gone",
                remedy=(f"see by what they died: {case.format_command('dead list', name)}",),
                subscription=name,
                severity=Severity.NOTE,
                lasts=max(ages),
            )


@check("dead", Severity.WARNING)
def dead(case: Case) -> Iterator[Symptom]:
    """Report that dead events wait for a decision until `retain_dead` is over."""
    for name, rows, lately in _list_dead_rows(case):
        if lately < DEAD_FLOOD or min(each.age for each in rows) >= FLOOD_OVER:
            total = sum(each.rows for each in rows)
            summary = f"{format_count(total, 'dead event')}, {_name_most_frequent(rows, total)}"
            yield _build_dead_symptom(case, name, summary, rows[:MAX_SHOWN], [each.first_age for each in rows])


@subscription_check("backlog-grows", Severity.WARNING)
def backlog_grows(case: Case, cluster: Cluster) -> Iterator[Symptom]:
    """Report that the backlog grows. More than a thousand records are pending, the oldest for over a minute, and more
    are published than handlers finish."""
    earlier, now, then = case.find_earlier(cluster.subscription), case.evidence.overview, case.before
    if earlier is None or now is None or then is None or not list_working_processes(cluster) or cluster.paused:
        return
    span, more = (now.at - then.at).total_seconds(), cluster.pending - earlier.pending
    if span <= 0 or more <= 0 or cluster.pending < MANY_PENDING or (cluster.oldest_age or 0) < KEY_WAIT:
        return
    yield Symptom(
        "publishers are faster than handlers: the backlog grows",
        (
            f"{cluster.pending:,} pending, {more / span:,.0f} more a second, "
            f"the oldest published {format_age(cluster.oldest_age)} ago",
            f"published: {(now.newest_id - then.newest_id) / span:,.0f} a second; "
            f"{len(list_working_processes(cluster))} worker processes",
        ),
        ("find out what handlers spend their time on", MORE_WORKERS),
        lasts=cluster.oldest_age,
    )


def _group_by_subscription(case: Case) -> dict[str, list[BlockedKey]]:
    found = group_by(case.evidence.keys, lambda each: each[0])
    return {name: [key for _, key in keys] for name, keys in found.items()}


def _is_lasting(case: Case, key: BlockedKey) -> bool:
    return key.attempts >= FAILED_ATTEMPTS or _measure_block(case, key) > KEY_WAIT


def _measure_block(case: Case, key: BlockedKey) -> float:
    now = case.evidence.overview
    return max(0.0, (now.at - key.blocked_since).total_seconds()) if now else 0.0


def _build_blocked_symptom(case: Case, name: str, blocked_keys_now: list[BlockedKey], why: str) -> Symptom:
    groups = group_by(blocked_keys_now, lambda each: (each.event_type, each.error_type or each.error))
    known = len(_group_by_subscription(case)[name])
    total = next((each.blocked_keys for each in case.clusters if each.subscription == name), known)
    shown = [_group_text(case, each) for each in groups.values()][:MAX_SHOWN]
    more = (f"{format_count(total, 'aggregate')} blocked in all",) if total > known or len(groups) > MAX_SHOWN else ()
    first, waits = blocked_keys_now[0], "aggregate waits" if len(blocked_keys_now) == 1 else "aggregates wait"
    failure = describe_failure(first.event_type, _join_error(first), first.traceback)
    others = f", and {format_count(len(groups) - 1, 'other reason')}" if len(groups) > 1 else ""
    summary = f"{len(blocked_keys_now):,} {waits} {why}, {failure}{others}"
    longest = max(_measure_block(case, each) for each in blocked_keys_now)
    return Symptom(
        summary, (*shown, *more), tuple(_list_remedies(case, name, blocked_keys_now[0])), name, lasts=longest
    )


def _group_text(case: Case, keys: list[BlockedKey]) -> str:
    key, now = keys[0], case.evidence.overview
    others = f"{len(keys):,} aggregates for the same reason, such as " if len(keys) > 1 else ""
    left = (key.due_at - now.at).total_seconds() if key.due_at and now else None
    due = "" if left is None else f", next in {format_age(left)}" if left > 0 else ", due now"
    error = format_error(_join_error(key))
    more = f" and more in the log since record {key.more_from_id}" if key.more_from_id is not None else ""
    return (
        f"{others}{shorten_text(f'{key.aggregate_type} {key.aggregate_id}')}: record {key.record_id} "
        f"({shorten_text(key.event_type, 60)}) {key.state}, {format_count(key.attempts, 'attempt')}{due}, "
        f"{format_count(key.followers, 'event')} behind it{more}, blocked for "
        f"{format_age(_measure_block(case, key))}: {error}"
    )


def _join_error(key: BlockedKey) -> str:
    return ": ".join(part for part in (key.error_type, key.error) if part)


def _list_remedies(case: Case, name: str, key: BlockedKey) -> Iterator[str]:
    if not is_copyable(key.aggregate_type, key.aggregate_id):
        yield (
            f"see the names of the aggregates: {case.format_command('blocked list --json', name)}; "
            "then `partbox blocked retry` or `skip`"
        )
        return
    names = (key.aggregate_type, key.aggregate_id)
    yield f"when the cause is gone, retry at once: {case.format_command('blocked retry', name, *names)}"
    yield f"or go on without that event: {case.format_command('blocked skip', name, *names)}"
    yield f"all of them: {case.format_command('blocked list', name)}"


def _list_dead_rows(case: Case) -> Iterator[tuple[str, list[DeadRows], int]]:
    for name, rows in group_by(case.evidence.dead, lambda each: each.subscription).items():
        yield name, rows, sum(each.lately for each in rows)


def _name_most_frequent(rows: list[DeadRows], total: int) -> str:
    most = rows[0].lately or rows[0].rows
    share = f"{most:,} of them " if most < total else ""
    return share + describe_failure(rows[0].event_type, rows[0].error, rows[0].traceback)


def _build_dead_symptom(case: Case, name: str, summary: str, shown: list[DeadRows], ages: list[float]) -> Symptom:
    worst = shown[0]
    kinds = (
        f"{each.lately or each.rows:,} of type {shorten_text(each.event_type, 60)}: {format_error(each.error)} "
        f"(the newest is record {each.newest}, {format_age(each.age)} ago)"
        for each in shown
    )
    newest, filters = str(worst.newest), (f"--type={worst.event_type}",) if is_copyable(worst.event_type) else ()
    ways_out = (
        f"see one: {case.format_command('dead show', name, newest)}",
        f"when the cause is gone: {case.format_command('dead replay --all', name, options=filters)}",
        f"or give one up: {case.format_command('dead discard', name, newest)}",
    )
    return Symptom(summary, tuple(kinds), ways_out, name, lasts=max(ages))
