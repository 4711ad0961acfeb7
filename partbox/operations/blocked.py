"""Blocked keys: aggregates whose events wait for a record that failed."""

from enum import Enum

from partbox.db.operator import blocked
from partbox.db.operator.actions import current_reason
from partbox.db.operator.blocked import BlockedGroup, BlockedKey, Head, Key, TimeBounds
from partbox.errors import PartboxError
from partbox.operations import arguments
from partbox.operations.arguments import AggregateId
from partbox.operations.session import OperatorCommands

Kind = str | Enum
TimeBound = arguments.Bound | None
Keys = list[BlockedKey]
Groups = list[BlockedGroup]


class BlockedKeys(OperatorCommands):
    """Commands on aggregates whose later events wait for a failed event.

    Such an aggregate is a blocked key, and the failed event is its head. An impossible command raises PartboxError with
    a remedy, an unreachable database raises psycopg.Error."""

    _group_name = "blocked"

    def list(
        self, limit: int = 100, *, since: TimeBound = None, until: TimeBound = None, subscription: str = "default"
    ) -> Keys:
        """Return at most `limit` aggregates that are blocked by a failed event, the longest blocked first.

        `since` (inclusive) and `until` (exclusive) bound the time at which a key became blocked. Both are times, or
        lengths such as "2h" for two hours ago."""
        limit, bounds = arguments.check_limit(limit), _parse_time_bounds(since, until)
        with self._open_session(subscription) as conn:
            return blocked.list_keys(conn, self._schema, subscription, limit, bounds)

    def groups(
        self, limit: int = 100, *, since: TimeBound = None, until: TimeBound = None, subscription: str = "default"
    ) -> Groups:
        """Group the blocked aggregates by the kind of their failure, and return at most `limit` groups, the largest
        first."""
        limit, bounds = arguments.check_limit(limit), _parse_time_bounds(since, until)
        with self._open_session(subscription) as conn:
            return blocked.list_groups(conn, self._schema, subscription, limit, bounds)

    def retry_now(self, aggregate_type: Kind, aggregate_id: AggregateId, *, subscription: str = "default") -> Head:
        """Retry the failed event that blocks an aggregate now, instead of at its due time.

        A dead event is retried, too. Return the event (the head of the aggregate) as it was before. Its `changed` is
        False if the head only waits for a free handler."""
        key = _build_key(subscription, aggregate_type, aggregate_id)
        with self._open_session(subscription) as conn:
            head = _require_blocked(blocked.retry_now(conn, self._schema, key), key)
        detail = "" if head.changed else ", as it would anyway: nothing was changed"
        text = "record %d, which blocks %r %r in subscription %r, was %s and will run now%s"
        self._log_command("retry", subscription, text, head.record_id, *key[1:], subscription, head.state, detail)
        return head

    def skip(
        self,
        aggregate_type: Kind,
        aggregate_id: AggregateId,
        reason: str | None = None,
        *,
        subscription: str = "default",
    ) -> Head:
        """Give up the failed event that blocks an aggregate, so that later events of the aggregate are delivered.

        The event is the head of the aggregate. Return the head as it was before. The head becomes a dead record, which
        can be replayed later, with `reason` (else the one of `acting_as`) before its error. If a handler is running the
        head, the handler's outcome counts."""
        key = _build_key(subscription, aggregate_type, aggregate_id)
        reason = current_reason() if reason is None else arguments.check_text("reason", reason)
        with self._open_session(subscription) as conn:
            limit = self._settings.error_limit
            head = _require_blocked(blocked.skip(conn, self._schema, key, reason=reason, error_limit=limit), key)
        text, detail = "skipped record %d, which blocked %r %r in subscription %r and was %s: %r", reason or "by hand"
        self._log_command("skip", subscription, text, head.record_id, *key[1:], subscription, head.state, detail)
        return head


def _build_key(subscription: str, aggregate_type: Kind, aggregate_id: AggregateId) -> Key:
    return Key(
        subscription, arguments.check_kind("aggregate_type", aggregate_type), arguments.check_aggregate_id(aggregate_id)
    )


def _require_blocked(head: Head | None, key: Key) -> Head:
    if head is None:
        raise PartboxError(
            f"aggregate {key.aggregate_type!r} / {key.aggregate_id!r} is not blocked in subscription "
            f"{key.subscription!r}: `partbox blocked list` shows the blocked aggregates"
        )
    return head


def _parse_time_bounds(since: TimeBound, until: TimeBound) -> TimeBounds:
    return TimeBounds(arguments.parse_bound("since", since), arguments.parse_bound("until", until))
