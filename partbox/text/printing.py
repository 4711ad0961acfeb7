"""Text that cannot act on its reader.

The texts of events and errors must not move a terminal's cursor, colour it, turn the direction of writing, or pass for
a line of its own.
"""

from collections.abc import Callable, Sequence
from json import dumps

MAX_SHOWN = 200  # characters of a name or id in a line

# As Python keeps them: a metaclass of an application may answer anything, or raise.
_module, _qualname = vars(type)["__module__"].__get__, vars(type)["__qualname__"].__get__


def text_of(value: object) -> str:
    """The text of anything, as a plain `str`; if it cannot be had, the error's name instead."""
    try:
        return str.__str__(str(value))  # not a subclass, whose methods may be anything
    except BaseException as wrong:  # SystemExit too: it is only a text
        return f"(its text cannot be had: {type(wrong).__name__})"


def error_name(error: BaseException) -> str:
    """The class of an error, with its module where that says something."""
    kind = type(error)
    home, name = _module(kind), _qualname(kind)
    return name if home in ("builtins", "__main__") or type(home) is not str else f"{home}.{name}"


def printable(text: str) -> str:
    """The text with all that is no visible character but a line's end escaped, as Python escapes it."""
    return _escaped(text, lambda character: character.encode("unicode_escape", "surrogatepass").decode())


def printable_json(text: str) -> str:
    """The same for a text that is JSON, as JSON escapes it."""
    return _escaped(text, lambda character: dumps(character)[1:-1])


def printable_line(text: str, most: int = MAX_SHOWN) -> str:
    """The printable text in one line of at most so many characters."""
    line = text if len(text) <= most else f"{text[: most - 1]}…"
    return printable(line).replace("\n", "\\n")


def first_few(numbers: Sequence[int], most: int = 8) -> str:
    """ "3, 7, 9 and 20 more"."""
    more = len(numbers) - most
    return ", ".join(map(str, numbers[:most])) + (f" and {more} more" if more > 0 else "")


def visible(text: str) -> str:
    """A name, an id or a message as it stands in a line: cut if it is long, escaped if nobody could see it."""
    cut = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
    return cut if cut.isprintable() else ascii(cut)[1:-1]


def _escaped(text: str, escape: Callable[[str], str]) -> str:
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else escape(each) for each in text)
