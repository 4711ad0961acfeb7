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
from partbox.protocol.verdict import UNCHARGED_ERRORS, clean_text, describe

MAX_FRAMES: Final = 50  # of one error, the last ones: more would not fit
MAX_WALKED: Final = 10_000  # an error that is raised again and again grows by a frame each time
MAX_MEMBERS: Final = 3  # of a group of errors
MAX_MESSAGE: Final = 300  # characters of an error's message; `last_error` has the rest
MAX_CODE_LINE: Final = 200  # characters of a line of code

TRACEBACK_HEAD = "Traceback (most recent call last):\n"
CAUSED = "\nwhich caused:\n\n"
DURING_CONTEXT = "\nand while that was handled:\n\n"
IN_GROUP = "\nwhich is in the group:\n\n"

_PARTBOX = f"{Path(__file__).parents[2]}{os.sep}"
_CALLER_DIRS = tuple(f"{_PARTBOX}{room}{os.sep}" for room in ("worker", "handlers", "interceptors", "observe", "tasks"))
"""The rooms that call a handler. Others have handlers of their own (demo), or are called by one (publish)."""

_frames: Final = vars(BaseException)["__traceback__"].__get__

Link = tuple[BaseException, str]


def application_frames(error: BaseException) -> TracebackType | None:
    """The traceback from the first frame that is not partbox's own; None if there is none."""
    frames: TracebackType | None = _frames(error)
    while frames is not None and str.startswith(_file_of(frames), _CALLER_DIRS):
        frames = frames.tb_next
    return frames


def trace_of(error: BaseException, limit: int) -> str | None:
    """The last `limit` characters of its traceback, causes first and only as far as they fit, fit to be stored.

    None if no frame of it is the application's, and for an event that partbox itself calls undecodable or unroutable.
    """
    try:
        return (
            None
            if _is_partbox_error(error)
            else _last_characters(clean_text(_format_chain(error, limit)), limit) or None
        )
    except BaseException:  # a metaclass, a file that is no text: SystemExit too
        return None


def _is_partbox_error(error: BaseException) -> bool:
    """True if partbox has raised it about the event itself, so that no code of the application is at fault."""
    if not issubclass(type(error), UNCHARGED_ERRORS):
        return False
    last = deque(_each_frame(_frames(error)), 1)
    return not last or str.startswith(_file_of(last[0]), _PARTBOX)


def _format_chain(error: BaseException, limit: int) -> str:
    """The error's text, preceded by those of the errors that led to it while they fit; "" without frames."""
    texts: list[str] = []
    seen: set[int] = set()
    waiting: deque[Link] = deque([(error, "")])
    room, has_frames = limit, False
    while waiting and room > 0:
        each, link = waiting.popleft()
        if id(each) not in seen:
            seen.add(id(each))
            frames = application_frames(each)
            has_frames = has_frames or frames is not None
            texts.append(_format_error(each, frames, limit) + link)
            room -= len(texts[-1])
            waiting.extend(_list_causes(each))
    return "".join(reversed(texts)) if has_frames else ""


def _list_causes(error: BaseException) -> Iterator[Link]:
    """The error that led to this one, as Python would say it, and how."""
    if issubclass(type(error), BaseExceptionGroup):
        yield from ((member, IN_GROUP) for member in members_of(error)[:MAX_MEMBERS])
    if (cause := cause_of(error)) is not None:
        yield cause, CAUSED
    elif (context := context_of(error)) is not None and not hides_context(error):
        yield context, DURING_CONTEXT


def _format_error(error: BaseException, frames: TracebackType | None, limit: int) -> str:
    message = f"{_describe_error(error, min(MAX_MESSAGE, limit // 4))}\n"
    if frames is None:
        return message
    last = deque(_each_frame(frames), MAX_FRAMES)
    return TRACEBACK_HEAD + "".join(StackSummary.from_list(map(_summarize_frame, last)).format()) + message


def _describe_error(error: BaseException, most: int) -> str:
    try:
        message = describe(error, most + 1)
    except BaseException:
        return "(an error that cannot be described)"
    return message if len(message) <= most else f"{message[:most]}…"


def _each_frame(frames: TracebackType | None) -> Iterator[TracebackType]:
    for _ in range(MAX_WALKED):
        if frames is None:
            return
        yield frames
        frames = frames.tb_next


def _summarize_frame(frames: TracebackType) -> tuple[str, int, str, str | None]:
    """File, line, name and code of one frame, as the library formats them."""
    code, number = frames.tb_frame.f_code, frames.tb_lineno or 0
    file = _file_of(frames)
    # A file of code is a plain one; any other may never end, or keep the reader waiting.
    line = linecache.getline(file, number).strip()[:MAX_CODE_LINE] if os.path.isfile(file) else ""
    return file, number, code.co_name, line


def _file_of(frames: TracebackType) -> str:
    return frames.tb_frame.f_code.co_filename


def _last_characters(text: str, limit: int) -> str:
    """The last characters of a text, from the beginning of a line on."""
    if len(text) <= limit:
        return text.rstrip("\n")
    kept = text.rstrip("\n")[-limit:]
    return kept.partition("\n")[2] or kept
