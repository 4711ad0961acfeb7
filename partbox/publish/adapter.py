"""The adapter protocol, by which partbox writes into a transaction that a library holds.

A publish is a generator of steps (`steps`), each a statement of partbox with its values. An adapter runs them on a
connection of its library, knows whether that is inside a transaction, and whether the library reports the end of the
transaction. One is made for every publish. To add a library, subclass `Adapter` or `AsyncAdapter` and `register`
it for the type of its connections; docs/integrations.md has a complete one.

An adapter never writes through the raw connection below a library that tracks the transaction itself: a library that
believes it is idle commits nothing, and one that sends its BEGIN late would send it after the event.
"""

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

Parameters = Mapping[str, Any]
"""Values by name: str, int, float, bytes, None."""


class Library:
    """The common part of both kinds of adapters. `on_commit` and `on_rollback` are called only for ends in `tells`.

    `savepoint_mark` and `wake_after_commit` are as in `EndReporter`; they suit a library that tracks
    savepoints itself.
    """

    copies: bool = False
    """True if `copy` is implemented."""
    tells: Sequence[str] = ()
    """The ends of a transaction that are reported: "commit", "rollback"."""
    untold: str = "publish inside `outbox.transaction()`, which has a connection of its own"
    """The remedy if a wanted end is not in `tells`."""
    remedy: str = "open one, and publish inside"
    """The remedy if there is no transaction."""

    def __init__(self, conn: Any) -> None:
        self.conn = conn

    def end_reporter(self) -> EndReporter:
        """The object that reports the end of the transaction."""
        return self

    def database(self) -> Hashable | None:
        """Return what tells the database of this connection from others; None: not known.

        A publish asks for the bell's flag, unless this process has just heard from that database that it is down.
        Called after `require_transaction`.
        """
        return None

    def savepoint_mark(self) -> int | None:
        return None

    def on_commit(self, call: EndCallback) -> None:
        """Make the call once the writes so far are committed; not if a rollback to a savepoint undoes them."""
        raise NotImplementedError

    def on_rollback(self, call: EndCallback) -> None:
        """Make the call once the writes so far are rolled back, to a savepoint or entirely."""
        raise NotImplementedError

    def wake_after_commit(self, call: EndCallback) -> None:
        if COMMIT in self.tells:
            self.on_commit(call)


class Unreported(Library):
    """The common part of adapters of libraries that report no end: `outbox.transaction(conn)` does, if it is open."""

    def __init__(self, conn: Any) -> None:
        self.conn = conn
        self._end = transaction_outcome.of(conn)
        self.tells = () if self._end is None else BOTH

    def end_reporter(self) -> EndReporter:
        assert self._end is not None
        return self._end


class Adapter(Library):
    """An adapter of a synchronous library: override `in_transaction` and `execute`, others where there is better."""

    def in_transaction(self) -> bool:
        """True if statements now become part of a transaction that the caller ends; may raise PublishError."""
        raise NotImplementedError

    def execute(self, statement: str, parameters: Parameters) -> Sequence[Row]:
        """Execute a statement with %(name)s parameters; return its rows, empty if it has none."""
        raise NotImplementedError

    def copy(self, step: Copy) -> int:
        """COPY, and return the number of rows that PostgreSQL has counted; called only where `copies` is true."""
        raise NotImplementedError

    def require_transaction(self) -> None:
        """Raise PublishError if there is no transaction."""
        if not self.in_transaction():
            raise PublishError(f"{NO_TRANSACTION}: {self.remedy}")

    def run(self, steps: Steps[T]) -> T:
        """Run the steps; return their result."""
        return run_steps(steps, lambda step: step.run_through(self))


class AsyncAdapter(Library):
    """`Adapter` for an asynchronous library."""

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
        """The outermost transaction, for `outbox.transaction(conn)`, if the library does not report its end."""
        return None
