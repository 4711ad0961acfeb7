"""The statements of a publish. A publish is a generator of steps that receives the answer of each step. An adapter runs
the generator, on a psycopg cursor or through another library."""

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
    """An SQL statement of a publish, which runs on a psycopg cursor or through another library's adapter.

    `run_through` runs the statement on the adapter. The methods return the answer. `run_through` may return an
    awaitable of the answer."""

    def run(self, cursor: Cursor[Row]) -> Any: ...

    async def run_async(self, cursor: AsyncCursor[Row]) -> Any: ...

    def run_through(self, adapter: Any) -> Any: ...


Steps = Generator[Statement, Any, T]


@dataclass(slots=True)
class Query:
    """An SQL statement of a publish that returns rows."""

    # Without `wants_rows`, the answer is None in a pipeline, where nobody waits for it.

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
        return adapter.execute(self.statement.decode(), values.to_plain_parameters(self.parameters))


@dataclass(slots=True)
class Insert:
    """An INSERT of one event into the log, which can also notify sleeping workers."""

    # The log is that of `schema`. Workers are notified if `may_ring` is set. The answer is the rows of the statement,
    # or None if there is nothing to read, or in a pipeline, where nobody waits for it. If a trigger has kept the event
    # out, the server raises an error on a cursor, and an adapter gets no row.

    schema: str
    parameters: Mapping[str, Any]
    may_ring: bool

    def run(self, cursor: Cursor[Row]) -> list[Row] | None:
        if is_pipelined(cursor.connection):
            cursor.execute(*self._pipelined_statement())
            return None
        cursor.execute(self._answered_statement(), self.parameters)
        if cursor.rowcount < 1:
            cursor.execute(statements.refuse_unwritten(self.schema))
        return cursor.fetchall() if self.may_ring else None

    async def run_async(self, cursor: AsyncCursor[Row]) -> list[Row] | None:
        if is_pipelined(cursor.connection):
            await cursor.execute(*self._pipelined_statement())
            return None
        await cursor.execute(self._answered_statement(), self.parameters)
        if cursor.rowcount < 1:
            await cursor.execute(statements.refuse_unwritten(self.schema))
        return await cursor.fetchall() if self.may_ring else None

    def run_through(self, adapter: Any) -> Any:
        statement = statements.publish_ringing if self.may_ring else statements.publish_told
        return adapter.execute(statement(self.schema).decode(), values.to_plain_parameters(self.parameters))

    def _answered_statement(self) -> bytes:
        return statements.publish_ringing(self.schema) if self.may_ring else statements.publish(self.schema)

    def _pipelined_statement(self) -> tuple[bytes, Mapping[str, Any]]:
        return statements.publish_unheard(self.schema), {**self.parameters, "rings": self.may_ring}


@dataclass(slots=True)
class Copy:
    """A COPY of many events into the log, which is used for large batches."""

    # It fills `columns` of the log of `schema`. The answer is the number of rows. A COPY is impossible in a pipeline.

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
        """Yield the rows to copy in the text format of PostgreSQL's COPY, in large pieces."""
        return values.render_copy_lines(self.rows)


def run_steps(steps: Steps[T], answer: Callable[[Statement], Any]) -> T:
    """Execute the SQL statements that a generator yields by calling `answer`, and return the generator's result."""
    # The result of each statement is sent back into the generator.
    last = None
    while True:
        try:
            step = steps.send(last)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        last = answer(step)


async def run_steps_async(steps: Steps[T], answer: Callable[[Statement], Awaitable[Any]]) -> T:
    """Execute the SQL statements that a generator yields by awaiting `answer`, and return the generator's result."""
    # The result of each statement is sent back into the generator.
    last = None
    while True:
        try:
            step = steps.send(last)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        last = await answer(step)
