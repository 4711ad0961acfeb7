"""The place in a payload that is to blame, for an error: `payload.items[3].price`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

from partbox.events.shown import visible

DEEPEST: Final = 50
ROOT: Final = "payload"


def culprit(payload: Any, refused: Callable[[Any], bool]) -> str:
    """The path to the innermost part that is `refused` by itself; the first of several, and at most DEEPEST steps."""
    path, part = ROOT, payload
    for _ in range(DEEPEST):
        found = next(((step, inner) for step, inner in _parts(part) if refused(inner)), None)
        if found is None:
            break
        path, part = path + found[0], found[1]
    return path


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((_step(key), inner) for key, inner in value.items())
    elif isinstance(value, list | tuple):
        yield from ((f"[{place}]", inner) for place, inner in enumerate(value))
    elif is_dataclass(type(value)):
        yield from ((f".{each.name}", getattr(value, each.name)) for each in fields(value))
    else:
        names = getattr(type(value), "model_fields", ())  # of a pydantic model, which is not loaded for this
        yield from ((f".{name}", getattr(value, name)) for name in names)


def _step(key: Any) -> str:
    text = visible(str(key))
    return f".{text}" if isinstance(key, str) and key.isidentifier() else f"[{text!r}]"
