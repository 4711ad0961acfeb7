"""Operator commands on the page, with plain data as parameters and results. Each call opens a connection of its own,
and raises PartboxError and psycopg.Error as the commands do."""

from collections.abc import Callable
from typing import Any

from partbox.dashboard.page_text import LONG, build_plain, cut_text
from partbox.dashboard.request_params import ActionParams
from partbox.db.operator.actions import OperatorAction
from partbox.db.operator.blocked import BlockedKey
from partbox.db.operator.dead import DeadRecord
from partbox.errors import PartboxError
from partbox.operations.actions import Actions
from partbox.operations.blocked import BlockedKeys
from partbox.operations.dead import DeadRecords
from partbox.operations.limits import LimitedHandlers
from partbox.operations.subscriptions import Subscriptions
from partbox.settings import Settings
from partbox.text.secrets import mask_secrets
from partbox.text.wording import format_names

PAGE = 50
FEW = 5  # records named in a text
# The largest groups and the longest blocked keys. Others appear once these are dealt with.
MOST_GROUPS = 50
MOST_KEYS = 500

Plain = dict[str, Any]
Filters = dict[str, str]


class OperatorActions:
    """The actions that operators can perform on the dashboard, such as replaying dead records.

    The keys of `actions` and `bulk_actions` are URL paths. Each of `actions` returns the number of records that are
    `done`, and the records that `failed` with the reason. Each of `bulk_actions` acts on all dead records that match
    filters. If its `progress` callback raises, the action ends between two chunks."""

    def __init__(self, dsn: Callable[[], str], settings: Settings) -> None:
        self._dead = dead = DeadRecords(dsn, settings)
        self._blocked = blocked = BlockedKeys(dsn, settings)
        switch = Subscriptions(dsn, settings)
        limited = LimitedHandlers(dsn, settings)
        self._actions = Actions(dsn, settings)
        self.actions: dict[str, Callable[[ActionParams], Plain]] = {
            "dead/replay": lambda params: _act_on_each(params, dead.replay),
            "dead/discard": lambda params: _act_on_each(params, dead.discard),
            "blocked/retry": lambda params: self._act_on_heads(params, blocked.retry_now),
            "blocked/skip": lambda params: self._act_on_heads(params, blocked.skip),
            "subscription/pause": lambda params: _build_answer(switch.pause(params.subscription)),
            "subscription/resume": lambda params: _build_answer(switch.resume(params.subscription)),
            "limit/set": lambda params: _build_answer(
                limited.set(rate=params.rate, at_once=params.at_once, **_find_limit_address(params))
            ),
            "limit/reset": lambda params: _build_answer(limited.reset(**_find_limit_address(params))),
        }
        self.bulk_actions: dict[str, Callable[..., int]] = {
            "dead/replay-all": dead.replay_all,
            "dead/discard-all": dead.discard_all,
        }

    def list_dead(self, subscription: str, filters: Filters, after: int | None) -> Plain:
        """Return a page of a subscription's dead records, oldest first, and the total number."""
        # `next` is null on the last page.
        found = self._dead.list(**filters, limit=PAGE + 1, after=after, subscription=subscription)
        page = found[:PAGE]
        return {
            "count": self._dead.count(**filters, subscription=subscription),
            "records": [_build_dead(each) for each in page],
            "next": page[-1].record_id if len(found) > PAGE else None,
        }

    def list_dead_groups(self, subscription: str, filters: Filters) -> Plain:
        """Return a subscription's dead records in groups by type and error, the largest first."""
        # `count` is the number of all records.
        found = self._dead.groups(**filters, limit=MOST_GROUPS + 1, subscription=subscription)
        names = ("records", "blocking", "died_from", "died_to")
        return {
            "count": self._dead.count(**filters, subscription=subscription),
            "groups": [
                # The group as text, because it has more digits than a number keeps in a browser.
                build_plain(each, *names, group=str(each.group), newest=_build_dead(each.newest))
                for each in found[:MOST_GROUPS]
            ],
            "more": len(found) > MOST_GROUPS,
        }

    def list_done(self, subscription: str | None) -> list[Plain]:
        """Return the latest actions of operators on a subscription, or on all subscriptions if None."""
        found = self._actions.list(PAGE, subscription=subscription)
        return [
            build_plain(
                each,
                *("at", "action", "subscription", "count"),
                who=cut_text(each.who),
                on=_format_object(each),
                reason=cut_text(each.reason, LONG),
            )
            for each in found
        ]

    def list_blocked(self, subscription: str, limit: int) -> Plain:
        """Return up to `limit` aggregates of a subscription that have been blocked the longest."""
        # There are at most MOST_KEYS of them.
        # `more` is True if there are others.
        limit = min(limit, MOST_KEYS)
        found = self._blocked.list(limit + 1, subscription=subscription)
        return {"keys": [_build_blocked(each) for each in found[:limit]], "more": len(found) > limit}

    def _act_on_heads(self, params: ActionParams, act: Callable[..., Any]) -> Plain:
        # The heads are the records that block aggregates. An error is reported for a record that no longer blocks one.
        keys = {each.record_id: each for each in self._blocked.list(MOST_KEYS, subscription=params.subscription)}

        def act_on_key(head: int, subscription: str) -> bool:
            if head not in keys:
                raise PartboxError(f"record {head} does not block its aggregate any more")
            key = keys[head].aggregate_type, keys[head].aggregate_id
            return bool(act(*key, subscription=subscription).changed)

        return _act_on_each(params, act_on_key)


def _build_answer(changed: bool) -> Plain:
    return {"done": int(changed), "failed": []}


def _act_on_each(params: ActionParams, act: Callable[..., object]) -> Plain:
    done, failed = 0, []
    for id in params.records:
        try:
            done += bool(act(id, subscription=params.subscription))
        except PartboxError as error:
            failed.append({"record": id, "why": cut_text(mask_secrets(str(error)), LONG)})
    return {"done": done, "failed": failed}


def _format_object(each: OperatorAction) -> str:
    ids = [str(id) for id in each.target.get("record_ids", ())]
    others = {
        name: value for name, value in each.target.items() if name != "record_ids" and value not in (None, {}, [])
    }
    told = [f"{name.replace('_', ' ')} {value}" for name, value in others.items()]
    records = [f"record{'s' if len(ids) > 1 else ''} {format_names(ids, FEW)}"] if ids else []
    return cut_text("; ".join([*records, *told]), LONG) or ""


def _find_limit_address(params: ActionParams) -> dict[str, Any]:
    # The arguments that name the handler, value, event type or tenant.
    named = {"handler": params.handler or None, "value": params.value}
    return named | {"event_type": params.event_type, "tenant": params.tenant, "subscription": params.subscription}


def _build_dead(each: DeadRecord) -> Plain:
    names = ("event_type", "aggregate_type", "aggregate_id", "attempts", "died_at", "error_type", "blocks")
    event = each.event_id and str(each.event_id)
    return build_plain(each, *names, record=each.record_id, event=event, error=cut_text(each.error, LONG))


def _build_blocked(each: BlockedKey) -> Plain:
    names = ("aggregate_type", "aggregate_id", "event_type", "state", "attempts", "due_at", "followers", "partition")
    return build_plain(
        each,
        *(*names, "pid", "error_type"),
        record=each.record_id,
        since=each.blocked_since.isoformat(),
        node=cut_text(each.node, 60),
        error=cut_text(each.error, LONG),
    )
