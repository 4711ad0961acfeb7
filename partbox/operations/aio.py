"""The operator commands for asyncio. Each call runs its synchronous counterpart by `asyncio.to_thread`, whose threads
are limited in number and inherit the identity of `acting_as`."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from partbox.operations import Operations
from partbox.operations.actions import Actions
from partbox.operations.blocked import BlockedKeys
from partbox.operations.dead import DeadRecords
from partbox.operations.limits import LimitedHandlers
from partbox.operations.records import RecordSearch
from partbox.operations.stats import Stats
from partbox.operations.subscriptions import Subscriptions

P = ParamSpec("P")
R = TypeVar("R")


class _Verbs:
    def __init__(self, sync: Any) -> None:
        self.sync = sync


class AsyncVerb(Generic[P, R]):
    """A descriptor that makes a synchronous command a coroutine method with the same parameters, result and errors."""

    def __init__(self, verb: Callable[Concatenate[Any, P], R]) -> None:
        self._verb = verb
        self.__doc__ = verb.__doc__

    def __get__(self, noun: _Verbs, _: object = None) -> Callable[P, Coroutine[Any, Any, R]]:
        async def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return await asyncio.to_thread(self._verb, noun.sync, *args, **kwargs)

        return call


class AsyncDeadRecords(_Verbs):
    list = AsyncVerb(DeadRecords.list)
    groups = AsyncVerb(DeadRecords.groups)
    count = AsyncVerb(DeadRecords.count)
    show = AsyncVerb(DeadRecords.show)
    replay = AsyncVerb(DeadRecords.replay)
    replay_all = AsyncVerb(DeadRecords.replay_all)
    discard = AsyncVerb(DeadRecords.discard)
    discard_all = AsyncVerb(DeadRecords.discard_all)


class AsyncBlockedKeys(_Verbs):
    list = AsyncVerb(BlockedKeys.list)
    groups = AsyncVerb(BlockedKeys.groups)
    retry_now = AsyncVerb(BlockedKeys.retry_now)
    skip = AsyncVerb(BlockedKeys.skip)


class AsyncSubscriptions(_Verbs):
    create = AsyncVerb(Subscriptions.create)
    list = AsyncVerb(Subscriptions.list)
    pause = AsyncVerb(Subscriptions.pause)
    resume = AsyncVerb(Subscriptions.resume)
    replay = AsyncVerb(Subscriptions.replay)
    drop = AsyncVerb(Subscriptions.drop)


class AsyncLimitedHandlers(_Verbs):
    list = AsyncVerb(LimitedHandlers.list)
    set = AsyncVerb(LimitedHandlers.set)
    reset = AsyncVerb(LimitedHandlers.reset)


class AsyncActions(_Verbs):
    list = AsyncVerb(Actions.list)


class AsyncStats(_Verbs):
    overview = AsyncVerb(Stats.overview)
    cluster = AsyncVerb(Stats.cluster)
    partitions = AsyncVerb(Stats.partitions)
    records = AsyncVerb(Stats.records)
    pending = AsyncVerb(Stats.pending)
    failed = AsyncVerb(Stats.failed)
    parked = AsyncVerb(Stats.parked)
    completed = AsyncVerb(Stats.completed)


class AsyncRecordSearch(_Verbs):
    find = AsyncVerb(RecordSearch.find)


class AsyncOperations(_Verbs):
    """The operator commands as coroutines for asyncio, such as `await outbox.aio.dead.list()`. If the task is
    cancelled, the command continues in its thread to the end. `progress` callbacks run in that thread."""

    purge = AsyncVerb(Operations.purge)
    rebase = AsyncVerb(Operations.rebase)
    import_from = AsyncVerb(Operations.import_from)

    def __init__(self, sync: Operations) -> None:
        super().__init__(sync)
        self.dead = AsyncDeadRecords(sync.dead)
        self.blocked = AsyncBlockedKeys(sync.blocked)
        self.subscriptions = AsyncSubscriptions(sync.subscriptions)
        self.limits = AsyncLimitedHandlers(sync.limits)
        self.actions = AsyncActions(sync.actions)
        self.stats = AsyncStats(sync.stats)
        self.records = AsyncRecordSearch(sync.records)
