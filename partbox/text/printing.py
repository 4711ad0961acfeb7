"""Makes text safe to print: text of events and errors must not move the cursor of a terminal, colour text, turn the
direction of writing, or pass for a line of its own."""

from collections.abc import Callable, Sequence
from json import dumps

MAX_SHOWN = 200  # characters of a name or id in a line

# A metaclass of an application may override these attributes, or raise, so they are read from `type`.
_module, _qualname = vars(type)["__module__"].__get__, vars(type)["__qualname__"].__get__


def text_of(value: object) -> str:
    """Convert any object to a plain `str`, even if its str() fails."""
    # The text then has the name of the error.
    try:
        # The result may be an instance of a subclass of str, whose methods may do anything.
        return str.__str__(str(value))
    # Even SystemExit is caught, because a text is all that was wanted.
    except BaseException as wrong:
        return f"(no text, as str() raised {type(wrong).__name__})"


def format_error_name(error: BaseException) -> str:
    """Return the qualified name of an error's class, such as `psycopg.OperationalError` or `ValueError`."""
    # Builtins and __main__ are not named as modules.
    kind = type(error)
    home, name = _module(kind), _qualname(kind)
    return name if home in ("builtins", "__main__") or type(home) is not str else f"{home}.{name}"


def escape_unprintable(text: str) -> str:
    """Escape the unprintable characters of a text, except line breaks, as Python does."""
    return _escape_characters(text, lambda character: character.encode("unicode_escape", "surrogatepass").decode())


def escape_json(text: str) -> str:
    """Escape the unprintable characters of a JSON text, except line breaks, as JSON does."""
    return _escape_characters(text, lambda character: dumps(character)[1:-1])


def shorten_line(text: str, most: int = MAX_SHOWN) -> str:
    """Shorten a text to `most` characters and escape it, so that it prints as one line."""
    # Unprintable characters and line breaks are escaped.
    line = text if len(text) <= most else f"{text[: most - 1]}…"
    return escape_unprintable(line).replace("\n", "\\n")


def format_first_numbers(numbers: Sequence[int], most: int = 8) -> str:
    """List the first numbers as text and count the others, such as "3, 7, 9 and 20 more"."""
    more = len(numbers) - most
    return ", ".join(map(str, numbers[:most])) + (f" and {more} more" if more > 0 else "")


def make_visible(text: str) -> str:
    """Make a name, an id or a message fit for one printed line: shortened if long, escaped if unprintable."""
    cut = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
    return cut if cut.isprintable() else ascii(cut)[1:-1]


def _escape_characters(text: str, escape: Callable[[str], str]) -> str:
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else escape(each) for each in text)
