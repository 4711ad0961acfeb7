"""The statements of a publish, written once and run on any kind of connection.

A publish is a generator of steps that is sent each step's answer; an adapter runs it, on a cursor of psycopg or by
another library.
"""

from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from psycopg import AsyncCursor, Cursor

from partbox.db import statements
from partbox.publish import values
from partbox.publish.transaction import closing_broken_copy, is_pipelined

Row = tuple[Any, ...]
T = TypeVar("T")


class Statement(Protocol):
    """A statement; its methods return its answer, `run_through` that of the adapter, or an awaitable of it."""

    def run(self, cursor: Cursor[Row]) -> Any: ...

    async def run_async(self, cursor: AsyncCursor[Row]) -> Any: ...

    def run_through(self, adapter: Any) -> Any: ...


Steps = Generator[Statement, Any, T]


@dataclass(slots=True)
class Query:
    """A statement with rows. Where `wants_rows` is false nobody waits for them in a pipeline: None then."""

    statement: bytes
    parameters: Mapping[str, Any]
    wants_rows: bool = True

    def run(self, cursor: Cursor[Row]) -> Any:
        cursor.execute(self.statement, self.parameters)
        return cursor.fetchall() if self.wants_rows or not is_pipelined(cursor.connection) else None

    async def run_async(self, cursor: AsyncCursor[Row]) -> Any:
        await cursor.execute(self.statement, self.parameters)
        return await cursor.fetchall() if self.wants_rows or not is_pipelined(cursor.connection) else None

    def run_through(self, adapter: Any) -> Any:
        return adapter.execute(self.statement.decode(), values.plain_parameters(self.parameters))


@dataclass(slots=True)
class Insert:
    """An INSERT of one event into the log of `schema`, and a ring if one is wanted; its rows.

    None where there is nothing to hear, or in a pipeline, where nobody waits. If a trigger has kept the event out there
    is no row on an adapter; on a cursor the server raises.
    """

    schema: str
    parameters: Mapping[str, Any]
    rings: bool

    def run(self, cursor: Cursor[Row]) -> list[Row] | None:
        if is_pipelined(cursor.connection):
            cursor.execute(*self._pipelined_statement())
            return None
        cursor.execute(self._answered_statement(), self.parameters)
        if cursor.rowcount < 1:
            cursor.execute(statements.refuse_unwritten(self.schema))
        return cursor.fetchall() if self.rings else None

    async def run_async(self, cursor: AsyncCursor[Row]) -> list[Row] | None:
        if is_pipelined(cursor.connection):
            await cursor.execute(*self._pipelined_statement())
            return None
        await cursor.execute(self._answered_statement(), self.parameters)
        if cursor.rowcount < 1:
            await cursor.execute(statements.refuse_unwritten(self.schema))
        return await cursor.fetchall() if self.rings else None

    def run_through(self, adapter: Any) -> Any:
        statement = statements.publish_ringing if self.rings else statements.publish_told
        return adapter.execute(statement(self.schema).decode(), values.plain_parameters(self.parameters))

    def _answered_statement(self) -> bytes:
        return statements.publish_ringing(self.schema) if self.rings else statements.publish(self.schema)

    def _pipelined_statement(self) -> tuple[bytes, Mapping[str, Any]]:
        return statements.publish_unheard(self.schema), {**self.parameters, "rings": self.rings}


@dataclass(slots=True)
class Copy:
    """COPY of the rows into `columns` of the log of `schema`; not in a pipeline. Returns how many were written."""

    statement: bytes
    schema: str
    columns: Sequence[str]
    rows: Iterable[Row]
    table: ClassVar[str] = "record"

    def run(self, cursor: Cursor[Row]) -> int:
        with closing_broken_copy(cursor.connection), cursor.copy(self.statement) as copy:
            for row in self.rows:
                copy.write_row(row)
        return cursor.rowcount

    async def run_async(self, cursor: AsyncCursor[Row]) -> int:
        with closing_broken_copy(cursor.connection):
            async with cursor.copy(self.statement) as copy:
                for row in self.rows:
                    await copy.write_row(row)
        return cursor.rowcount

    def run_through(self, adapter: Any) -> Any:
        return adapter.copy(self)

    def lines(self) -> Iterator[str]:
        """The rows in the text form of COPY, in pieces of some size."""
        return values.lines(self.rows)


def run_steps(steps: Steps[T], answer: Callable[[Statement], Any]) -> T:
    """The result of the steps, each of which is sent its answer."""
    last = None
    while True:
        try:
            step = steps.send(last)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        last = answer(step)


async def run_steps_async(steps: Steps[T], answer: Callable[[Statement], Awaitable[Any]]) -> T:
    """The result of the steps, each of which is sent its answer once that has come."""
    last = None
    while True:
        try:
            step = steps.send(last)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        last = await answer(step)
