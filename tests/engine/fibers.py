"""Calls that go on when the test says so, one at a time: the threads of a worker, in an order that can be repeated.

A fiber is a thread, but only one runs at any moment: who makes it go on waits until it pauses, or ends. It pauses where
time passes in a worker: while a statement is on its way, and while a handler runs.
"""

import threading
from collections.abc import Callable
from typing import Any

_here = threading.local()
_rested: list["_Stage"] = []
"""Threads whose call has ended, for the next ones: to make a thread takes longer than most calls."""


class _Stage:
    """A thread and the baton that goes to and fro."""

    def __init__(self) -> None:
        self._on = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self.call: Callable[[], None] | None = None
        threading.Thread(target=self._run, name="fiber", daemon=True).start()

    def go_on(self) -> None:
        self._on.release()
        self._back.acquire()

    def wait(self) -> None:
        self._back.release()
        self._on.acquire()

    def _run(self) -> None:
        self._on.acquire()
        while True:
            assert self.call is not None
            self.call()
            self.call = None
            _rested.append(self)
            self.wait()


class Fiber:
    """One call. `subject` is what it has paused for; None once it has `ended`, with the `result` or an `error`."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._stage: _Stage | None = None
        self._answer: Any = None
        self.subject: Any = None
        self.ended = False
        self.result: Any = None
        self.error: BaseException | None = None

    def go_on(self, answer: Any = None) -> Any:
        """Run until the next pause, whose subject is returned, or to the end; `answer` is what the last one returns."""
        assert not self.ended
        self._answer, self.subject = answer, None
        if self._stage is None:
            self._stage = _rested.pop() if _rested else _Stage()
            self._stage.call = self._run
        self._stage.go_on()
        return self.subject

    def pause(self, subject: Any) -> Any:
        assert self._stage is not None
        self.subject = subject
        self._stage.wait()
        return self._answer

    def _run(self) -> None:
        _here.fiber = self
        try:
            self.result = self._call()
        except BaseException as error:
            self.error = error
        _here.fiber = None
        self.ended = True


def pause(subject: Any) -> Any:
    """Let others go on; the answer of who makes this fiber go on. Nothing where no fiber runs."""
    fiber: Fiber | None = getattr(_here, "fiber", None)
    return None if fiber is None else fiber.pause(subject)
