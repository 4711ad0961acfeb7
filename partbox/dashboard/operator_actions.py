"""The operator's commands on the page: lists of blocked aggregates and dead records, and the actions on them.

Plain data in, plain data out. Every call opens a connection of its own; raises PartboxError and
psycopg.Error as the commands do.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from partbox.dashboard.page_text import LONG, cut, visible
from partbox.db.operator.blocked import BlockedKey
from partbox.db.operator.dead import DeadGroup, DeadRecord
from partbox.errors import PartboxError
from partbox.operations.blocked import BlockedKeys
from partbox.operations.dead import DeadRecords, Progress
from partbox.operations.subscriptions import Subscriptions
from partbox.settings import Settings
from partbox.text.secrets import masked

PAGE = 50
MOST_GROUPS = 50  # the largest; others follow when these are done
MOST_KEYS = 500  # the longest blocked; others follow when these are done

Plain = dict[str, Any]
Filters = dict[str, str]


class OperatorActions:
    def __init__(self, dsn: Callable[[], str], settings: Settings) -> None:
        self._dead = DeadRecords(dsn, settings)
        self._blocked = BlockedKeys(dsn, settings)
        self._subscriptions = Subscriptions(dsn, settings)

    def dead(self, subscription: str, filters: Filters, after: int | None) -> Plain:
        """A page of dead records, oldest first, and how many there are in all; `next` is null on the last page."""
        found = self._dead.list(**filters, limit=PAGE + 1, after=after, subscription=subscription)
        page = found[:PAGE]
        return {
            "count": self._dead.count(**filters, subscription=subscription),
            "records": [_dead(each) for each in page],
            "next": page[-1].record_id if len(found) > PAGE else None,
        }

    def dead_groups(self, subscription: str, filters: Filters) -> Plain:
        """Dead records by type and error, the largest groups first, and how many records there are in all."""
        found = self._dead.groups(**filters, limit=MOST_GROUPS + 1, subscription=subscription)
        return {
            "count": self._dead.count(**filters, subscription=subscription),
            "groups": [_group(each) for each in found[:MOST_GROUPS]],
            "more": len(found) > MOST_GROUPS,
        }

    def show(self, subscription: str, record_id: int) -> Plain:
        """One dead record with its whole texts, never its payload or headers."""
        found = self._dead.show(record_id, subscription=subscription)
        whole = {
            "aggregate_type": found.aggregate_type,
            "aggregate_id": found.aggregate_id,
            "event_type": found.event_type,
            "tenant_id": found.tenant_id,
            "error": found.error and masked(found.error),
            "traceback": found.traceback and masked(found.traceback),
        }
        return _dead(found) | {
            **{name: text and visible(text, keep="\n\t") for name, text in whole.items()},
            "content_type": cut(found.content_type),
            "published_at": _moment(found.published_at),
            "occurred_at": _moment(found.occurred_at),
        }

    def blocked(self, subscription: str, limit: int) -> Plain:
        """The aggregates that have been blocked the longest, MOST_KEYS at most; `more`: there are others."""
        limit = min(limit, MOST_KEYS)
        found = self._blocked.list(limit + 1, subscription=subscription)
        return {"keys": [_blocked(each) for each in found[:limit]], "more": len(found) > limit}

    def replay(self, subscription: str, record_ids: Iterable[int]) -> Plain:
        """Replay each of these; the result names those that cannot be."""
        return _each(record_ids, lambda id: self._dead.replay(id, subscription=subscription))

    def discard(self, subscription: str, record_ids: Iterable[int]) -> Plain:
        return _each(record_ids, lambda id: self._dead.discard(id, subscription=subscription))

    def replay_all(self, subscription: str, filters: Filters, progress: Progress) -> int:
        """Replay all that match; return their number. An error raised by `progress` ends it between two chunks."""
        return self._dead.replay_all(**filters, subscription=subscription, progress=progress)

    def discard_all(self, subscription: str, filters: Filters, progress: Progress) -> int:
        return self._dead.discard_all(**filters, subscription=subscription, progress=progress)

    def retry(self, subscription: str, record_ids: Iterable[int]) -> Plain:
        """Let these heads of blocked aggregates run now."""
        keys = self._heads(subscription)
        return _each(record_ids, lambda id: self._blocked.retry_now(*_key(keys, id), subscription=subscription).changed)

    def skip(self, subscription: str, record_ids: Iterable[int], reason: str | None) -> Plain:
        """Let these aggregates go on without their heads, which are dead then."""
        keys = self._heads(subscription)
        return _each(
            record_ids,
            lambda id: self._blocked.skip(*_key(keys, id), reason or None, subscription=subscription).changed,
        )

    def pause(self, subscription: str) -> Plain:
        return {"done": int(self._subscriptions.pause(subscription)), "failed": []}

    def resume(self, subscription: str) -> Plain:
        return {"done": int(self._subscriptions.resume(subscription)), "failed": []}

    def _heads(self, subscription: str) -> dict[int, BlockedKey]:
        """The blocked keys by the head that the page shows; by now another record may block the aggregate."""
        return {each.record_id: each for each in self._blocked.list(MOST_KEYS, subscription=subscription)}


def _each(record_ids: Iterable[int], act: Callable[[int], object]) -> Plain:
    done, failed = 0, []
    for id in record_ids:
        try:
            done += bool(act(id))
        except PartboxError as error:
            failed.append({"record": id, "why": cut(masked(str(error)), LONG)})
    return {"done": done, "failed": failed}


def _key(keys: dict[int, BlockedKey], head: int) -> tuple[str, str]:
    if head not in keys:
        raise PartboxError(f"record {head} does not block its aggregate any more")
    return keys[head].aggregate_type, keys[head].aggregate_id


def _dead(each: DeadRecord) -> Plain:
    return {
        "record": each.record_id,
        "event": each.event_id and str(each.event_id),
        "event_type": cut(each.event_type),
        "aggregate_type": cut(each.aggregate_type),
        "aggregate_id": cut(each.aggregate_id),
        "attempts": each.attempts,
        "died_at": _moment(each.died_at),
        "error_type": cut(each.error_type),
        "error": cut(each.error and masked(each.error), LONG),
        "blocks": each.blocks,
    }


def _group(each: DeadGroup) -> Plain:
    return {
        "group": str(each.group),  # more digits than a number has in a browser
        "records": each.records,
        "blocking": each.blocking,
        "died_from": _moment(each.died_from),
        "died_to": _moment(each.died_to),
        "newest": _dead(each.newest),
    }


def _blocked(each: BlockedKey) -> Plain:
    return {
        "record": each.record_id,
        "aggregate_type": cut(each.aggregate_type),
        "aggregate_id": cut(each.aggregate_id),
        "event_type": cut(each.event_type),
        "state": each.state,
        "attempts": each.attempts,
        "due_at": _moment(each.due_at),
        "since": _moment(each.blocked_since),
        "followers": each.followers,
        "partition": each.partition,
        "node": cut(each.node, 60),
        "pid": each.pid,
        "error_type": cut(each.error_type),
        "error": cut(each.error and masked(each.error), LONG),
    }


def _moment(when: datetime | None) -> str | None:
    return None if when is None else when.isoformat()
