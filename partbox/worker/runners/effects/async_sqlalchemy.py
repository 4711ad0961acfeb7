"""Transactions of SQLAlchemy on an asynchronous connection of psycopg, in the event loop of async handlers."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from psycopg import Error
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session, create_async_engine

from partbox.db.deadline import WatchedConnection
from partbox.handlers import Handler
from partbox.worker.context import Context
from partbox.worker.runners.effects.async_psycopg import AsyncPsycopgEffects
from partbox.worker.runners.effects.sessions import Joined, handler_class
from partbox.worker.runners.effects.sqlalchemy import OF_ONE, psycopg_errors, quicken, refuse_ends
from partbox.worker.runners.walkers import Loop

T = TypeVar("T")


class AsyncSqlalchemyEffects(AsyncPsycopgEffects):
    """`transactional="sqlalchemy"` on an `async def`."""

    def __init__(self, context: Context, session: WatchedConnection, loop: Loop) -> None:
        super().__init__(context, session, loop)
        self._ends = False  # the transaction, by us
        self._joined: list[Joined] = []
        self._committed: list[Joined] = []
        self._on: AsyncConnection = self.limited(self._connect)
        refuse_ends(self._synchronous, lambda: self._ends)

    @property
    def _synchronous(self) -> Any:
        return self._on.sync_connection

    @property
    def is_intact(self) -> bool:
        root = self._synchronous.get_transaction()
        return root is not None and root.is_active and super().is_intact

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._joined, self._committed = [], []
        try:
            self.limited(self._begin)
            yield
            self._ends = True
            self.limited(self._commit)
            self._committed = self._joined
        except BaseException:
            self._ends = True
            with suppress(Exception):  # the session begins anew
                self.limited(self._roll_back)
            raise
        finally:
            self._ends = False

    def savepoint_async(self, handler: Handler) -> AbstractAsyncContextManager[tuple[Any, ...]]:
        return session_for(self._on, handler, self._joined)

    def hooks(self) -> Iterable[Callable[[], object]]:
        committed, self._committed = self._committed, []
        return [partial(self.wait, partial(self._run, each.committed)) for each in committed]

    def wait(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        with psycopg_errors():
            return super().wait(function)

    async def _connect(self) -> AsyncConnection:
        async def own() -> Any:
            return self.conn

        engine = create_async_engine("postgresql+psycopg://", async_creator=own, **OF_ONE)
        quicken(engine.sync_engine)
        return await engine.connect()

    async def _begin(self) -> None:
        await self.conn.set_autocommit(False)
        await self._on.begin()

    async def _commit(self) -> None:
        await self._on.commit()
        await self.conn.set_autocommit(True)

    async def _roll_back(self) -> None:
        """Roll back, whatever a handler has made of it; what fails here is left."""
        with suppress(Exception):
            await self._on.rollback()
        for each in self._joined:
            with suppress(Exception):
                await self._run(each.rolled_back)
        with suppress(Error):
            await self.conn.rollback()
            await self.conn.set_autocommit(True)

    async def _close(self) -> None:
        self._ends = True
        with suppress(Exception):
            await self._on.close()
        await super()._close()

    async def _run(self, call: Callable[[], object]) -> None:
        await self._on.run_sync(lambda _: call())


@asynccontextmanager
async def session_for(on: AsyncConnection, handler: Handler, left: list[Joined]) -> AsyncIterator[tuple[Any, ...]]:
    """A session in a savepoint; it gives what the handler gets of it. Unless it is undone it joins those in `left`."""
    kind = handler.session or AsyncSession
    session = session_on(kind, on)
    here = await on.run_sync(lambda synchronous: Joined(synchronous, session.sync_session))
    try:
        await on.run_sync(lambda _: here.join())
        yield (_scoped(session) if issubclass(kind, async_scoped_session) else session,)
        await on.run_sync(lambda _: here.release())
    except BaseException:
        await on.run_sync(lambda _: here.undo())
        raise
    left.append(here)


def session_on(kind: type, on: AsyncConnection) -> AsyncSession:
    """A session of this class, or of the usual one for a scoped one, whose statements all go there."""
    made: Any = AsyncSession if issubclass(kind, async_scoped_session) else kind
    guarded = handler_class(made.sync_session_class)
    session: AsyncSession = made(bind=on, sync_session_class=guarded, join_transaction_mode="rollback_only")
    return session


def _scoped(session: AsyncSession) -> async_scoped_session[Any]:
    factory: Any = partial(_same, session)
    return async_scoped_session(factory, scopefunc=lambda: None)


def _same(session: AsyncSession) -> AsyncSession:
    return session
