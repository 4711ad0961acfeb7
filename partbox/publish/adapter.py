"""The adapter protocol: how partbox writes into a transaction that a library holds.

A publish is a generator of steps (`steps`), each a statement of partbox with its values. An adapter carries them
through a connection of its library, knows whether that is inside a transaction, and whether it can tell how the
transaction ends. One is made for every publish. To add a library, subclass `Adapter` or `AsyncAdapter` and `register`
it for the type of its connections; docs/integrations.md has a complete one.

An adapter never writes through the raw connection below a library that keeps account of the transaction itself: one
that believes to be idle commits nothing, and one that sends its BEGIN late would send it after the event.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from partbox.errors import PublishError
from partbox.publish.ending import Call, EndReporter
from partbox.publish.steps import Copy, Row, Steps

T = TypeVar("T")

COMMIT, ROLLBACK = "commit", "rollback"
BOTH = (COMMIT, ROLLBACK)

NO_TRANSACTION = "there is no transaction, and the event would not share the fate of your changes"

Parameters = Mapping[str, Any]
"""Values by name: str, int, float, bytes, None, and lists of str or int."""


class Library:
    """What adapters of both kinds say of their library. `on_commit` and `on_rollback` are called for what `tells` has.

    `mark` and `wakes` are as in `ending.EndReporter`; they suit a library that keeps account of savepoints itself.
    """

    copies: bool = False
    """Whether `copy` is there."""
    tells: Sequence[str] = ()
    """The ends of a transaction that are reported: "commit", "rollback"."""
    untold: str = "publish inside `outbox.transaction()`, which has a connection of its own"
    """What to do where one that is wanted is not among them."""
    remedy: str = "open one, and publish inside"
    """What to do where there is no transaction."""

    def __init__(self, conn: Any) -> None:
        self.conn = conn

    def reports(self) -> EndReporter:
        """Who reports how the transaction ends."""
        return self

    def mark(self) -> int | None:
        return None

    def on_commit(self, call: Call) -> None:
        """Have the call made once what was written so far is committed; not if a savepoint takes it back."""
        raise NotImplementedError

    def on_rollback(self, call: Call) -> None:
        """Have the call made once what was written so far is taken back, with a savepoint or the whole."""
        raise NotImplementedError

    def wakes(self, call: Call) -> None:
        if COMMIT in self.tells:
            self.on_commit(call)


class Adapter(Library):
    """An adapter of a synchronous library: override `in_transaction` and `execute`, others where there is better."""

    def in_transaction(self) -> bool:
        """Whether what is executed now becomes part of a transaction that the caller ends; may raise PublishError."""
        raise NotImplementedError

    def execute(self, statement: str, parameters: Parameters) -> Sequence[Row]:
        """The rows of a statement with %(name)s parameters; none if it answers none."""
        raise NotImplementedError

    def execute_many(self, statement: str, many: Sequence[Parameters]) -> None:
        """The statement with each of these, in their order."""
        for parameters in many:
            self.execute(statement, parameters)

    def copy(self, step: Copy) -> None:
        """COPY; called only where `copies` is true."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise PublishError where there is no transaction."""
        if not self.in_transaction():
            raise PublishError(f"{NO_TRANSACTION}: {self.remedy}")

    def run(self, steps: Steps[T]) -> T:
        """Carry the steps through; what they return."""
        answer = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            answer = step.through(self)


class AsyncAdapter(Library):
    """`Adapter` for an asynchronous library."""

    async def in_transaction(self) -> bool:
        raise NotImplementedError

    async def execute(self, statement: str, parameters: Parameters) -> Sequence[Row]:
        raise NotImplementedError

    async def execute_many(self, statement: str, many: Sequence[Parameters]) -> None:
        for parameters in many:
            await self.execute(statement, parameters)

    async def copy(self, step: Copy) -> None:
        raise NotImplementedError

    async def check(self) -> None:
        if not await self.in_transaction():
            raise PublishError(f"{NO_TRANSACTION}: {self.remedy}")

    async def run(self, steps: Steps[T]) -> T:
        answer = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            answer = await step.through(self)

    def transaction(self) -> AbstractAsyncContextManager[Any] | None:
        """The outermost transaction, for `outbox.transaction(conn)`, where the library does not report its end."""
        return None
