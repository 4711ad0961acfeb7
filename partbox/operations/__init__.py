"""The operators' verbs: a file for each noun that they act on.

`dead`, `blocked`, `subscriptions`, `limits`, `actions` and `stats` are objects of an outbox; `purge` and `rebase` are
its methods. Each call opens a `session` of its own, checks what it was given by `arguments`, and has its statements in
`partbox.db.operator` or `partbox.db.inspect`. `Operations` is the part of an outbox that has them all.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from partbox.db.schema.outbox_database import OutboxDatabase
from partbox.operations.arguments import ArgumentError, Length

if TYPE_CHECKING:
    from partbox.db.operator.rebase import Rebased
    from partbox.imports import ImportResult
    from partbox.inbox import Inbox
    from partbox.operations.actions import Actions
    from partbox.operations.blocked import BlockedKeys
    from partbox.operations.dead import DeadRecords
    from partbox.operations.limits import LimitedHandlers
    from partbox.operations.purge import Purged
    from partbox.operations.records import RecordSearch
    from partbox.operations.stats import Stats
    from partbox.operations.subscriptions import Subscriptions
    from partbox.settings import Settings


class Operations:
    """An outbox with these settings in the database of `dsn`; see `partbox.outbox` for its forms."""

    def __init__(self, dsn: str | Callable[[], str] | None, settings: "Settings") -> None:
        self._database = OutboxDatabase(dsn, settings)

    @property
    def settings(self) -> "Settings":
        """The settings, as they were loaded."""
        return self._database.settings

    @property
    def dsn(self) -> str:
        """A DSN that libpq understands, as of now: calls a callable, starts the server of an `embedded:` one."""
        return self._database.resolve()()

    @property
    def dead(self) -> "DeadRecords":
        """Dead records: list, show, count, replay, discard."""
        from partbox.operations.dead import DeadRecords

        return DeadRecords(lambda: self.dsn, self.settings)

    @property
    def blocked(self) -> "BlockedKeys":
        """Aggregates that wait for a failed event: list, retry now, skip."""
        from partbox.operations.blocked import BlockedKeys

        return BlockedKeys(lambda: self.dsn, self.settings)

    @property
    def subscriptions(self) -> "Subscriptions":
        """Consumers of the log: create, list, pause, resume, replay, drop."""
        from partbox.operations.subscriptions import Subscriptions

        return Subscriptions(lambda: self.dsn, self.settings)

    @property
    def limits(self) -> "LimitedHandlers":
        """Limits of handlers in running workers: list, set, reset."""
        from partbox.operations.limits import LimitedHandlers

        return LimitedHandlers(lambda: self.dsn, self.settings, self._limitable)

    def _limitable(self, subscription: str) -> Collection[str]:
        """The names of a subscription's handlers that take limits, as far as they are known here."""
        return ()

    @property
    def actions(self) -> "Actions":
        """The acts of operators, by this program and others: `list`. See `acting_as`."""
        from partbox.operations.actions import Actions

        return Actions(lambda: self.dsn, self.settings)

    @staticmethod
    def acting_as(identity: str | None) -> AbstractContextManager[None]:
        """While it lasts, in this thread or task, what is done by any outbox is noted as done by `identity`.

        Such as the user of a program that embeds this one; None: the user of this process, as without it. Cut after
        200 characters. PartboxError for what is no text, or an empty one.
        """
        from partbox.db.operator.actions import acting_as

        return acting_as(identity)

    @property
    def stats(self) -> "Stats":
        """Numbers: records by status, partitions, processes; and records a page at a time."""
        from partbox.operations.stats import Stats

        return Stats(lambda: self.dsn, self.settings)

    @property
    def records(self) -> "RecordSearch":
        """Records: find them, with what became of each."""
        from partbox.operations.records import RecordSearch

        return RecordSearch(lambda: self.dsn, self.settings)

    @property
    def inbox(self) -> "Inbox":
        """The events that consumers have seen: `first_time(conn, event, consumer)`; see `partbox.inbox`."""
        from partbox.inbox import Inbox

        return Inbox(self.settings.schema_name)

    def purge(self, dry_run: bool = False) -> "Purged":
        """Delete what has expired, or count what would go: handled and dead records, idempotency keys, inbox rows.

        Workers do it by themselves every `purge_interval`. Nothing goes that a subscription still needs, a paused one
        neither. Raises SchemaError, psycopg.Error; what went before stays gone.
        """
        from partbox.operations.purge import purge

        if not isinstance(dry_run, bool):
            raise ArgumentError("dry_run", f"{dry_run!r} must be True or False")
        return purge(lambda: self.dsn, self.settings, dry_run=dry_run, by_hand=True)

    def rebase(self, *, force: bool = False, timeout: Length = 60.0) -> "Rebased":
        """Make a schema that came from a dump, or by logical replication, one of this database's cluster.

        Workers then deliver what had not been delivered when the copy was made. Stop them first. Publishers wait while
        it lasts, and it waits for them at most `timeout` (seconds, a timedelta, or a text such as "2m"). PartboxError
        if the schema is no copy (unless `force`), or workers are alive. All or nothing.
        """
        from partbox.operations.rebase import rebase

        return rebase(lambda: self.dsn, self.settings, force=force, timeout=timeout)

    def import_from(  # public: its options are keywords
        self,
        table: str,
        columns: Mapping[str, str],
        constants: Mapping[str, str] | None = None,
        *,
        status: str | None = None,
        pending: Sequence[str] = (),
        failed: Sequence[str] = (),
        done: Sequence[str] = (),
        key: Sequence[str] = (),
        order: Sequence[str] = (),
        where: str | None = None,
        dry_run: bool = False,
        skip_bad: bool = False,
    ) -> "ImportResult":
        """Import the rows of another outbox's table that were not imported before, each once; nothing of it changes.

        `columns` and `constants` by field of an event; rows become records in the order of the columns `order`. With
        statuses in `failed` they are dead, with one in `done` they are left. `where` is SQL. No hook is called. Raises
        PartboxError for a row that cannot be a record, unless `skip_bad`; batches before it stay imported.
        """
        from partbox.imports import ImportPlan, import_rows

        statuses = tuple(pending), tuple(failed), tuple(done)
        plan = ImportPlan(table, columns, constants or {}, status, *statuses, tuple(key), tuple(order), where)
        return import_rows(lambda: self.dsn, self.settings, plan, dry_run=dry_run, skip_bad=skip_bad)
