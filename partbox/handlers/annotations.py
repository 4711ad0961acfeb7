"""Resolve the annotations of a handler's parameters, as far as possible.

A name that Python cannot find, for example because only the type checker imports it, is looked up among names that are
usual in handlers, and the class of the registration."""

import inspect
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from types import CellType
from typing import Any, Final, ForwardRef, get_type_hints

from partbox.callables import innermost, signature_of
from partbox.errors import RegistrationError
from partbox.events import DeliveredEvent

KNOWN_NAMES: Final[Mapping[str, Any]] = {
    "DeliveredEvent": DeliveredEvent,
    "Sequence": Sequence,
    "Iterable": Iterable,
    "Iterator": Iterator,
    "AsyncIterator": AsyncIterator,
    "Generator": Generator,
    "AsyncGenerator": AsyncGenerator,
    "partbox": sys.modules["partbox"],
}
EMPTY: Final = inspect.Parameter.empty
POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Annotations:
    """The signature of a handler or provider function, with the annotated types of its parameters.

    Raise ValueError for a builtin without a signature. `cls` is the class that a handler is registered for, or None.
    `label` names the function in errors."""

    def __init__(self, call: Callable[..., Any], cls: type | None, label: str) -> None:
        self._call = call
        self._fallback = KNOWN_NAMES if cls is None else {**KNOWN_NAMES, cls.__name__: cls}
        self.label = label
        self.signature = signature_of(call)

    def type_of(self, parameter: inspect.Parameter, *, extras: bool = False) -> Any:
        """Return the type of a parameter's annotation, or `inspect.Parameter.empty` without one."""
        # RegistrationError is raised if the annotation cannot be resolved. `extras`: keep the metadata of Annotated.
        return self._resolve(repr(parameter.name), parameter.annotation, extras=extras)

    def result_type(self) -> Any:
        """Return the type of the function's return annotation, or `inspect.Parameter.empty` without one."""
        # RegistrationError is raised if the annotation cannot be resolved.
        return self._resolve("the result", self.signature.return_annotation)

    def type_or_empty(self, parameter: inspect.Parameter, *, extras: bool = False) -> Any:
        """Return the type of a parameter's annotation, or `inspect.Parameter.empty` if it cannot be resolved."""
        # The result is the same for a parameter without an annotation.
        try:
            return self.type_of(parameter, extras=extras)
        except RegistrationError:
            return EMPTY

    def _resolve(self, what: str, annotation: Any, *, extras: bool = False) -> Any:
        if annotation is EMPTY:
            return annotation

        def holder() -> None: ...

        text = annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else annotation
        holder.__annotations__ = {"it": text}
        for names in (_closure_of(self._call), {**self._fallback, **_closure_of(self._call)}):
            try:
                return get_type_hints(holder, _globals_of(self._call), names, include_extras=extras)["it"]
            except (NameError, AttributeError) as error:
                problem = str(error)
            except Exception as error:
                # An expression may raise anything.
                problem = f"{type(error).__name__}: {error}"
        raise RegistrationError(
            f"the annotation of {what} of {self.label} cannot be resolved ({problem}): import its type outside of `if "
            "TYPE_CHECKING:`, before the function"
        )


def annotations_of(call: Callable[..., Any], first: int, cls: type | None, label: str) -> list[Any]:
    """Return the annotated types of a function's leading parameters."""
    # `first` is the number of parameters. A parameter without an annotation gives `inspect.Parameter.empty`. `cls` is
    # the class that the handler is registered for, or None. RegistrationError is raised if an annotation cannot be
    # resolved.
    try:
        annotations = Annotations(call, cls, label)
    except ValueError:
        # A builtin without a signature.
        return [EMPTY] * first
    given = [each for each in annotations.signature.parameters.values() if each.kind in POSITIONAL][:first]
    found = [annotations.type_of(each) for each in given]
    # `*args` may stand for the remaining parameters.
    return found + [EMPTY] * (first - len(found))


def _plain_function_of(call: Callable[..., Any]) -> Any:
    inner = innermost(call)
    return inner if hasattr(inner, "__globals__") else type(inner).__call__


def _globals_of(call: Callable[..., Any]) -> dict[str, Any]:
    return getattr(_plain_function_of(call), "__globals__", {})


def _closure_of(call: Callable[..., Any]) -> dict[str, Any]:
    function = _plain_function_of(call)
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    cells = zip(names, getattr(function, "__closure__", None) or (), strict=False)
    # An empty cell has no contents.
    return {name: cell.cell_contents for name, cell in cells if cell != CellType()}
