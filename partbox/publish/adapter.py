"""The adapter protocol, by which partbox publishes in a transaction that another library manages.

To support another library, subclass `Adapter` or `AsyncAdapter`, and `register` the class for the type of the library's
connections (see docs/integrations.md). A new adapter is created for every publish. An adapter must not write through
the raw connection below a library that tracks the transaction itself: a library that believes its connection to be idle
does not commit, and a library that sends BEGIN late would send it after the event."""

from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from partbox.errors import PublishError
from partbox.publish import transaction_outcome
from partbox.publish.steps import Copy, Row, Steps, run_steps, run_steps_async
from partbox.publish.transaction_outcome import EndCallback, EndReporter

T = TypeVar("T")

COMMIT, ROLLBACK = "commit", "rollback"
BOTH = (COMMIT, ROLLBACK)

NO_TRANSACTION = "there is no transaction, and the event would not share the fate of your changes"

# Values by name: str, int, float, bytes or None.
Parameters = Mapping[str, Any]


class BaseAdapter:
    """The base class of adapters, through which events are published in a transaction of another library.

    It is the base of synchronous and asynchronous adapters.

    `on_commit` and `on_rollback` are called only for the ends of a transaction that `tells` contains.
    `draw_savepoint_mark` and `wake_after_commit` work as in `EndReporter`. The defaults suit a library that tracks
    savepoints itself."""

    # True if `copy` is implemented.
    copies: bool = False
    # The ends of a transaction that the library reports: "commit", "rollback".
    tells: Sequence[str] = ()
    # Advice for the error if a wanted end is not in `tells`.
    untold: str = "publish inside `outbox.transaction()`, which has a connection of its own"
    # Advice for the error if there is no transaction.
    remedy: str = "open one, and publish inside"

    def __init__(self, conn: Any) -> None:
        self.conn = conn

    def end_reporter(self) -> EndReporter:
        """Return the object that reports how the connection's transaction ends."""
        # Hooks are attached to it.
        return self

    def database(self) -> Hashable | None:
        """Return a key that identifies the connection's database, or None if it is unknown.

        With a key, a publish need not always ask whether a worker sleeps. Called after `require_transaction`."""
        # A publish reads the bell's flag (whether a worker sleeps) unless this process has just found the flag of that
        # database down.
        return None

    def draw_savepoint_mark(self) -> int | None:
        return None

    def on_commit(self, call: EndCallback) -> None:
        """Call `call` once the writes so far are committed, but not if a rollback to a savepoint undid them."""
        raise NotImplementedError

    def on_rollback(self, call: EndCallback) -> None:
        """Call `call` once the transaction's writes so far are rolled back, to a savepoint or entirely."""
        raise NotImplementedError

    def wake_after_commit(self, call: EndCallback) -> None:
        if COMMIT in self.tells:
            self.on_commit(call)


class NonReportingAdapter(BaseAdapter):
    """The base class of adapters for libraries that do not report how a transaction ended.

    `outbox.transaction(conn)`, if open, reports it instead."""

    def __init__(self, conn: Any) -> None:
        self.conn = conn
        self._end = transaction_outcome.find_transaction_end(conn)
        self.tells = () if self._end is None else BOTH

    def end_reporter(self) -> EndReporter:
        assert self._end is not None
        return self._end


class Adapter(BaseAdapter):
    """The base class of adapters that publish events on connections of a synchronous database library.

    Subclasses override `in_transaction` and `execute`, and other methods if the library allows a better way."""

    def in_transaction(self) -> bool:
        """Return True if statements now become part of a transaction that the caller ends. May raise PublishError."""
        raise NotImplementedError

    def execute(self, statement: str, parameters: Parameters) -> Sequence[Row]:
        """Execute a statement with %(name)s parameters, and return its rows, if there are any."""
        raise NotImplementedError

    def copy(self, step: Copy) -> int:
        """Execute a COPY, and return the number of rows that PostgreSQL counted. Called only if `copies` is True."""
        raise NotImplementedError

    def require_transaction(self) -> None:
        """Raise PublishError if the connection is in no transaction that the caller ends."""
        # The published event becomes a part of that transaction.
        if not self.in_transaction():
            raise PublishError(f"{NO_TRANSACTION}: {self.remedy}")

    def run(self, steps: Steps[T]) -> T:
        """Execute the SQL statements of a publish, given as a generator, and return the generator's result."""
        # The generator yields steps, which run on the connection.
        return run_steps(steps, lambda step: step.run_through(self))


class AsyncAdapter(BaseAdapter):
    """The base class of adapters that publish events on connections of an asynchronous database library.

    It has the methods of `Adapter`."""

    async def in_transaction(self) -> bool:
        raise NotImplementedError

    async def execute(self, statement: str, parameters: Parameters) -> Sequence[Row]:
        raise NotImplementedError

    async def copy(self, step: Copy) -> int:
        raise NotImplementedError

    async def require_transaction(self) -> None:
        if not await self.in_transaction():
            raise PublishError(f"{NO_TRANSACTION}: {self.remedy}")

    async def run(self, steps: Steps[T]) -> T:
        return await run_steps_async(steps, lambda step: step.run_through(self))

    def transaction(self) -> AbstractAsyncContextManager[Any] | None:
        """Return a context manager that opens a transaction, or None if the library itself reports how transactions
        end.

        It opens the outermost transaction for `outbox.transaction(conn)`."""
        return None
