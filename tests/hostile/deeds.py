"""Objects that answer the simplest questions in the worst way, and handlers that misbehave once."""

import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

QUESTIONS: Final = (
    "__bool__",
    "__eq__",
    "__hash__",
    "__repr__",
    "__str__",
    "__format__",
    "__len__",
    "__iter__",
    "__class__",
    "__getattribute__",
)
LONG: Final = 0.05  # seconds


class Text(str):
    """A text that cannot be cut, split or put together."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise ValueError("not this text")

    __getitem__ = __add__ = __len__ = __iter__ = __contains__ = __format__ = __mod__ = _refuse
    split = replace = encode = isprintable = strip = casefold = lower = _refuse


def _raises(self: Any, *_: Any) -> Any:
    raise ValueError("do not ask")


def _exits(self: Any, *_: Any) -> Any:
    raise SystemExit(7)


def _interrupts(self: Any, *_: Any) -> Any:
    raise KeyboardInterrupt


def _recurses(self: Any, *_: Any) -> Any:
    return _recurses(self)


def _is_odd(self: Any, *_: Any) -> Any:
    return object()


def _is_odd_text(self: Any, *_: Any) -> Any:
    return Text("\ud800\0\n" + "x" * 10_000)


def _lasts(self: Any, *_: Any) -> Any:
    time.sleep(LONG)
    raise ValueError("after a long time")


DEEDS: Final = {
    "raises": _raises,
    "exits": _exits,
    "interrupts": _interrupts,
    "recurses": _recurses,
    "is of an odd type": _is_odd,
    "is an odd text": _is_odd_text,
    "lasts": _lasts,
}


def hostile(kind: type, *arguments: Any) -> Iterator[tuple[str, Any]]:
    """One of `kind` for each question and each bad answer, by what is bad about it."""
    for question in QUESTIONS:
        for deed, answer in DEEDS.items():
            bad = property(answer) if question == "__class__" else answer
            yield f"{question} {deed}", made(kind, {question: bad}, *arguments)


def made(kind: type, members: dict[str, Any], *arguments: Any) -> Any:
    """An instance of a subclass of `kind` with these members."""
    return type("Hostile", (kind,), members)(*arguments)


class Thing:
    """Of no kind that partbox knows."""


def first_time(deed: Callable[[], Any]) -> Callable[[Any], Any]:
    """A handler that does it when it is called first, and then behaves."""
    left = [deed]
    return lambda given: left.pop()() if left else None


def throws(error: BaseException) -> Callable[[], Any]:
    def deed() -> Any:
        raise error

    return deed


def fails() -> Any:
    raise ValueError("as planned")


def first(deed: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A handler that does it at the first attempt only."""

    def handle(event: Any) -> Any:
        return deed(event) if event.attempt == 1 else None

    return handle


def first_async(deed: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
    async def handle(event: Any) -> Any:
        if event.attempt == 1:
            return await deed(event)
        return None

    return handle
