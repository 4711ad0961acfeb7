"""Texts of events, errors and nodes in a form that is safe to show: short, and without invisible characters."""

import unicodedata
from datetime import datetime
from typing import Any

import psycopg

from partbox.text.secrets import mask_secrets

SHORT = 80
LONG = 200

# Format characters that hide text or change its direction. Others, such as joiners of scripts and emoji, stay.
_INVISIBLE = frozenset("\u061c\u200b\u200e\u200f\u2028\u2029\u2060\ufeff") | {
    chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0xE0000, 0xE0080))
}


def escape_invisible(text: str, keep: str = "") -> str:
    r"""Return the text with control characters (except `keep`) and deceptive characters escaped, such as `\u202e`."""
    if text.isascii() and text.isprintable():
        return text
    unsafe = {each for each in text if unicodedata.category(each) in ("Cc", "Cs", "Co") or each in _INVISIBLE} - {*keep}
    spelled_out = {each: each.encode("unicode_escape", "surrogatepass").decode() for each in unsafe}
    return "".join(spelled_out.get(each, each) for each in text)


def cut_text(text: str | None, most: int = SHORT) -> str | None:
    """Return the text in one line of at most `most` characters, with invisible characters escaped."""
    if text is None:
        return None
    line = escape_invisible(" ".join(text[: 8 * most].split()))
    return line if len(line) <= most and len(text) <= 8 * most else f"{line[: most - 1]}…"


def format_error(error: Exception, most: int = LONG) -> str:
    """Return the text of an error for the dashboard, without passwords and never empty."""
    # Only the first line of a database error is kept, because that line quotes no row.
    text = str(error).partition("\n")[0] if isinstance(error, psycopg.Error) else str(error)
    return cut_text(mask_secrets(text), most) or type(error).__name__


def build_plain(found: object, *names: str, **others: Any) -> dict[str, Any]:
    """Convert the named attributes of an object into a dict for JSON, with `others` added unchanged."""
    # Texts are cut, and times are in ISO form.
    return {name: _to_plain(getattr(found, name)) for name in names} | others


def _to_plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return cut_text(value) if isinstance(value, str) else value
