"""Numbers of an outbox for applications and operators' pages."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from psycopg import Connection

from partbox.db.inspect import pages, stats
from partbox.db.inspect.pages import RecordStatus
from partbox.db.inspect.stats import STATES, Cluster, Overview, PartitionStats
from partbox.db.session import require, session
from partbox.errors import PartboxError
from partbox.operations import arguments as asked
from partbox.settings import Settings

LARGEST_PAGE = 1_000
FAILED = ("retrying", "dead")


class Stats:
    """The numbers of an outbox. Every call opens a connection of its own and asks one statement.

    `overview`, `cluster`, `partitions` and `records` count up to 10,000 pending records of a partition and estimate
    beyond; parked ones are counted, completed ones estimated. Pages hold at most 1,000 records by id, without payloads:
    the next one begins `after` the last id of the one before. Raises PartboxError with the remedy, for a subscription
    that does not exist too; psycopg.Error if the database cannot be reached: no answer ever means "none".
    """

    def __init__(self, dsn: Callable[[], str], settings: Settings) -> None:
        self._dsn = dsn
        self._settings = settings
        self._schema = settings.schema_name

    def overview(self) -> Overview:
        """All subscriptions at one moment: their processes, partitions and counts."""
        with session(self._dsn, self._settings, "partbox stats") as conn:
            return stats.overview(conn, self._schema)

    def cluster(self, subscription: str = "default") -> Cluster:
        """One subscription: its processes, its 256 partitions, its counts."""
        asked.text("subscription", subscription)
        with session(self._dsn, self._settings, "partbox stats") as conn:
            return stats.cluster(conn, self._schema, subscription)

    def partitions(self, subscription: str = "default") -> tuple[PartitionStats, ...]:
        """Its 256 partitions: owner, epoch, what is pending, how old the oldest is."""
        return self.cluster(subscription).partitions

    def records(self, subscription: str = "default") -> dict[str, int]:
        """The number of the log's records that are pending, completed, and parked in each state, zeros too."""
        return self.cluster(subscription).records

    def pending(self, subscription: str = "default", limit: int = 100, after: int | None = None) -> list[RecordStatus]:
        """Records that it has not consumed yet. Reads at most a page of each partition, and what committed late."""
        with self._session(subscription) as conn:
            return pages.pending(conn, self._schema, subscription, *_page(limit, after))

    def failed(self, subscription: str = "default", limit: int = 100, after: int | None = None) -> list[RecordStatus]:
        """Records that failed: those that wait for another attempt (retrying), and dead ones."""
        with self._session(subscription) as conn:
            return pages.parked(conn, self._schema, subscription, FAILED, *_page(limit, after))

    def parked(self, subscription: str = "default", limit: int = 100, after: int | None = None) -> list[RecordStatus]:
        """Records that are parked in any state: failed, deferred, delayed, held, ready, dead, discarded."""
        with self._session(subscription) as conn:
            return pages.parked(conn, self._schema, subscription, STATES, *_page(limit, after))

    def completed(
        self, subscription: str = "default", limit: int = 100, after: int | None = None
    ) -> list[RecordStatus]:
        """Records that are done and that no purge has removed yet. Reads at most a page of each partition."""
        with self._session(subscription) as conn:
            return pages.completed(conn, self._schema, subscription, *_page(limit, after))

    @contextmanager
    def _session(self, subscription: str) -> Iterator[Connection[Any]]:
        asked.text("subscription", subscription)
        with session(self._dsn, self._settings, "partbox stats") as conn:
            require(conn, self._schema, subscription)
            yield conn


def _page(limit: int, after: int | None) -> tuple[int, int]:
    """Checked: the number of records, and the id above which they start."""
    if asked.limit(limit) > LARGEST_PAGE:
        raise PartboxError(f"limit {limit} is too much for a page: at most {LARGEST_PAGE:,}, then the page after it")
    return limit, asked.after(after) or 0
