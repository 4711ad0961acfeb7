"""The statements of a publish, written once and run on any kind of connection.

A publish is a generator of steps that is sent each step's answer; `run` and `run_async` run it on cursors of psycopg,
an adapter on other libraries.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from psycopg import AsyncCursor, Cursor
from psycopg.pq import PipelineStatus

from partbox.db import statements
from partbox.publish import values
from partbox.publish.transaction import no_copy_left

Row = tuple[Any, ...]
T = TypeVar("T")


class Carries(Protocol):
    """An adapter, as steps see it: its answers, or awaitables of them."""

    def execute(self, statement: str, parameters: Mapping[str, Any], /) -> Any: ...

    def copy(self, step: "Copy", /) -> Any: ...


class Statement(Protocol):
    """A statement; its methods return its answer, `through` that of the adapter."""

    def run(self, cursor: Cursor[Row]) -> Any: ...

    async def run_async(self, cursor: AsyncCursor[Row]) -> Any: ...

    def through(self, adapter: Carries) -> Any: ...


Steps = Generator[Statement, Any, T]


@dataclass(slots=True)
class Execute:
    """A statement without rows: in a pipeline nobody waits for it."""

    statement: bytes
    parameters: Mapping[str, Any]

    def run(self, cursor: Cursor[Row]) -> None:
        cursor.execute(self.statement, self.parameters)

    async def run_async(self, cursor: AsyncCursor[Row]) -> None:
        await cursor.execute(self.statement, self.parameters)

    def through(self, adapter: Carries) -> Any:
        return adapter.execute(self.statement.decode(), values.plain(self.parameters))


@dataclass(slots=True)
class Query:
    """A statement with rows."""

    statement: bytes
    parameters: Mapping[str, Any]

    def run(self, cursor: Cursor[Row]) -> list[Row]:
        return cursor.execute(self.statement, self.parameters).fetchall()

    async def run_async(self, cursor: AsyncCursor[Row]) -> list[Row]:
        return await (await cursor.execute(self.statement, self.parameters)).fetchall()

    def through(self, adapter: Carries) -> Any:
        return adapter.execute(self.statement.decode(), values.plain(self.parameters))


@dataclass(slots=True)
class Inquiry(Query):
    """A statement with rows that nobody waits for in a pipeline: None then."""

    def run(self, cursor: Cursor[Row]) -> list[Row] | None:  # type: ignore[override] # None in a pipeline
        cursor.execute(self.statement, self.parameters)
        return None if _is_pipelined(cursor) else cursor.fetchall()

    async def run_async(self, cursor: AsyncCursor[Row]) -> list[Row] | None:  # type: ignore[override] # as above
        await cursor.execute(self.statement, self.parameters)
        return None if _is_pipelined(cursor) else await cursor.fetchall()


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
        if _is_pipelined(cursor):
            return self._unheard().run(cursor)
        rows = self._waited().run(cursor)
        if cursor.rowcount < 1:
            cursor.execute(statements.refuse_unwritten(self.schema))
        return rows

    async def run_async(self, cursor: AsyncCursor[Row]) -> list[Row] | None:
        if _is_pipelined(cursor):
            return await self._unheard().run_async(cursor)
        rows = await self._waited().run_async(cursor)
        if cursor.rowcount < 1:
            await cursor.execute(statements.refuse_unwritten(self.schema))
        return rows

    def through(self, adapter: Carries) -> Any:
        statement = statements.publish_ringing if self.rings else statements.publish_told
        return adapter.execute(statement(self.schema).decode(), values.plain(self.parameters))

    def _waited(self) -> Execute | Inquiry:
        if self.rings:
            return Inquiry(statements.publish_ringing(self.schema), self.parameters)
        return Execute(statements.publish(self.schema), self.parameters)

    def _unheard(self) -> Inquiry:
        return Inquiry(statements.publish_unheard(self.schema), {**self.parameters, "rings": self.rings})


@dataclass(slots=True)
class Copy:
    """COPY of the rows into `columns` of the log of `schema`; not in a pipeline. Returns how many were written."""

    statement: bytes
    schema: str
    columns: Sequence[str]
    rows: Iterable[Row]
    table: ClassVar[str] = "record"

    def run(self, cursor: Cursor[Row]) -> int:
        with no_copy_left(cursor.connection), cursor.copy(self.statement) as copy:
            for row in self.rows:
                copy.write_row(row)
        return cursor.rowcount

    async def run_async(self, cursor: AsyncCursor[Row]) -> int:
        with no_copy_left(cursor.connection):
            async with cursor.copy(self.statement) as copy:
                for row in self.rows:
                    await copy.write_row(row)
        return cursor.rowcount

    def through(self, adapter: Carries) -> Any:
        return adapter.copy(self)

    def lines(self) -> Iterator[str]:
        """The rows in the text form of COPY, in pieces of some size."""
        return values.lines(self.rows)


def _is_pipelined(cursor: Cursor[Row] | AsyncCursor[Row]) -> bool:
    return cursor.connection.pgconn.pipeline_status != PipelineStatus.OFF


def run(steps: Steps[T], cursor: Cursor[Row]) -> T:
    """Run the steps; return their result."""
    answer = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        answer = step.run(cursor)


async def run_async(steps: Steps[T], cursor: AsyncCursor[Row]) -> T:
    """`run` on an asynchronous cursor."""
    answer = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        answer = await step.run_async(cursor)
