"""The traceback of a handler's error, as text: the application's frames, without those of partbox above them.

An error may be any object of the application. It is read by the descriptors of BaseException, which no subclass can
override; a failure all the same costs the text, and nothing else. No values are shown: neither locals nor notes.
"""

import linecache
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from traceback import StackSummary
from types import TracebackType
from typing import Final

from partbox.protocol.outage import cause_of, context_of, hides_context, members_of
from partbox.protocol.verdict import UNCHARGED, cleaned, describe

FRAMES: Final = 50  # of one error, the last ones: more would not fit
WALKED: Final = 10_000  # an error that is raised again and again grows by a frame each time
MEMBERS: Final = 3  # of a group of errors
SAID: Final = 300  # characters of an error's message; `last_error` has the rest
LINE: Final = 200  # characters of a line of code

HEAD = "Traceback (most recent call last):\n"
CAUSED = "\nwhich caused:\n\n"
MET = "\nand while that was handled:\n\n"
IN_GROUP = "\nwhich is in the group:\n\n"

_PARTBOX = f"{Path(__file__).parents[2]}{os.sep}"
_ABOVE = tuple(f"{_PARTBOX}{room}{os.sep}" for room in ("worker", "handlers", "interceptors", "observe", "tasks"))
"""The rooms that call a handler. Others have handlers of their own (demo), or are called by one (publish)."""

_frames: Final = vars(BaseException)["__traceback__"].__get__

Link = tuple[BaseException, str]


def application_frames(error: BaseException) -> TracebackType | None:
    """The traceback from the first frame that is not partbox's own; None if there is none."""
    frames: TracebackType | None = _frames(error)
    while frames is not None and str.startswith(_file(frames), _ABOVE):
        frames = frames.tb_next
    return frames


def trace_of(error: BaseException, limit: int) -> str | None:
    """The last `limit` characters of its traceback, causes first and only as far as they fit, fit to be stored.

    None if no frame of it is the application's, and for an event that partbox itself calls undecodable or unroutable.
    """
    try:
        return None if _is_ours(error) else _end(cleaned(_chain(error, limit)), limit) or None
    except BaseException:  # a metaclass, a file that is no text: SystemExit too
        return None


def _is_ours(error: BaseException) -> bool:
    """True if partbox has raised it about the event itself, so that no code of the application is at fault."""
    if not issubclass(type(error), UNCHARGED):
        return False
    last = deque(_walk(_frames(error)), 1)
    return not last or str.startswith(_file(last[0]), _PARTBOX)


def _chain(error: BaseException, limit: int) -> str:
    """The error's text, preceded by those of the errors that led to it while they fit; "" without frames."""
    texts: list[str] = []
    seen: set[int] = set()
    waiting: deque[Link] = deque([(error, "")])
    room, framed = limit, False
    while waiting and room > 0:
        each, link = waiting.popleft()
        if id(each) not in seen:
            seen.add(id(each))
            frames = application_frames(each)
            framed = framed or frames is not None
            texts.append(_text(each, frames, limit) + link)
            room -= len(texts[-1])
            waiting.extend(_before(each))
    return "".join(reversed(texts)) if framed else ""


def _before(error: BaseException) -> Iterator[Link]:
    """The error that led to this one, as Python would say it, and how."""
    if issubclass(type(error), BaseExceptionGroup):
        yield from ((member, IN_GROUP) for member in members_of(error)[:MEMBERS])
    if (cause := cause_of(error)) is not None:
        yield cause, CAUSED
    elif (context := context_of(error)) is not None and not hides_context(error):
        yield context, MET


def _text(error: BaseException, frames: TracebackType | None, limit: int) -> str:
    said = f"{_said(error, min(SAID, limit // 4))}\n"
    if frames is None:
        return said
    last = deque(_walk(frames), FRAMES)
    return HEAD + "".join(StackSummary.from_list(map(_frame, last)).format()) + said


def _said(error: BaseException, most: int) -> str:
    try:
        said = describe(error, most + 1)
    except BaseException:
        return "(an error that cannot be described)"
    return said if len(said) <= most else f"{said[:most]}…"


def _walk(frames: TracebackType | None) -> Iterator[TracebackType]:
    for _ in range(WALKED):
        if frames is None:
            return
        yield frames
        frames = frames.tb_next


def _frame(frames: TracebackType) -> tuple[str, int, str, str | None]:
    """File, line, name and code of one frame, as the library formats them."""
    code, number = frames.tb_frame.f_code, frames.tb_lineno or 0
    file = _file(frames)
    # A file of code is a plain one; any other may never end, or keep the reader waiting.
    line = linecache.getline(file, number).strip()[:LINE] if os.path.isfile(file) else ""
    return file, number, code.co_name, line


def _file(frames: TracebackType) -> str:
    return frames.tb_frame.f_code.co_filename


def _end(text: str, limit: int) -> str:
    """The last characters of a text, from the beginning of a line on."""
    if len(text) <= limit:
        return text.rstrip("\n")
    kept = text.rstrip("\n")[-limit:]
    return kept.partition("\n")[2] or kept
