"""A payload as a tree for the browser, with numbers as written and keys in order, duplicates included. A node is a
text, a bool, None, `{"number": "1.0"}`, `{"array": [node, …]}` or `{"object": [[key, node], …]}`."""

import json
from typing import Any

from partbox.dashboard.page_text import escape_invisible

# Most characters of a payload that becomes a tree.
MOST = 1 << 20
# Characters or bytes shown of any other payload.
SHOWN = 1 << 16


def build_tree(payload: str | bytes | None) -> dict[str, Any]:
    """Convert a payload into a tree for display, or into text or hexadecimal bytes if it is too large or not JSON."""
    # The tree is `{"tree": node}`.
    # `whole` is False if the payload was cut.
    if isinstance(payload, bytes):
        return {"bytes": payload[:SHOWN].hex(" "), "whole": len(payload) <= SHOWN}
    if payload is not None and len(payload) > MOST:
        return {"text": escape_invisible(payload[:SHOWN], keep="\n\t"), "whole": False}
    try:
        return {"tree": None if payload is None else _build_node(_parse_json(payload)), "whole": True}
    # RecursionError: nested deeper than anybody reads.
    except (ValueError, RecursionError):
        return {"text": escape_invisible((payload or "")[:SHOWN], keep="\n\t"), "whole": len(payload or "") <= SHOWN}


class _Pairs(list[tuple[str, Any]]): ...


class _Number(str):
    __slots__ = ()


def _parse_json(text: str) -> Any:
    return json.loads(
        text, parse_int=_Number, parse_float=_Number, parse_constant=_Number, object_pairs_hook=_Pairs, strict=False
    )


def _build_node(value: Any) -> Any:
    match value:
        case _Pairs():
            return {"object": [[escape_invisible(key), _build_node(each)] for key, each in value]}
        case list():
            return {"array": [_build_node(each) for each in value]}
        case _Number():
            return {"number": str(value)}
        case str():
            return escape_invisible(value, keep="\n\t")
    return value
