"""Calls that go on when the test says so, one at a time: the threads of a worker, in an order that can be repeated.

A fiber pauses where time passes in a worker: while a statement is on its way, and while a handler runs. It can be made
to pause *between* two steps that take no time, where another thread could have its turn all the same: at each look at
the clock, and around each take from the queue of a lane, with the engine's lock held or without (`LaneQueue`).
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import lock_check
from greenlet import getcurrent, greenlet


class Between(NamedTuple):
    """Two steps of a fiber, of which the first is this."""

    name: str


class Fiber:
    """One call. `subject` is what it has paused for; None once it has `ended`, with the `result` or an `error`.

    `passes`: so many chances to pause between two steps are passed by, and the next is taken, or all but that of this
    name; None: all are passed by.
    `looks`: a look at the clock is a chance for it.
    """

    running: "Fiber | None" = None  # None: the test does

    def __init__(self, call: Callable[[], Any], *, looks: bool = False) -> None:
        self._call = call
        self.looks = looks
        self._stack = greenlet(self._run)
        self.passes: int | str | None = None
        self.subject: Any = None
        self.ended = False
        self.result: Any = None
        self.error: BaseException | None = None

    def go_on(self, answer: Any = None) -> Any:
        """Run until the next pause, whose subject is returned, or to the end; `answer` is what the last one returns."""
        assert not self.ended
        before, Fiber.running, self.subject = Fiber.running, self, None
        self._stack.parent = getcurrent()
        self._stack.switch(answer)
        Fiber.running = before
        return self.subject

    def pause(self, subject: Any) -> Any:
        self.subject = subject
        assert self._stack.parent is not None
        return self._stack.parent.switch()

    def _run(self, _: object) -> None:
        try:
            self.result = self._call()
        except BaseException as error:
            self.error = error
        self.ended = True


def pause(subject: Any) -> Any:
    """Let others go on; the answer of who makes this fiber go on. Nothing where no fiber runs."""
    fiber = Fiber.running
    return None if fiber is None else fiber.pause(subject)


def between(name: str) -> None:
    """A chance to let others go on."""
    fiber = Fiber.running
    if fiber is None or fiber.passes is None or (isinstance(fiber.passes, str) and fiber.passes != name):
        return
    if isinstance(fiber.passes, int) and fiber.passes:
        fiber.passes -= 1
        return
    fiber.passes = None
    fiber.pause(Between(name))


@contextmanager
def aside() -> Iterator[None]:
    """The test looks at what the fiber does, and needs no lock for it."""
    before, Fiber.running = Fiber.running, None
    try:
        yield
    finally:
        Fiber.running = before


class FiberLock:
    """A lock, with which a fiber may pause: who wants it next lets that one go on until it is free."""

    def __init__(self) -> None:
        self._holder: Fiber | None = None
        self._wanted = False

    def __enter__(self) -> Self:
        while self._holder is not None:
            assert self._holder is not Fiber.running, "whoever holds it wants it once more"
            self._wanted = True
            self._holder.go_on()
        self._holder = Fiber.running
        return self

    def __exit__(self, *_: object) -> None:
        holder, self._holder = self._holder, None
        if self._wanted:
            self._wanted = False
            if holder is not None:
                holder.pause(Between("lets go of a lock"))

    def check(self, what: str) -> None:
        """Fail a fiber that touches this, and does not hold the lock."""
        if Fiber.running is not self._holder and Fiber.running is not None:
            lock_check.violated(f"{what} is touched without the lock")


class LaneQueue(deque[Any]):
    """The queue of a lane. `taken` is called with what a runner takes, in one step with that."""

    taken: Callable[[Any], None] = staticmethod(lambda waiting: None)

    def popleft(self) -> Any:
        between("takes")
        waiting = super().popleft()
        with aside():
            self.taken(waiting)
        between("has taken")
        return waiting

    def pop(self) -> Any:  # type: ignore[override]  # always the last
        between("takes the last")
        return super().pop()

    def clear(self) -> None:
        """A list takes all that waits, or it is forgotten."""
        between("forgets all")
        with aside():
            for waiting in self:
                self.taken(waiting)
        super().clear()
