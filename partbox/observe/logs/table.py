"""The table of all log events: their names, levels and fields. The field `event` of a log record holds the name with
`partbox.` before it. `docs/logs.md` describes each event."""

from collections.abc import Iterator
from dataclasses import dataclass
from logging import getLevelNamesMapping

PREFIX = "partbox."
LEVELS = getLevelNamesMapping()
# Fields of a line about one event. The aggregate id is in the text only, and the payload is in neither.
EVENT = "subscription, partition, record_id, event_id, event_type, aggregate_type, attempt, epoch"


@dataclass(frozen=True, slots=True)
class LogEvent:
    """The level, the fields and the rate limit of one kind of log line."""

    # If `has_event_fields` is True, the fields of a delivered event are added to `fields`. If `is_unlimited` is False,
    # the lines are rate-limited.

    level: int
    fields: tuple[str, ...] = ()
    has_event_fields: bool = False
    is_unlimited: bool = True


# Each row has the name, the level, `event` if the line is about one event, `limited` if the line is rate-limited, and
# its own fields behind a colon.
TABLE = """
# Of events.
dead ERROR event: handler attempts
decode_error ERROR event: handler attempts
unroutable WARNING event
newer_version WARNING event: handler
retrying INFO event limited: handler attempts delay
failure DEBUG event: handler attempts
deferred INFO event limited: handler attempts delay
error_ignored WARNING event limited: handler
on_error_failed ERROR event limited: handler
retry_policy_failed ERROR event limited: handler
limit_by_failed ERROR event limited: handler
dead_letter_failed ERROR event limited: delay
slow_dead_letter WARNING event limited: seconds
dead_letters_stuck ERROR: calls
interceptor_failed ERROR limited: interceptor

# Of handlers.
slow_handler WARNING event limited: handler seconds
overdue ERROR event: handler seconds
abandoned WARNING event
circuit_open WARNING: subscription handler
circuit_closed INFO: subscription handler
no_queue WARNING: topic messages
brake WARNING: subscription partitions max_parked
brake_released INFO: subscription partitions

# Of partitions.
claimed INFO: subscription partitions
takeover WARNING: subscription partitions
lost WARNING: subscription partitions
lost_draining INFO: subscription partitions
fence_rejection ERROR: subscription partitions

# Of processes and nodes.
node_started INFO: subscription node processes concurrency version
node_stopped INFO: subscription node
worker_started INFO: subscription concurrency handlers
lifespan_failed ERROR
lifespan_waits WARNING: seconds
lifespan_overdue WARNING
worker_stopped INFO: subscription released
worker_failed CRITICAL: subscription
crash ERROR: subscription worker_pid exit_code
crash_loop ERROR: subscription deaths seconds
not_spawned ERROR limited: subscription seconds
silent ERROR: subscription worker_pid seconds
idle ERROR: subscription worker_pid seconds
not_vouched ERROR: subscription seconds
killed WARNING: subscription worker_pid
orphaned WARNING
buried WARNING: subscription instances partitions
not_buried ERROR: subscription instances
identity_lost WARNING: subscription worker_pid
history_went_back WARNING: subscription
planned INFO: subscription partitions instances
paused INFO: subscription
resumed INFO: subscription
subscription_gone ERROR: subscription
all_delivered INFO
left_over ERROR: subscription
not_delivered ERROR: subscription
database_away WARNING: subscription
database_unfit ERROR: subscription
database_joined INFO: subscription seconds
disabled WARNING
before_fork WARNING: subscription
unknown_variables WARNING

# Of the log.
log_lines_lost WARNING: lines

# Of loops.
loop_error ERROR limited: subscription loop
not_noted WARNING limited: subscription
connection_hung ERROR limited: subscription loop
connection_lost ERROR limited: subscription
unseen ERROR limited: subscription
bell_lost WARNING: subscription
no_heartbeat ERROR limited: subscription
not_planned ERROR limited: subscription
transaction_failed ERROR limited: subscription events
transaction_hook_failed ERROR limited: subscription
http_started INFO: address
look_failed WARNING limited
http_ended ERROR: address

# Of purging, publishing, commands.
purged INFO
archived INFO
archive_failed ERROR
segments INFO
segments_failed ERROR
purge_failed ERROR
duplicate INFO limited: event_id event_type
publish_hook_failed ERROR limited: hook
publish_end_unknown WARNING limited: batches
observer_failed ERROR limited: hook
command INFO: command subscription
"""


def _parse_table(table: str) -> Iterator[tuple[str, LogEvent]]:
    for line in table.splitlines():
        words, _, fields = line.partition(":")
        name, level, *marks = words.split() or ("#", "")
        if not name.startswith("#"):
            yield name, LogEvent(LEVELS[level], tuple(fields.split()), "event" in marks, "limited" not in marks)


LOG_EVENTS = dict(_parse_table(TABLE))
