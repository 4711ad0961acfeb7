"""The table of all log events: name, level, meaning, fields.

The name is the field `event` of the log record, with `partbox.` before it. `docs/logs.md` is made from this table.
"""

from dataclasses import dataclass
from logging import CRITICAL, DEBUG, ERROR, INFO, WARNING, getLevelName

PREFIX = "partbox."
EVENT = "subscription, partition, record_id, event_id, event_type, aggregate_type, attempt, epoch"
"""The fields of a line about one event. Its aggregate id is in the text only; its payload is nowhere."""


@dataclass(frozen=True, slots=True)
class LogEvent:
    """`fields` beside `event`, and those of an event where it is `about` one. Not `every`: floods are held back."""

    level: int
    meaning: str
    fields: tuple[str, ...] = ()
    about: bool = False
    every: bool = True


LOG_EVENTS: dict[str, LogEvent] = {
    # Of events.
    "dead": LogEvent(
        ERROR,
        "an event is given up: its attempts are used up, or another cannot help. It stays, with its error, for "
        "`partbox dead replay` or `discard`; later events of its aggregate go on, unless `on_dead` is `block`",
        ("handler", "attempts"),
        about=True,
    ),
    "decode_error": LogEvent(
        ERROR,
        "the same, because its payload cannot be decoded: give the codec to this outbox too, or mend the publisher",
        ("handler", "attempts"),
        about=True,
    ),
    "unroutable": LogEvent(
        WARNING,
        "no handler of the subscription `default` takes events of this type: `on_unroutable` is what becomes of them; "
        "said of the first of each type in each process, of 100 types at most, with what handlers take. A type was "
        "misspelt, or a module with handlers is not imported",
        about=True,
    ),
    "retrying": LogEvent(
        INFO,
        "an event failed and comes again in `delay` seconds; those behind it wait, unless `on_failure` is `continue`",
        ("handler", "attempts", "delay"),
        about=True,
        every=False,
    ),
    "failure": LogEvent(
        DEBUG,
        "the trace of the error for which an event is retried or deferred; that of a dead one is in its own line",
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
        WARNING, "a handler's error counts as done, as its `on_error` says", ("handler",), about=True, every=False
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
        "the dead-letter hook, or the sink of `--dead-to`, failed for a dead event: again in `delay` seconds",
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
        "a handler runs for over a minute, or half of its timeout: its aggregate waits, and a rebalance or stop "
        "would wait for it",
        ("handler", "seconds"),
        about=True,
        every=False,
    ),
    "overdue": LogEvent(
        ERROR,
        "a handler is over its timeout and cannot be ended: its event is charged, the process releases its other "
        "partitions, ends and is replaced; embedded in an application it is only said",
        ("handler", "seconds"),
        about=True,
    ),
    "abandoned": LogEvent(
        WARNING,
        "the worker stopped while a handler was running: its event may be delivered again. `drain_timeout` is how "
        "long a stop waits",
        about=True,
    ),
    "circuit_open": LogEvent(
        WARNING,
        "a handler's downstream counts as out of order in this process: its events are deferred, uncharged, and one "
        "is tried after 1 s, later every 30 s, until one succeeds",
        ("subscription", "handler"),
    ),
    "circuit_closed": LogEvent(INFO, "one has succeeded, and all are delivered again", ("subscription", "handler")),
    "brake": LogEvent(
        WARNING,
        "partitions have `max_parked` open parked records: nothing new of them is delivered until some are done. The "
        "log keeps the rest; `partbox blocked list` shows what is in the way",
        ("subscription", "partitions", "max_parked"),
    ),
    "brake_released": LogEvent(INFO, "they go on", ("subscription", "partitions")),
    # Of partitions.
    "claimed": LogEvent(INFO, "this process owns more partitions now", ("subscription", "partitions")),
    "takeover": LogEvent(
        WARNING,
        "some of them belonged to a process that died: what it had not saved is delivered again, and what may have "
        "killed it is charged with an attempt before it runs",
        ("subscription", "partitions"),
    ),
    "lost": LogEvent(
        WARNING,
        "partitions were taken from this process, after its lease was over or by a command: what was not saved is "
        "delivered again by the next owner",
        ("subscription", "partitions"),
    ),
    "lost_draining": LogEvent(
        INFO, "the same while this process was releasing them: it was too late", ("subscription", "partitions")
    ),
    "fence_rejection": LogEvent(
        ERROR,
        "the fence has refused a write about partitions that others own by now: nothing of it was written. Once after "
        "a pause or an outage it did its duty; often, leases are too short or clocks stand still",
        ("subscription", "partitions"),
    ),
    # Of processes and nodes.
    "node_started": LogEvent(
        INFO, "a node begins to deliver", ("subscription", "node", "processes", "concurrency", "version")
    ),
    "node_stopped": LogEvent(INFO, "it has ended", ("subscription", "node")),
    "worker_started": LogEvent(
        INFO, "a worker process, or an embedded worker, begins to deliver", ("subscription", "concurrency", "handlers")
    ),
    "worker_stopped": LogEvent(
        INFO, "it has ended; `released`: with nothing left running", ("subscription", "released")
    ),
    "worker_failed": LogEvent(
        CRITICAL,
        "a worker or supervisor cannot go on and ends; the text says the remedy where there is one",
        ("subscription",),
    ),
    "crash": LogEvent(
        ERROR,
        "a worker process ended that should not have: its partitions go to others at once, and it is replaced",
        ("subscription", "worker_pid", "exit_code"),
    ),
    "crash_loop": LogEvent(
        ERROR, "processes die again and again: look at the first of their errors", ("subscription", "deaths", "seconds")
    ),
    "not_spawned": LogEvent(
        ERROR,
        "a worker process cannot be started, for want of memory, processes or open files: the others go on, and it is "
        "tried again in `seconds`",
        ("subscription", "seconds"),
        every=False,
    ),
    "silent": LogEvent(
        ERROR,
        "a worker process shows no life, or a handler in it is far over its time: it is killed and replaced",
        ("subscription", "worker_pid", "seconds"),
    ),
    "killed": LogEvent(
        WARNING,
        "a worker process did not end in time at a stop and is killed: what ran may be delivered again",
        ("subscription", "worker_pid"),
    ),
    "orphaned": LogEvent(
        WARNING, "the supervisor is gone: its worker releases what it can while the lease holds, and ends"
    ),
    "buried": LogEvent(
        WARNING,
        "processes died, of whatever node: their partitions go to others",
        ("subscription", "instances", "partitions"),
    ),
    "not_buried": LogEvent(
        ERROR, "dead processes could not be buried: their leases will end by themselves", ("subscription", "instances")
    ),
    "identity_lost": LogEvent(
        WARNING,
        "another node has buried a process of this one, which had not renewed its lease: it drops everything and goes "
        "on under a new identity",
        ("subscription", "worker_pid"),
    ),
    "planned": LogEvent(
        INFO, "this node has planned that partitions move", ("subscription", "partitions", "instances")
    ),
    "paused": LogEvent(
        INFO, "the subscription is paused: nothing is delivered until `partbox subscription resume`", ("subscription",)
    ),
    "resumed": LogEvent(INFO, "it goes on", ("subscription",)),
    "subscription_gone": LogEvent(ERROR, "the subscription was dropped: stop this worker", ("subscription",)),
    "all_delivered": LogEvent(INFO, "`--until-empty`: everything that is due is delivered"),
    "not_delivered": LogEvent(
        ERROR,
        "`--until-empty`: the same in all other databases, but this one could not be worked for: the exit code is 1",
        ("subscription",),
    ),
    "database_away": LogEvent(
        WARNING,
        "one of several databases cannot be connected to, at the start: its events wait, the others are delivered; it "
        "is tried again, after 0.1 s and at last every 10 s. Said again when the reason is another",
        ("subscription",),
    ),
    "database_unfit": LogEvent(
        ERROR,
        "the same, because the database answers and is not as it must be: the schema is missing or of another version, "
        "the subscription or a privilege is missing; the text says the remedy, and it goes on by itself afterwards",
        ("subscription",),
    ),
    "database_joined": LogEvent(
        INFO, "such a database can be worked for now, after so many seconds: its events are delivered",
        ("subscription", "seconds"),
    ),
    "disabled": LogEvent(WARNING, "`enabled` is false: nothing is delivered by this process; publishing works"),
    "unknown_variables": LogEvent(
        WARNING,
        "variables `PARTBOX_…` of the environment are no settings, and ignored; perhaps one is mistyped. Said once, by "
        "the supervisor's process",
    ),
    # Of the log.
    "log_lines_lost": LogEvent(
        WARNING,
        "the standard error output of `partbox worker` is a pipe, a socket or a terminal that nobody read for a "
        "while: so many lines are lost, delivery went on",
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
        "which handlers run for long could not be written for `partbox status` and `doctor`, and is tried again; "
        "nothing else waits for it",
        ("subscription",),
        every=False,
    ),
    "connection_hung": LogEvent(
        ERROR,
        "the database, or what is between, did not answer a statement of this loop (`poller`, `saver`, "
        "`transactions`, `membership`) in time, a little over a lease (`membership`: a third of one): nothing went on "
        "in it meanwhile, the connection was cut, and it goes on over a new one. Again and again: look at the proxy or "
        "pooler between",
        ("subscription", "loop"),
        every=False,
    ),
    "connection_lost": LogEvent(
        ERROR,
        "a connection is lost: all are made anew, and reading goes on from the saved cursors",
        ("subscription",),
        every=False,
    ),
    "no_heartbeat": LogEvent(
        ERROR,
        "the leases of this node's processes could not be renewed; when they are over, others may take the partitions",
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
        "the numbers of the database cannot be read for metrics and health checks, which is tried again: deliveries "
        "have connections of their own",
        every=False,
    ),
    "http_ended": LogEvent(ERROR, "nobody can look there any more; deliveries go on", ("address",)),
    # Of purging, publishing, commands.
    "purged": LogEvent(INFO, "what has expired was deleted"),
    "purge_failed": LogEvent(ERROR, "a purge failed: what has expired stays until the next one"),
    "duplicate": LogEvent(
        INFO, "an event is not published: its idempotency key was used before", ("event_id", "event_type"), every=False
    ),
    "publish_hook_failed": LogEvent(
        ERROR, "a publish hook failed, which changes nothing about the events", ("hook",), every=False
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
