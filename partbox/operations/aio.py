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


class _AsyncCommands:
    def __init__(self, sync: Any) -> None:
        self.sync_commands = sync


class AsyncCommand(Generic[P, R]):
    """A descriptor that makes a synchronous command a coroutine method with the same parameters, result and errors."""

    def __init__(self, verb: Callable[Concatenate[Any, P], R]) -> None:
        self._command = verb
        self.__doc__ = verb.__doc__

    def __get__(self, noun: _AsyncCommands, _: object = None) -> Callable[P, Coroutine[Any, Any, R]]:
        async def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return await asyncio.to_thread(self._command, noun.sync_commands, *args, **kwargs)

        return call


class AsyncDeadRecords(_AsyncCommands):
    list = AsyncCommand(DeadRecords.list)
    groups = AsyncCommand(DeadRecords.groups)
    count = AsyncCommand(DeadRecords.count)
    show = AsyncCommand(DeadRecords.show)
    replay = AsyncCommand(DeadRecords.replay)
    replay_all = AsyncCommand(DeadRecords.replay_all)
    discard = AsyncCommand(DeadRecords.discard)
    discard_all = AsyncCommand(DeadRecords.discard_all)


class AsyncBlockedKeys(_AsyncCommands):
    list = AsyncCommand(BlockedKeys.list)
    groups = AsyncCommand(BlockedKeys.groups)
    retry_now = AsyncCommand(BlockedKeys.retry_now)
    skip = AsyncCommand(BlockedKeys.skip)


class AsyncSubscriptions(_AsyncCommands):
    create = AsyncCommand(Subscriptions.create)
    list = AsyncCommand(Subscriptions.list)
    pause = AsyncCommand(Subscriptions.pause)
    resume = AsyncCommand(Subscriptions.resume)
    replay = AsyncCommand(Subscriptions.replay)
    drop = AsyncCommand(Subscriptions.drop)


class AsyncLimitedHandlers(_AsyncCommands):
    list = AsyncCommand(LimitedHandlers.list)
    set = AsyncCommand(LimitedHandlers.set)
    reset = AsyncCommand(LimitedHandlers.reset)


class AsyncActions(_AsyncCommands):
    list = AsyncCommand(Actions.list)


class AsyncStats(_AsyncCommands):
    overview = AsyncCommand(Stats.overview)
    cluster = AsyncCommand(Stats.cluster)
    partitions = AsyncCommand(Stats.partitions)
    records = AsyncCommand(Stats.records)
    pending = AsyncCommand(Stats.pending)
    failed = AsyncCommand(Stats.failed)
    parked = AsyncCommand(Stats.parked)
    completed = AsyncCommand(Stats.completed)


class AsyncRecordSearch(_AsyncCommands):
    find = AsyncCommand(RecordSearch.find)


class AsyncOperations(_AsyncCommands):
    """The operator commands as coroutines for asyncio, such as `await outbox.aio.dead.list()`.

    If the task is cancelled, the command continues in its thread to the end. `progress` callbacks run in that
    thread."""

    purge = AsyncCommand(Operations.purge)
    rebase = AsyncCommand(Operations.rebase)
    import_from = AsyncCommand(Operations.import_from)

    def __init__(self, sync: Operations) -> None:
        super().__init__(sync)
        self.dead = AsyncDeadRecords(sync.dead)
        self.blocked = AsyncBlockedKeys(sync.blocked)
        self.subscriptions = AsyncSubscriptions(sync.subscriptions)
        self.limits = AsyncLimitedHandlers(sync.limits)
        self.actions = AsyncActions(sync.actions)
        self.stats = AsyncStats(sync.stats)
        self.records = AsyncRecordSearch(sync.records)
