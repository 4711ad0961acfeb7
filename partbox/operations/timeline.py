"""The history of a record as lines of text."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from partbox.db.inspect.found import MAX_AHEAD, FoundRecord
from partbox.protocol.delivery_status import DeliveryStatus, HistoryEntry
from partbox.text.wording import format_brief_age, format_count, format_time, shorten_text

END_OF_TIME: Final = datetime.max.replace(tzinfo=UTC)
# Texts by outcome. "unhandled" is an ignored event without an attempt. An outcome of a newer version is shown as it is.
OUTCOME_TEXTS: Final = {
    "failed": "attempt {attempt} failed{run}{process}{error}",
    "dead": "given up{after}{process}{error}",
    "ignored": "attempt {attempt} failed{run}{process}, and on_error chose to ignore it{error}",
    "unhandled": "ignored{process}{error}",
    "interrupted": "attempt {attempt} began{process}: the process died{error}",
    "done": "delivered{run}{process}",
    "repeated": "delivered{run}{process}; a process that died may have run it, too",
    "skipped": "skipped{who}{error}",
    "replayed": "replayed{who}{error}",
    "discarded": "discarded{who}{error}",
    "cancelled": "cancelled{who}",
}
STATE_TEXTS: Final = {
    "waiting": "waits to be read",
    "running": "is running",
    "retrying": "failed{tries}, next attempt {due}",
    "deferred": "put off until {due}",
    "scheduled": "scheduled for {due}",
    "held": "held",
    "ready": "is to run as soon as a handler is free",
    "dead": "dead{tries} since {since}",
    "discarded": "discarded {since}",
    "cancelled": "cancelled {since}",
    "delivered": "delivered",
    "ignored": "ignored",
    "unwanted": "excluded by the type filter of the subscription",
    "passed": "published before the subscription was created: not delivered, unless the subscription began earlier",
}


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One line of a record's delivery history. `subscription` is None for all subscriptions, `at` is None for now."""

    at: datetime | None
    subscription: str | None
    text: str


def timeline(record: FoundRecord) -> list[TimelineEntry]:
    """Return a record's delivery history and present state in all subscriptions as lines of text, oldest first. The
    texts may contain user input: errors, names, reasons."""
    entries = [TimelineEntry(record.published_at, None, "published"), *_delay_entries(record)]
    for standing in record.standings:
        entries += _status_entries(standing)
    # The sort is stable, so entries of the same time keep their order.
    return sorted(entries, key=lambda each: each.at or END_OF_TIME)


def summary(standing: DeliveryStatus) -> str:
    """Describe a record's delivery state in one subscription, such as "failed after 3 attempts, next attempt …"."""
    tries = f" after {format_count(standing.attempts, 'attempt')}" if standing.attempts else ""
    text_of_state = STATE_TEXTS[standing.state].format(
        due=format_time(standing.due_at), since=format_time(standing.since), tries=tries
    )
    if standing.delivered is not None:
        process = "" if standing.process is None else f" by {standing.process}"
        return f"{text_of_state}{_between_text(standing)}{process}{_twice_text(standing)}{_error_text(standing.error)}"
    behind = "" if standing.behind is None else f", behind record {standing.behind} of its aggregate"
    ahead = "" if not standing.ahead else f", {_ahead_text(standing.ahead)} of its partition come before"
    why = "" if standing.why is None else f"; {standing.why}"
    return f"{text_of_state}{_process_text(standing)}{behind}{ahead}{why}{_error_text(standing.error)}"


def _delay_entries(record: FoundRecord) -> Iterator[TimelineEntry]:
    if record.available_at is not None and record.available_at > record.published_at:
        yield TimelineEntry(record.available_at, None, "may be delivered from now on")


def _status_entries(standing: DeliveryStatus) -> Iterator[TimelineEntry]:
    # The present state is added unless the last entry shows it.
    for entry in standing.history:
        yield TimelineEntry(entry.at, standing.subscription, entry_text(entry))
    end, last = standing.delivered, standing.history[-1] if standing.history else None
    if end is None or last is None or last.at != end.before:
        yield TimelineEntry(end.before if end else None, standing.subscription, summary(standing))


def entry_text(entry: HistoryEntry) -> str:
    """Describe one entry of a record's delivery history, such as "attempt 2 failed after 3 s"."""
    ran = entry.outcome != "ignored" or entry.attempt > 0
    return OUTCOME_TEXTS.get(
        entry.outcome if ran else "unhandled", f"{entry.outcome}{{process}}{{who}}{{error}}"
    ).format(
        attempt=entry.attempt,
        after=f" after {format_count(entry.attempt, 'attempt')}" if entry.attempt else "",
        run="" if entry.seconds is None else f" after {format_brief_age(entry.seconds)}",
        process="" if entry.process is None else f" in {entry.process}",
        who="" if entry.who is None else f" by {entry.who}",
        error=_error_text(entry.error),
    )


def _between_text(standing: DeliveryStatus) -> str:
    end = standing.delivered
    if end is None or end.before is None:
        return ""
    return f" between {format_time(end.after)} and {format_time(end.before)}"


def _process_text(standing: DeliveryStatus) -> str:
    if standing.process is None:
        return ""
    return f" in {standing.process}" if standing.state == "running" else f", in a partition owned by {standing.process}"


def _twice_text(standing: DeliveryStatus) -> str:
    return "; a process that died may have run it, too" if standing.may_have_run_twice else ""


def _error_text(error: str | None) -> str:
    return "" if error is None else f": {shorten_text(error)}"


def _ahead_text(count: int) -> str:
    return f"over {format_count(MAX_AHEAD, 'record')}" if count > MAX_AHEAD else format_count(count, "record")
