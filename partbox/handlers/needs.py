"""The needs of a handler beside its event: the state that the lifespan yields, and what providers give."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from partbox.callables import Call
from partbox.handlers.annotations import POSITIONAL
from partbox.platform import library

VALUES = "_values"  # no provider asks for that


@dataclass(frozen=True, slots=True)
class Needs:
    """The arguments of a handler that needs more than its event, as numbers of what there is: the state, the values of
    its event, what is behind them, and then what its providers give.

    `positions` are those by position, `keywords` the others; `dependencies` are by parameter. Providers may take what
    `given` names. `trailing_arg`: the place of the last parameter that no provider fills, but for the state's. `state`:
    the class of the state, if that is asked for; `is_guess`: no lifespan is registered that yields it.
    """

    positions: tuple[int, ...]
    keywords: Mapping[str, int]
    dependencies: Mapping[str, Any]
    given: tuple[str, ...]
    trailing_arg: int
    state: Any = None
    is_guess: bool = False

    def call(self, handler: Call, *available: Any) -> Any:
        """Call the handler with what there is."""
        placed = [available[each] for each in self.positions]
        if not self.keywords:
            return handler(*placed)
        return handler(*placed, **{name: available[each] for name, each in self.keywords.items()})


def split_arguments(signature: inspect.Signature, numbers: Mapping[str, int]) -> tuple[tuple[int, ...], dict[str, int]]:
    """The numbers by position and by keyword: by position as long as no parameter is left out."""
    positions: list[int] = []
    for name, parameter in signature.parameters.items():
        if parameter.kind not in POSITIONAL or name not in numbers:
            break
        positions.append(numbers[name])
    placed = [*signature.parameters][: len(positions)]
    return tuple(positions), {name: each for name, each in numbers.items() if name not in placed}


def supply_arguments(handler: Call, needs: Needs, *, is_async: bool, is_batch: bool) -> Call:
    """A call that takes an event, or a list of them, and then what the parameters of the event get, and what is behind
    them."""
    state_of = _state_of_first if is_batch else _state
    if needs.dependencies:
        return _inject_providers(handler, needs, state_of, is_async=is_async)

    def call_with_state(given: Any, *values: Any) -> Any:
        return needs.call(handler, state_of(given), *values)

    return call_with_state


def _inject_providers(handler: Call, needs: Needs, state_of: Callable[[Any], Any], *, is_async: bool) -> Call:
    """The call of a handler with dependencies: fast-depends asks their providers, and closes what they have opened."""
    fast_depends = library("fast_depends", "depends", "a handler with Depends needs the library fast-depends")
    parameters = {f"_{name}": each for name, each in needs.dependencies.items()}  # no name that providers may take

    def call(**given: Any) -> Any:
        return needs.call(handler, given["state"], *given[VALUES], *(given[name] for name in parameters))

    async def call_async(**given: Any) -> Any:
        return await call(**given)

    chosen: Any = call_async if is_async else call
    chosen.__signature__ = inspect.Signature(
        [
            *(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in (*needs.given, VALUES)),
            *(
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[Any, dependant])
                for name, dependant in parameters.items()
            ),
        ]
    )
    # Without casts: what a provider gives is handed over as it is.
    injected: Call = fast_depends.inject(chosen, cast=False)

    def call_injected(given: Any, *values: Any) -> Any:
        offered = dict(zip(needs.given, (given, state_of(given), *values[-1:]), strict=False))
        return injected(**offered, **{VALUES: values})

    return call_injected


def _state(event: Any) -> Any:
    return event.state


def _state_of_first(events: Any) -> Any:
    return events[0].state
