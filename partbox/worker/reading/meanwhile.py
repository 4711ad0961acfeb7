"""A call in a thread of its own, while its caller does something else."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class Meanwhile(Generic[T]):
    """Runs `call` while a `with` block runs, which ends no earlier than the call; `result` is what it returned.

    A thread for each call costs less than 0.1 ms, and leaves nothing behind that has to be stopped.
    """

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._future: Future[T] = Future()
        self._thread = threading.Thread(target=self._run, name="partbox-ahead", daemon=True)

    def __enter__(self) -> "Meanwhile[T]":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._thread.join()

    def result(self) -> T:
        """The value that the call returned; raises the error that it raised. After the block only."""
        return self._future.result(0)

    def _run(self) -> None:
        try:
            self._future.set_result(self._call())
        except BaseException as error:
            self._future.set_exception(error)
