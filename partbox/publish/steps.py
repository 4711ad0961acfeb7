"""The statements of a publish, written once and run on either kind of connection.

Who publishes is a generator of steps that is sent each step's answer; `run` and `run_async` carry it through.
"""

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from psycopg import AsyncCursor, Cursor

Row = tuple[Any, ...]
T = TypeVar("T")


class Step(Protocol):
    """A statement; both methods return its answer."""

    def run(self, cursor: Cursor[Row]) -> Any: ...

    async def run_async(self, cursor: AsyncCursor[Row]) -> Any: ...


Steps = Generator[Step, Any, T]


@dataclass(slots=True)
class Execute:
    """A statement without an answer: in a pipeline nobody waits for it."""

    statement: bytes
    parameters: Mapping[str, Any]

    def run(self, cursor: Cursor[Row]) -> None:
        cursor.execute(self.statement, self.parameters)

    async def run_async(self, cursor: AsyncCursor[Row]) -> None:
        await cursor.execute(self.statement, self.parameters)


@dataclass(slots=True)
class Ask:
    """A statement whose rows are wanted."""

    statement: bytes
    parameters: Mapping[str, Any]

    def run(self, cursor: Cursor[Row]) -> list[Row]:
        return cursor.execute(self.statement, self.parameters).fetchall()

    async def run_async(self, cursor: AsyncCursor[Row]) -> list[Row]:
        return await (await cursor.execute(self.statement, self.parameters)).fetchall()


@dataclass(slots=True)
class Repeat:
    """One statement for each of the parameters, in one go."""

    statement: bytes
    parameters: Iterable[Mapping[str, Any]]

    def run(self, cursor: Cursor[Row]) -> None:
        cursor.executemany(self.statement, self.parameters)

    async def run_async(self, cursor: AsyncCursor[Row]) -> None:
        await cursor.executemany(self.statement, self.parameters)


@dataclass(slots=True)
class Copy:
    """COPY of the rows; not in a pipeline."""

    statement: bytes
    rows: Iterable[Row]

    def run(self, cursor: Cursor[Row]) -> None:
        with cursor.copy(self.statement) as copy:
            for row in self.rows:
                copy.write_row(row)

    async def run_async(self, cursor: AsyncCursor[Row]) -> None:
        async with cursor.copy(self.statement) as copy:
            for row in self.rows:
                await copy.write_row(row)


def run(steps: Steps[T], cursor: Cursor[Row]) -> T:
    """Run the steps; what they return."""
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
