"""The owners of the partitions, as the database has them."""

from collections import Counter
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import Connection


@dataclass(frozen=True, slots=True)
class Row:
    """A partition's row."""

    partition: int
    owner: UUID | None
    assignee: UUID | None
    epoch: int
    last_id: int
    xmax: int


class Owners:
    """Looks at the ownership in the subscription `default` through an autocommit connection."""

    def __init__(self, conn: Connection[Any]) -> None:
        self.conn = conn

    def rows(self) -> dict[int, Row]:
        """Every partition's row by its number."""
        found = self.conn.execute(
            "select partition, owner, assignee, epoch, last_id, pg_snapshot_xmax(snapshot)::text::bigint"
            " from partbox.partition where subscription = 'default'"
        )
        return {row[0]: Row(*row) for row in found}

    def shares(self) -> Counter[UUID | None]:
        """The number of partitions of each owner; None counts the unowned."""
        return Counter(row.owner for row in self.rows().values())

    def even(self, instances: int) -> bool:
        """True if this many instances own all partitions, in equal shares, each as planned."""
        rows, shares = self.rows().values(), self.shares()
        return (
            len(shares) == instances
            and None not in shares
            and max(shares.values()) - min(shares.values()) <= 1
            and all(row.owner == row.assignee for row in rows)
        )

    def instances(self, node: str | None = None) -> dict[UUID, int]:
        """The pid of each instance, of a node or of all."""
        return dict(
            self.conn.execute(
                "select instance_id, pid from partbox.instance where node = coalesce(%s, node) order by started_at",
                [node],
            ).fetchall()
        )

    def draining(self, node: str) -> bool:
        """True if a process of the node is leaving."""
        found = self.conn.execute("select bool_or(draining) from partbox.instance where node = %s", [node]).fetchone()
        return bool(found and found[0])

    def events(self) -> list[tuple[str, int]]:
        """Each event of the log, and its partition."""
        return self.conn.execute("select event_id::text, partition from partbox.record order by id").fetchall()

    def consumed(self) -> bool:
        """True if every cursor has passed every record, with nothing parked."""
        found = self.conn.execute(
            "select (select count(*) from partbox.record_status where status <> 'done')"
            " + (select count(*) from partbox.parked)"
        ).fetchone()
        return found is not None and found[0] == 0
