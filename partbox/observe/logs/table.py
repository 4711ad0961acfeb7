"""The table of all log events: name, level, meaning, fields.

The name is the field `event` of the log record, with `partbox.` before it. `docs/logs.md` is made from this table.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from logging import getLevelName, getLevelNamesMapping

PREFIX = "partbox."
LEVELS = getLevelNamesMapping()
EVENT = "subscription, partition, record_id, event_id, event_type, aggregate_type, attempt, epoch"
"""The fields of a line about one event. Its aggregate id is in the text only, its payload nowhere."""


@dataclass(frozen=True, slots=True)
class LogEvent:
    """`fields` beside `event`, and those of an event where it is `about` one. `every` False: rate-limited."""

    level: int
    meaning: str
    fields: tuple[str, ...] = ()
    about: bool = False
    every: bool = True


# The name, the level, `event` for a line about one, `limited` for a rate-limited one, and behind a colon the fields of
# its own; the meaning is below.
TABLE = """
# Of events.
dead ERROR event: handler attempts
    an event is dead: its attempts are used up, or another cannot help. It stays, with its error, for `partbox dead
    replay` or `discard`; later events of its aggregate go on, unless `on_dead` is `block`
decode_error ERROR event: handler attempts
    an event is dead because its payload cannot be decoded: give the codec to this outbox too, or fix the publisher
unroutable WARNING event
    no handler of the subscription `default` takes events of this type; `on_unroutable` decides about them. Logged
    for the first event of each type in each process, for 100 types at most, with the types that handlers take. A
    type is misspelt, or a module with handlers is not imported
newer_version WARNING event limited: handler
    an event is of a newer version than its class here, as in a rolling deploy; `on_unroutable` decides about it
retrying INFO event limited: handler attempts delay
    an event failed and is retried in `delay` seconds; those behind it wait, unless `on_failure` is `continue`
failure DEBUG event: handler attempts
    the trace of the error for which an event is retried or deferred; that of a dead event is in its own line
deferred INFO event limited: handler attempts delay
    an event was put off for `delay` seconds, uncharged: its handler asked for it, or its circuit is open
error_ignored WARNING event limited: handler
    an event whose handler failed counts as done, by the handler's `on_error`
on_error_failed ERROR event limited: handler
    an event failed, and its handler's `on_error` too, so the retry policy decides
retry_policy_failed ERROR event limited: handler
    an event failed, and its retry policy gave no delay, so it is tried again after 60 s
dead_letter_failed ERROR event limited: delay
    the dead-letter hook, or the sink of `--dead-to`, failed for a dead event: it is retried in `delay` seconds
interceptor_failed ERROR limited: interceptor
    `after` of an interceptor failed, which changes nothing for the event

# Of handlers.
slow_handler WARNING event limited: handler seconds
    a handler has run for over a minute, or half of its timeout: its aggregate waits, and a rebalance or stop would
    wait for it
overdue ERROR event: handler seconds
    a handler is over its timeout and cannot be cancelled: its event is charged with an attempt, the process
    releases its other partitions, ends and is replaced; embedded in an application it is only logged
abandoned WARNING event
    the worker stopped while a handler was running: its event may be delivered again. A stop waits for
    `drain_timeout`
circuit_open WARNING: subscription handler
    a handler's downstream counts as down in this process, by the errors that `circuit` names: its events are
    deferred, uncharged, and one is tried after 1 s, later every 30 s, until one succeeds
circuit_closed INFO: subscription handler
    an event has succeeded, or many have failed for other reasons, and all are delivered again
brake WARNING: subscription partitions max_parked
    partitions have `max_parked` open parked records: nothing new of them is delivered until some are done. The log
    keeps the rest; `partbox blocked list` shows what is in the way
brake_released INFO: subscription partitions
    new events of these partitions are delivered again

# Of partitions.
claimed INFO: subscription partitions
    this process owns more partitions now
takeover WARNING: subscription partitions
    some claimed partitions belonged to a process that died: what it had not saved is delivered again, and events
    that may have killed it are charged with an attempt before they run
lost WARNING: subscription partitions
    partitions were taken from this process, after its lease ended or by a command: what was not saved is delivered
    again by the next owner
