"""The list of all checks."""

from partbox.doctor.case import Check, Severity
from partbox.doctor.checks import access, handlers, keys, limits, ownership, server, sessions, storage, workers

# An error is raised for DATABASE and SCHEMA before there is a case. The finding has the message of the error.
DATABASE = Check(
    "database", (Severity.PROBLEM,), "The database cannot be reached, refuses the connection, or is a standby."
)
SCHEMA = Check(
    "schema",
    (Severity.PROBLEM,),
    "The schema is missing, behind or newer than this program, holds nothing but an inbox, or is not partbox's; or the "
    "server or its encoding is not supported.",
)

# In the order of the report: causes that explain others come first.
CHECKS: tuple[Check, ...] = (
    DATABASE,
    SCHEMA,
    storage.copied,
    access.row_security,
    access.privileges,
    access.displaced,
    access.triggers,
    storage.sequence_behind,
    storage.hidden,
    storage.sequence,
    storage.life,
    workers.no_workers,
    workers.lifespan,
    workers.paused,
    ownership.unowned,
    ownership.expired_process,
    handlers.hanging_handler,
    workers.stalled,
    workers.crashes,
    handlers.sink,
    handlers.dead_letters,
    keys.blocked_key,
    keys.blocked_by_dead,
    keys.braked,
    keys.waiting,
    keys.deferred,
    limits.limit,
    limits.value_circuit,
    keys.dead_flood,
    keys.dead,
    keys.backlog_grows,
    sessions.open_publisher,
    sessions.idle_transaction,
    sessions.long_transaction,
    sessions.prepared_transaction,
    sessions.replication_slot,
    sessions.locks,
    sessions.kept_lock,
    server.notification_queue,
    storage.archive,
    storage.purge,
    storage.segments,
    server.connections,
    server.wraparound,
    server.autovacuum,
    server.bloat,
    server.pooled_role,
    access.search_path,
    workers.mixed_versions,
    server.clock_skew,
    server.durability,
    server.bell,
    server.not_seen,
)
