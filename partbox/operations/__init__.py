"""The operator commands as a Python API. Each module of this package holds the commands on one kind of object. A module
is imported when one of its commands is first used, so that a publisher pays for none of them."""

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
    """The operator commands of an outbox, for example on failed events, blocked keys, subscriptions and limits.

    The commands act on the schema that `settings` name, in the database of `dsn`, each over a connection of its own.
    `dsn` has the forms that `partbox.outbox` describes."""

    def __init__(self, dsn: str | Callable[[], str] | None, settings: "Settings") -> None:
        self._database = OutboxDatabase(dsn, settings)

    @property
    def settings(self) -> "Settings":
        """The settings of this outbox, which do not change after loading."""
        return self._database.settings

    @property
    def dsn(self) -> str:
        """The database connection string of this outbox, in a form that libpq understands.

        If the DSN was given as a callable, each access calls it. If the DSN is an `embedded:` one, its server is
        started."""
        return self._database.resolve_dsn()()

    @property
    def dead(self) -> "DeadRecords":
        """Commands that list, replay and discard dead records (events whose delivery was given up)."""
        from partbox.operations.dead import DeadRecords

        return DeadRecords(lambda: self.dsn, self.settings)

    @property
    def blocked(self) -> "BlockedKeys":
        """Commands that list the aggregates blocked by a failed event, and that retry or skip this event.

        Later events of a blocked aggregate (a blocked key) wait for its head, the first record that is not
        delivered."""
        from partbox.operations.blocked import BlockedKeys

        return BlockedKeys(lambda: self.dsn, self.settings)

    @property
    def subscriptions(self) -> "Subscriptions":
        """Commands that create, list, pause, resume, replay and drop subscriptions."""
        from partbox.operations.subscriptions import Subscriptions

        return Subscriptions(lambda: self.dsn, self.settings)

    @property
    def limits(self) -> "LimitedHandlers":
        """Commands that set and show the rate limits and concurrency limits of event handlers."""
        from partbox.operations.limits import LimitedHandlers

        return LimitedHandlers(lambda: self.dsn, self.settings, self._limitable)

    def _limitable(self, subscription: str) -> Collection[str]:
        """Return the names of a subscription's handlers that can have a rate or concurrency limit."""
        # Only handlers that this process knows are returned.
        return ()

    @property
    def actions(self) -> "Actions":
        """The audit log of the changes that operators have made to the outbox."""
        from partbox.operations.actions import Actions

        return Actions(lambda: self.dsn, self.settings)

    @staticmethod
    def acting_as(identity: str | None, *, reason: str | None = None) -> AbstractContextManager[None]:
        """Record `identity` as the user who gives the operator commands inside the `with` block, and why.

        None means the user of the process, and no reason. Both are recorded with the actions of this thread or task, on
        any outbox. The identity is cut after 200 characters, the reason after 500. Raise PartboxError if one of them is
        no text or is empty."""
        from partbox.db.operator.actions import acting_as

        return acting_as(identity, reason=reason)

    @property
    def stats(self) -> "Stats":
        """Commands that read statistics (records by status, partitions, worker processes) and pages of records."""
        from partbox.operations.stats import Stats

        return Stats(lambda: self.dsn, self.settings)

    @property
    def records(self) -> "RecordSearch":
        """Commands that search the log for records and show the delivery history of each."""
        from partbox.operations.records import RecordSearch

        return RecordSearch(lambda: self.dsn, self.settings)

    @property
    def inbox(self) -> "Inbox":
        """The inbox table, in which consumers store the ids of handled events to detect repeated deliveries."""
        from partbox.inbox import Inbox

        return Inbox(self.settings.schema_name)

    def purge(self, dry_run: bool = False) -> "Purged":
        """Delete expired records, idempotency keys and inbox rows. With `dry_run`, only count them.

        Records that any subscription still needs, even a paused one, are kept. Workers purge every `purge_interval` by
        themselves. Raise SchemaError or psycopg.Error; rows that were deleted before the error stay deleted."""
        from partbox.operations.purge import purge

        if not isinstance(dry_run, bool):
            raise ArgumentError("dry_run", f"{dry_run!r} must be True or False")
        return purge(lambda: self.dsn, self.settings, dry_run=dry_run, by_hand=True)

    def rebase(self, *, force: bool = False, timeout: Length = 60.0) -> "Rebased":
        """Make a restored or copied outbox usable in its new database cluster, whose transaction ids differ.

        Workers then deliver all records that were undelivered when the copy was made. Stop the workers first. The
        rebase is one transaction. It waits for publishers at most `timeout` (seconds, a timedelta, or a text such as
        "2m"), and publishers wait while it runs. Raise PartboxError if workers are alive, or if the schema is no copy
        and `force` is not set."""
        from partbox.operations.rebase import rebase

        return rebase(lambda: self.dsn, self.settings, force=force, timeout=timeout)

    def import_from(  # public: all that follow `constants` are keywords
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
        """Import the rows of another outbox's table as events, each row once. That table is not changed.

        `columns` and `constants` are keyed by fields of an event. Rows become records in the order of the columns
        `order`. A row with a status in `failed` becomes a dead record, a row with a status in `done` is left out.
        `where` is SQL. No publish hook is called. Raise PartboxError for a row that cannot be a record, unless
        `skip_bad` is set; earlier batches stay imported."""
        from partbox.imports import ImportPlan, import_rows

        statuses = tuple(pending), tuple(failed), tuple(done)
        plan = ImportPlan(table, columns, constants or {}, status, *statuses, tuple(key), tuple(order), where)
        return import_rows(lambda: self.dsn, self.settings, plan, dry_run=dry_run, skip_bad=skip_bad)