lost_draining INFO: subscription partitions
    partitions were taken from this process while it was releasing them
fence_rejection ERROR: subscription partitions
    the fence refused a write about partitions that others own now: nothing of it was written. Once after a pause or
    an outage is harmless; if it happens often, leases are too short or clocks stand still

# Of processes and nodes.
node_started INFO: subscription node processes concurrency version
    a node begins to deliver
node_stopped INFO: subscription node
    the node has stopped
worker_started INFO: subscription concurrency handlers
    a worker process, or an embedded worker, begins to deliver
lifespan_failed ERROR
    the function under `@outbox.lifespan` raised: at its start the process ends before it delivers anything and is
    replaced after a pause, at its end what it had open may stay so until the process has ended
lifespan_overdue WARNING
    the function under `@outbox.lifespan` did not end within what was left of `drain_timeout`, at least a second: it
    is cancelled if it is async, and left behind
worker_stopped INFO: subscription released
    the worker has stopped; `released`: with nothing left running
worker_failed CRITICAL: subscription
    a worker or supervisor cannot continue and ends; the text has the remedy if there is one
crash ERROR: subscription worker_pid exit_code
    a worker process ended unexpectedly: its partitions go to others at once, and it is replaced
crash_loop ERROR: subscription deaths seconds
    processes keep dying: look at the first of their errors
not_spawned ERROR limited: subscription seconds
    a worker process cannot be started, for lack of memory, processes or open files: the others go on, and it is
    tried again in `seconds`
silent ERROR: subscription worker_pid seconds
    a worker process shows no sign of life, or one of its handlers is far over its timeout: it is killed and
    replaced
idle ERROR: subscription worker_pid seconds
    a worker process has neither read nor saved for two leases though its node reaches the database: it is killed
    and replaced
not_vouched ERROR: subscription seconds
    a worker inside an application has neither read nor saved for two leases though its membership reaches the
    database: others take its partitions when its lease is over
killed WARNING: subscription worker_pid
    a worker process did not stop in time and is killed: running events may be delivered again
orphaned WARNING
    the supervisor is gone: its worker releases what it can while the lease holds, and ends
buried WARNING: subscription instances partitions
    processes of any node died: their partitions go to others
not_buried ERROR: subscription instances
    dead processes could not be buried: their leases will end by themselves
identity_lost WARNING: subscription worker_pid
    another node has buried a process of this one, which had not renewed its lease, or the commit with which it
    joined is lost: the process drops everything and continues under a new identity
history_went_back WARNING: subscription
    commits that the server had confirmed are gone, by a failover or a restore
planned INFO: subscription partitions instances
    this node has planned to move partitions
paused INFO: subscription
    the subscription is paused: nothing is delivered until `partbox subscription resume`
resumed INFO: subscription
    the subscription is delivered again
subscription_gone ERROR: subscription
    the subscription was dropped: stop this worker
all_delivered INFO
    `--until-empty`: everything that is due is delivered
not_delivered ERROR: subscription
    `--until-empty`: everything due is delivered but in this database, which could not be worked for: the exit code
    is 1
database_away WARNING: subscription
    one of several databases cannot be connected to at the start: its events wait, those of the others are
    delivered; it is tried again, at first after 0.1 s, later every 10 s. Logged again if the reason changes
database_unfit ERROR: subscription
    one of several databases answers but is not as it must be: the schema is missing or of another version, or the
    subscription or a privilege is missing; the text has the remedy, after which work begins by itself
database_joined INFO: subscription seconds
    such a database can be worked for after `seconds`: its events are delivered
disabled WARNING
    `enabled` is false: nothing is delivered by this process; publishing works
unknown_variables WARNING
    environment variables `PARTBOX_…` are not settings, and are ignored; perhaps one is mistyped. Logged once, by
    the supervisor's process

# Of the log.
log_lines_lost WARNING: lines
    the standard error of `partbox worker` is a pipe, a socket or a terminal that was not read for a while: `lines`
    lines are lost, delivery went on

# Of loops.
loop_error ERROR limited: subscription loop
    a step of a loop failed and is tried again; while it fails, nothing is read, or nothing saved
