"""The annotations of a handler's parameters, resolved as far as they can be.

A module may postpone them (`from __future__ import annotations`), or import a type for its checker only. What Python
cannot find is looked for among the names that a handler's registration knows.
"""

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CellType
from typing import Any, Final, ForwardRef, get_type_hints

from partbox.callables import innermost, signature_of
from partbox.errors import RegistrationError
from partbox.events import DeliveredEvent

KNOWN: Final[Mapping[str, Any]] = {
    "DeliveredEvent": DeliveredEvent,
    "Sequence": Sequence,
    "Iterable": Iterable,
    "partbox": sys.modules["partbox"],
}
POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def annotations_of(call: Callable[..., Any], first: int, cls: type | None, who: str) -> list[Any]:
    """Those of the first parameters, `inspect.Parameter.empty` where there is none. RegistrationError.

    `cls` is the class that the handler is registered for, if it is.
    """
    try:
        parameters = signature_of(call).parameters.values()
    except ValueError:  # a builtin that does not tell
        return [inspect.Parameter.empty] * first
    given = [each for each in parameters if each.kind in POSITIONAL][:first]
    found = [_resolved(call, each, cls, who) for each in given]
    return found + [inspect.Parameter.empty] * (first - len(found))  # of a `*args`


def _resolved(call: Callable[..., Any], parameter: inspect.Parameter, cls: type | None, who: str) -> Any:
    annotation = parameter.annotation
    if annotation is inspect.Parameter.empty:
        return annotation

    def holder() -> None: ...

    holder.__annotations__ = {"it": annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else annotation}
    fallback = KNOWN if cls is None else {**KNOWN, cls.__name__: cls}
    for names in (_closure(call), {**fallback, **_closure(call)}):
        try:
            return get_type_hints(holder, _globals(call), names)["it"]
        except (NameError, AttributeError) as error:
            problem = str(error)
        except Exception as error:  # whatever an expression may raise
            problem = f"{type(error).__name__}: {error}"
    raise RegistrationError(
        f"the annotation of {parameter.name!r} of {who} cannot be resolved ({problem}): import its type outside of `if "
        "TYPE_CHECKING:`, before the handler"
    )


def _function(call: Callable[..., Any]) -> Any:
    inner = innermost(call)
    return inner if hasattr(inner, "__globals__") else type(inner).__call__


def _globals(call: Callable[..., Any]) -> dict[str, Any]:
    return getattr(_function(call), "__globals__", {})


def _closure(call: Callable[..., Any]) -> dict[str, Any]:
    """The names of the functions around it that it uses, as far as they have a value already."""
    function = _function(call)
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    cells = zip(names, getattr(function, "__closure__", None) or (), strict=False)
    return {name: cell.cell_contents for name, cell in cells if cell != CellType()}  # an empty one has no contents
