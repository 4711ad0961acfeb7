"""Format the traceback of a handler's error as text, without the frames of partbox above the application's.

An error may be any object of the application. The error is read through the descriptors of BaseException, which
subclasses cannot override. If formatting fails all the same, only the text is lost. No values are shown: neither locals
nor notes."""

import linecache
import os
from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from traceback import StackSummary
from types import TracebackType
from typing import Final

from partbox.protocol.outage import cause_of, context_of, hides_context, members_of
from partbox.protocol.verdict import UNCHARGED_ERRORS, clean_text, describe

MAX_FRAMES: Final = 50  # the last frames of one error; more would not fit
MAX_WALKED: Final = 10_000  # an error that is raised again and again gains a frame each time
MAX_MEMBERS: Final = 3  # members of an exception group
MAX_MESSAGE: Final = 300  # characters of the message; `last_error` has the rest
MAX_CODE_LINE: Final = 200  # characters of a line of code

TRACEBACK_HEAD = "Traceback (most recent call last):\n"
CAUSED = "\nwhich caused:\n\n"
DURING_CONTEXT = "\nand while that was handled:\n\n"
IN_GROUP = "\nwhich is in the group:\n\n"

_PARTBOX = f"{Path(__file__).parents[2]}{os.sep}"
_CALLER_DIRS = tuple(f"{_PARTBOX}{room}{os.sep}" for room in ("worker", "handlers", "interceptors", "observe", "tasks"))
"""The packages that call handlers. Others have handlers of their own (demo), or are called by handlers (publish)."""

_frames: Final = vars(BaseException)["__traceback__"].__get__

Link = tuple[BaseException, str]
FrameSummary = tuple[str, int, str]  # the file, the line and the function


def find_application_frames(error: BaseException) -> TracebackType | None:
    """Return the error's traceback from its first frame outside of partbox, or None without such a frame."""
    frames: TracebackType | None = _frames(error)
    while frames is not None and str.startswith(_file_of(frames), _CALLER_DIRS):
        frames = frames.tb_next
    return frames


def trace_of(error: BaseException, limit: int, described: str | None = None) -> str | None:
    """Return the last `limit` characters of the error's traceback as text, or None without application code."""
    # The text can be stored. Causes come first as far as they fit. The result is None if no frame belongs to the
    # application, and for events that partbox itself finds undecodable or unroutable. `described` is the description
    # of the error, if it is there already.
    try:
        if _is_partbox_error(error):
            return None
        return _keep_last_characters(_format_chain(error, limit, described), limit) or None
    except BaseException:
        # A metaclass of the application, or a file that is no text. SystemExit too.
        return None


def _is_partbox_error(error: BaseException) -> bool:
    # partbox itself raised the error, because of the event, so that no code of the application failed.
    if not issubclass(type(error), UNCHARGED_ERRORS):
        return False
    last = deque(_list_frames(_frames(error)), 1)
    return not last or str.startswith(_file_of(last[0]), _PARTBOX)


def _format_chain(error: BaseException, limit: int, described: str | None) -> str:
    # At most `limit` characters are returned.
    # The causes come first, as far as they fit. The result is "" if there are no frames.
    texts: list[str] = []
    seen: set[int] = set()
    waiting: deque[Link] = deque([(error, "")])
    room, has_frames = limit, False
    while waiting and room > 0:
        each, link = waiting.popleft()
        if id(each) not in seen:
            seen.add(id(each))
            frames = find_application_frames(each)
            has_frames = has_frames or frames is not None
            texts.append(_format_error(each, frames, limit, described if each is error else None) + link)
            room -= len(texts[-1])
            waiting.extend(_list_causes(each))
    return "".join(reversed(texts)) if has_frames else ""


def _list_causes(error: BaseException) -> Iterator[Link]:
    if issubclass(type(error), BaseExceptionGroup):
        yield from ((member, IN_GROUP) for member in members_of(error)[:MAX_MEMBERS])
    if (cause := cause_of(error)) is not None:
        yield cause, CAUSED
    elif (context := context_of(error)) is not None and not hides_context(error):
        yield context, DURING_CONTEXT


def _format_error(error: BaseException, frames: TracebackType | None, limit: int, described: str | None) -> str:
    message = f"{_describe_error(error, min(MAX_MESSAGE, limit // 4), described)}\n"
    if frames is None:
        return message
    return _format_frames(tuple(map(_summarize_frame, deque(_list_frames(frames), MAX_FRAMES)))) + message


def _describe_error(error: BaseException, most: int, described: str | None) -> str:
    try:
        message = described or describe(error, most + 1)
    except BaseException:
        return "(an error that cannot be described)"
    return message if len(message) <= most else f"{message[:most]}…"


def _list_frames(frames: TracebackType | None) -> Iterator[TracebackType]:
    for _ in range(MAX_WALKED):
        if frames is None:
            return
        yield frames
        frames = frames.tb_next


def _summarize_frame(frames: TracebackType) -> FrameSummary:
    return _file_of(frames), frames.tb_lineno or 0, frames.tb_frame.f_code.co_name


# Most errors come from few places of the code. To ask the system for a file also gives the interpreter to another
# thread, which costs more than the rest of a traceback.
@lru_cache(maxsize=100)
def _format_frames(frames: tuple[FrameSummary, ...]) -> str:
    """Return the head of a traceback and its frames as text that can be stored."""
    shown = [(file, number, name, _read_code_line(file, number)) for file, number, name in frames]
    return clean_text(TRACEBACK_HEAD + "".join(StackSummary.from_list(shown).format()))


def _read_code_line(file: str, number: int) -> str:
    # Read regular files only: any other file may never end, or block the reader.
    return linecache.getline(file, number).strip()[:MAX_CODE_LINE] if os.path.isfile(file) else ""


def _file_of(frames: TracebackType) -> str:
    return frames.tb_frame.f_code.co_filename


def _keep_last_characters(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text.rstrip("\n")
    kept = text.rstrip("\n")[-limit:]
    return kept.partition("\n")[2] or kept