not_noted WARNING limited: subscription
    the list of long-running handlers could not be written for `partbox status` and `doctor`; it is tried again, and
    nothing else waits for it
connection_hung ERROR limited: subscription loop
    the database, or something in between, did not answer a statement of this loop (`poller`, `saver`,
    `transactions`, `membership`) in time, a little over a lease (`membership`: a third of one): the loop stood
    still, its connection was cut, and it continues on a new one. If it happens often, look at the proxy or pooler
    in between
connection_lost ERROR limited: subscription
    a connection was lost: all are replaced, and reading continues from the saved cursors
unseen ERROR limited: subscription
    a worker may not see or write everything: a privilege is missing, row security is on, a table or a segment is
    not where it was, cursors were deleted, or a trigger keeps rows as they are. Nothing is read until that is
    mended, and nothing is lost; the text has the reason, `partbox doctor` the remedy
bell_lost WARNING: subscription
    a worker's connection that listens for new events is lost or cannot be made, or the bell's flag cannot be raised,
    or the server's notification queue is filling up: it looks every `poll_idle` until another connection hears and
    the queue has room, which is tried again by itself, or until it connects anew
no_heartbeat ERROR limited: subscription
    the leases of this node's processes could not be renewed; once they end, others may take the partitions
not_planned ERROR limited: subscription
    this node renewed its leases, but could not register processes, bury or plan. It goes on with the partitions
    that it owns; others may stay without an owner
transaction_failed ERROR limited: subscription events
    a transaction of transactional handlers was rolled back: its events run again
transaction_hook_failed ERROR limited: subscription
    a hook that a transactional handler had called after the commit has failed: what the handler did is committed, the
    hook is not called again, and the other ones are called all the same
http_started INFO: address
    metrics, health checks and the page are served here
look_failed WARNING limited
    the database cannot be read for metrics and health checks; it is tried again, and delivery goes on over its own
    connections
http_ended ERROR: address
    metrics, health checks and the page are served no more; delivery goes on

# Of purging, publishing, commands.
purged INFO
    expired records were deleted
archived INFO
    expired records were written to the archive: they may be deleted now
archive_failed ERROR
    expired records could not be written to the archive: they stay in the log, and it is tried again; said once
    while the reason is the same
segments INFO
    segments of the log were made ahead of need, emptied whole, or dropped
segments_failed ERROR
    segments of the log could not be made, emptied or dropped, and it is tried again; an event trigger of the
    database that fails may be the cause: while none lie ahead, new events fall into the default one, and what has
    expired stays
purge_failed ERROR
    a purge failed: expired records stay until the next one
duplicate INFO limited: event_id event_type
    an event is not published: its idempotency key was used before
publish_hook_failed ERROR limited: hook
    a publish hook failed, which changes nothing about the events
publish_end_unknown WARNING limited: batches
    a COMMIT was cancelled, or its connection lost, before it was answered: whether its events were published is not
    known, so no `after_commit` or `after_rollback` hook is called for them
observer_failed ERROR limited: hook
    an observer failed, which changes nothing else
command INFO: command subscription
    an operator's command was carried out
"""


def _parsed(table: str) -> Iterator[tuple[str, LogEvent]]:
    for entry in re.split(r"\n(?=\w)", re.sub(r"(?m)^(#.*)?\n", "", table)):
        head, *meaning = entry.splitlines()
        words, _, fields = head.partition(":")
        name, level, *marks = words.split()
        text = " ".join(map(str.strip, meaning))
        yield name, LogEvent(LEVELS[level], text, tuple(fields.split()), "event" in marks, "limited" not in marks)


LOG_EVENTS = dict(_parsed(TABLE))


def rows() -> str:
    """The table as Markdown."""
    lines = ["| event | level | what it means | fields |", "|---|---|---|---|"]
    for name, each in LOG_EVENTS.items():
        fields = ", ".join(f"`{field}`" for field in each.fields) + (" + event" if each.about else "")
        some = "" if each.every else " *"
        meaning = f"{each.meaning[:1].upper()}{each.meaning[1:]}".replace("|", "\\|")
        lines.append(f"| `{PREFIX}{name}` | {getLevelName(each.level)}{some} | {meaning} | {fields.strip(' +')} |")
    return "\n".join(lines) + "\n"
