"""A payload as a tree for a browser: numbers as they were written, keys in their order, also those that stand twice.

A node is a text, a bool, None, `{"number": "1.0"}`, `{"array": [node, …]}` or `{"object": [[key, node], …]}`. What is
no JSON, or too much of it, is `{"text": …}` or `{"bytes": …}`, its beginning.
"""

import json
from typing import Any

from partbox.dashboard.page_text import visible

MOST = 1 << 20  # characters that are made a tree
SHOWN = 1 << 16  # of what is none


def tree(payload: str | bytes | None) -> dict[str, Any]:
    """The payload as `{"tree": node}`, or as text or bytes in hexadecimal; `whole`: False if only its beginning."""
    if isinstance(payload, bytes):
        return {"bytes": payload[:SHOWN].hex(" "), "whole": len(payload) <= SHOWN}
    if payload is not None and len(payload) > MOST:
        return {"text": visible(payload[:SHOWN], keep="\n\t"), "whole": False}
    try:
        return {"tree": None if payload is None else _node(_read(payload)), "whole": True}
    except (ValueError, RecursionError):  # deeper than anybody reads
        return {"text": visible((payload or "")[:SHOWN], keep="\n\t"), "whole": len(payload or "") <= SHOWN}


class _Pairs(list[tuple[str, Any]]):
    """The members of an object."""


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


def _read(text: str) -> Any:
    return json.loads(
        text, parse_int=_Number, parse_float=_Number, parse_constant=_Number, object_pairs_hook=_Pairs, strict=False
    )


def _node(value: Any) -> Any:
    match value:
        case _Pairs():
            return {"object": [[visible(key), _node(each)] for key, each in value]}
        case list():
            return {"array": [_node(each) for each in value]}
        case _Number():
            return {"number": str(value)}
        case str():
            return visible(value, keep="\n\t")
    return value
