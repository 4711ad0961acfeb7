"""The table of all log events: name, level, meaning, fields.

The name is the field `event` of the log record, with `partbox.` before it. `docs/logs.md` is made from this table.
"""

from dataclasses import dataclass
from logging import CRITICAL, DEBUG, ERROR, INFO, WARNING, getLevelName

PREFIX = "partbox."
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


LOG_EVENTS: dict[str, LogEvent] = {
    # Of events.
    "dead": LogEvent(
        ERROR,
        "an event is dead: its attempts are used up, or another cannot help. It stays, with its error, for "
        "`partbox dead replay` or `discard`; later events of its aggregate go on, unless `on_dead` is `block`",
        ("handler", "attempts"),
        about=True,
    ),
    "decode_error": LogEvent(
        ERROR,
        "an event is dead because its payload cannot be decoded: give the codec to this outbox too, or fix the "
        "publisher",
        ("handler", "attempts"),
        about=True,
    ),
    "unroutable": LogEvent(
        WARNING,
        "no handler of the subscription `default` takes events of this type; `on_unroutable` decides about them. "
        "Logged for the first event of each type in each process, for 100 types at most, with the types that handlers "
        "take. A type is misspelt, or a module with handlers is not imported",
        about=True,
    ),
    "retrying": LogEvent(
        INFO,
        "an event failed and is retried in `delay` seconds; those behind it wait, unless `on_failure` is `continue`",
        ("handler", "attempts", "delay"),
        about=True,
        every=False,
    ),
    "failure": LogEvent(
        DEBUG,
        "the trace of the error for which an event is retried or deferred; that of a dead event is in its own line",
        ("handler", "attempts"),
        about=True,
    ),
    "deferred": LogEvent(
        INFO,
        "an event was put off for `delay` seconds, uncharged: its handler asked for it, or its circuit is open",
        ("handler", "attempts", "delay"),
        about=True,
        every=False,
    ),
    "error_ignored": LogEvent(
        WARNING,
        "an event whose handler failed counts as done, by the handler's `on_error`",
        ("handler",),
        about=True,
        every=False,
    ),
    "on_error_failed": LogEvent(
        ERROR,
        "an event failed, and its handler's `on_error` too, so the retry policy decides",
        ("handler",),
        about=True,
        every=False,
    ),
    "retry_policy_failed": LogEvent(
        ERROR,
        "an event failed, and its retry policy gave no delay, so it is tried again after 60 s",
        ("handler",),
        about=True,
        every=False,
    ),
    "dead_letter_failed": LogEvent(
        ERROR,
        "the dead-letter hook, or the sink of `--dead-to`, failed for a dead event: it is retried in `delay` seconds",
        ("delay",),
        about=True,
        every=False,
    ),
    "interceptor_failed": LogEvent(
        ERROR, "`after` of an interceptor failed, which changes nothing for the event", ("interceptor",), every=False
    ),
    # Of handlers.
    "slow_handler": LogEvent(
        WARNING,
        "a handler has run for over a minute, or half of its timeout: its aggregate waits, and a rebalance or stop "
        "would wait for it",
        ("handler", "seconds"),
        about=True,
        every=False,
    ),
    "overdue": LogEvent(
        ERROR,
        "a handler is over its timeout and cannot be cancelled: its event is charged with an attempt, the process "
        "releases its other partitions, ends and is replaced; embedded in an application it is only logged",
        ("handler", "seconds"),
        about=True,
    ),
    "abandoned": LogEvent(
        WARNING,
        "the worker stopped while a handler was running: its event may be delivered again. A stop waits for "
        "`drain_timeout`",
        about=True,
    ),
    "circuit_open": LogEvent(
        WARNING,
        "a handler's downstream counts as down in this process, by the errors that `circuit` names: its events are "
        "deferred, uncharged, and one is tried "
        "after 1 s, later every 30 s, until one succeeds",
        ("subscription", "handler"),
    ),
    "circuit_closed": LogEvent(
        INFO,
        "an event has succeeded, or many have failed for other reasons, and all are delivered again",
        ("subscription", "handler"),
    ),
    "brake": LogEvent(
        WARNING,
        "partitions have `max_parked` open parked records: nothing new of them is delivered until some are done. The "
        "log keeps the rest; `partbox blocked list` shows what is in the way",
        ("subscription", "partitions", "max_parked"),
    ),
    "brake_released": LogEvent(
        INFO, "new events of these partitions are delivered again", ("subscription", "partitions")
    ),
    # Of partitions.
    "claimed": LogEvent(INFO, "this process owns more partitions now", ("subscription", "partitions")),
    "takeover": LogEvent(
        WARNING,
        "some claimed partitions belonged to a process that died: what it had not saved is delivered again, and events "
        "that may have killed it are charged with an attempt before they run",
        ("subscription", "partitions"),
    ),
    "lost": LogEvent(
        WARNING,
        "partitions were taken from this process, after its lease ended or by a command: what was not saved is "
        "delivered again by the next owner",
        ("subscription", "partitions"),
    ),
    "lost_draining": LogEvent(
        INFO, "partitions were taken from this process while it was releasing them", ("subscription", "partitions")
    ),
    "fence_rejection": LogEvent(
        ERROR,
        "the fence refused a write about partitions that others own now: nothing of it was written. Once after a pause "
        "or an outage is harmless; if it happens often, leases are too short or clocks stand still",
        ("subscription", "partitions"),
    ),
    # Of processes and nodes.
    "node_started": LogEvent(
        INFO, "a node begins to deliver", ("subscription", "node", "processes", "concurrency", "version")
    ),
    "node_stopped": LogEvent(INFO, "the node has stopped", ("subscription", "node")),
    "worker_started": LogEvent(
        INFO, "a worker process, or an embedded worker, begins to deliver", ("subscription", "concurrency", "handlers")
    ),
    "worker_stopped": LogEvent(
        INFO, "the worker has stopped; `released`: with nothing left running", ("subscription", "released")
    ),
    "worker_failed": LogEvent(
        CRITICAL,
        "a worker or supervisor cannot continue and ends; the text has the remedy if there is one",
        ("subscription",),
    ),
    "crash": LogEvent(
        ERROR,
        "a worker process ended unexpectedly: its partitions go to others at once, and it is replaced",
        ("subscription", "worker_pid", "exit_code"),
    ),
    "crash_loop": LogEvent(
        ERROR, "processes keep dying: look at the first of their errors", ("subscription", "deaths", "seconds")
    ),
    "not_spawned": LogEvent(
        ERROR,
        "a worker process cannot be started, for lack of memory, processes or open files: the others go on, and it is "
        "tried again in `seconds`",
        ("subscription", "seconds"),
        every=False,
    ),
    "silent": LogEvent(
        ERROR,
        "a worker process shows no sign of life, or one of its handlers is far over its timeout: it is killed and "
        "replaced",
        ("subscription", "worker_pid", "seconds"),
    ),
    "idle": LogEvent(
        ERROR,
        "a worker process has neither read nor saved for two leases though its node reaches the database: it is killed "
        "and replaced",
        ("subscription", "worker_pid", "seconds"),
    ),
    "not_vouched": LogEvent(
        ERROR,
        "a worker inside an application has neither read nor saved for two leases though its membership reaches the "
        "database: others take its partitions when its lease is over",
        ("subscription", "seconds"),
    ),
    "killed": LogEvent(
        WARNING,
        "a worker process did not stop in time and is killed: running events may be delivered again",
        ("subscription", "worker_pid"),
    ),
    "orphaned": LogEvent(
        WARNING, "the supervisor is gone: its worker releases what it can while the lease holds, and ends"
    ),
    "buried": LogEvent(
        WARNING,
        "processes of any node died: their partitions go to others",
        ("subscription", "instances", "partitions"),
    ),
    "not_buried": LogEvent(
        ERROR, "dead processes could not be buried: their leases will end by themselves", ("subscription", "instances")
    ),
    "identity_lost": LogEvent(
        WARNING,
        "another node has buried a process of this one, which had not renewed its lease, or the commit with which it "
        "joined is lost: the process drops everything and continues under a new identity",
        ("subscription", "worker_pid"),
    ),
    "history_went_back": LogEvent(
        WARNING, "commits that the server had confirmed are gone, by a failover or a restore", ("subscription",)
    ),
    "planned": LogEvent(
        INFO, "this node has planned to move partitions", ("subscription", "partitions", "instances")
    ),
    "paused": LogEvent(
        INFO, "the subscription is paused: nothing is delivered until `partbox subscription resume`", ("subscription",)
    ),
    "resumed": LogEvent(INFO, "the subscription is delivered again", ("subscription",)),
    "subscription_gone": LogEvent(ERROR, "the subscription was dropped: stop this worker", ("subscription",)),
    "all_delivered": LogEvent(INFO, "`--until-empty`: everything that is due is delivered"),
    "not_delivered": LogEvent(
        ERROR,
        "`--until-empty`: everything due is delivered but in this database, which could not be worked for: the exit "
        "code is 1",
        ("subscription",),
    ),
    "database_away": LogEvent(
        WARNING,
        "one of several databases cannot be connected to at the start: its events wait, those of the others are "
        "delivered; it is tried again, at first after 0.1 s, later every 10 s. Logged again if the reason changes",
        ("subscription",),
    ),
    "database_unfit": LogEvent(
        ERROR,
        "one of several databases answers but is not as it must be: the schema is missing or of another version, or "
        "the subscription or a privilege is missing; the text has the remedy, after which work begins by itself",
        ("subscription",),
    ),
    "database_joined": LogEvent(
        INFO, "such a database can be worked for after `seconds`: its events are delivered",
        ("subscription", "seconds"),
    ),
    "disabled": LogEvent(WARNING, "`enabled` is false: nothing is delivered by this process; publishing works"),
    "unknown_variables": LogEvent(
        WARNING,
        "environment variables `PARTBOX_…` are not settings, and are ignored; perhaps one is mistyped. Logged once, by "
        "the supervisor's process",
    ),
    # Of the log.
    "log_lines_lost": LogEvent(
        WARNING,
        "the standard error of `partbox worker` is a pipe, a socket or a terminal that was not read for a while: "
        "`lines` lines are lost, delivery went on",
        ("lines",),
    ),
    # Of loops.
    "loop_error": LogEvent(
        ERROR,
        "a step of a loop failed and is tried again; while it fails, nothing is read, or nothing saved",
        ("subscription", "loop"),
        every=False,
    ),
    "not_noted": LogEvent(
        WARNING,
        "the list of long-running handlers could not be written for `partbox status` and `doctor`; it is tried again, "
        "and nothing else waits for it",
        ("subscription",),
        every=False,
    ),
    "connection_hung": LogEvent(
        ERROR,
        "the database, or something in between, did not answer a statement of this loop (`poller`, `saver`, "
        "`transactions`, `membership`) in time, a little over a lease (`membership`: a third of one): the loop stood "
        "still, its connection was cut, and it continues on a new one. If it happens often, look at the proxy or "
        "pooler in between",
        ("subscription", "loop"),
        every=False,
    ),
    "connection_lost": LogEvent(
        ERROR,
        "a connection was lost: all are replaced, and reading continues from the saved cursors",
        ("subscription",),
        every=False,
    ),
    "unseen": LogEvent(
        ERROR,
        "a worker may not see or write everything: a privilege is missing, row security is on, a table or a segment is "
        "not where it was, cursors were deleted, or a trigger keeps rows as they are. Nothing is read until that is "
        "mended, and nothing is lost; the text has the reason, `partbox doctor` the remedy",
        ("subscription",),
        every=False,
    ),
    "bell_lost": LogEvent(
        WARNING,
        "a worker's connection that listens for new events is lost or cannot be made, or the bell's flag cannot be "
        "set, or the server's notification queue is filling up: it looks every `poll_idle` until another connection "
        "hears and the queue has room, which is tried again by itself, or until it connects anew",
        ("subscription",),
    ),
    "no_heartbeat": LogEvent(
        ERROR,
        "the leases of this node's processes could not be renewed; once they end, others may take the partitions",
        ("subscription",),
        every=False,
    ),
    "not_planned": LogEvent(
        ERROR,
        "this node renewed its leases, but could not register processes, bury or plan. It goes on with the partitions "
        "that it owns; others may stay without an owner",
        ("subscription",),
        every=False,
    ),
    "transaction_failed": LogEvent(
        ERROR,
        "a transaction of transactional handlers was rolled back: its events run again",
        ("subscription", "events"),
        every=False,
    ),
    "http_started": LogEvent(INFO, "metrics, health checks and the page are served here", ("address",)),
    "look_failed": LogEvent(
        WARNING,
        "the database cannot be read for metrics and health checks; it is tried again, and delivery goes on over its "
        "own connections",
        every=False,
    ),
    "http_ended": LogEvent(
        ERROR, "metrics, health checks and the page are served no more; delivery goes on", ("address",)
    ),
    # Of purging, publishing, commands.
    "purged": LogEvent(INFO, "expired records were deleted"),
    "archived": LogEvent(INFO, "expired records were written to the archive: they may be deleted now"),
    "archive_failed": LogEvent(
        ERROR,
        "expired records could not be written to the archive: they stay in the log, and it is tried again; said once "
        "while the reason is the same",
    ),
    "segments": LogEvent(INFO, "segments of the log were made ahead of need, emptied whole, or dropped"),
    "segments_failed": LogEvent(
        ERROR,
        "segments of the log could not be made, emptied or dropped, and it is tried again; an event trigger of the "
        "database that fails may be the cause: while none lie ahead, new events fall into "
        "the default one, and what has expired stays",
    ),
    "purge_failed": LogEvent(ERROR, "a purge failed: expired records stay until the next one"),
    "duplicate": LogEvent(
        INFO, "an event is not published: its idempotency key was used before", ("event_id", "event_type"), every=False
    ),
    "publish_hook_failed": LogEvent(
        ERROR, "a publish hook failed, which changes nothing about the events", ("hook",), every=False
    ),
    "publish_end_unknown": LogEvent(
        WARNING,
        "a COMMIT was cancelled, or its connection lost, before it was answered: whether its events were published is "
        "not known, so no `after_commit` or `after_rollback` hook is called for them",
        ("batches",),
        every=False,
    ),
    "observer_failed": LogEvent(ERROR, "an observer failed, which changes nothing else", ("hook",), every=False),
    "command": LogEvent(
        INFO, "an operator's command was carried out", ("command", "subscription"),
    ),
}  # fmt: skip


def rows() -> str:
    """The table as Markdown."""
    lines = ["| event | level | what it means | fields |", "|---|---|---|---|"]
    for name, each in LOG_EVENTS.items():
        fields = ", ".join(f"`{field}`" for field in each.fields) + (" + event" if each.about else "")
        some = "" if each.every else " *"
        meaning = f"{each.meaning[:1].upper()}{each.meaning[1:]}".replace("|", "\\|")
        lines.append(f"| `{PREFIX}{name}` | {getLevelName(each.level)}{some} | {meaning} | {fields.strip(' +')} |")
    return "\n".join(lines) + "\n"
