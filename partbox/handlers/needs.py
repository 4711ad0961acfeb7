"""Supply a handler with arguments beside its event: the state of the lifespan, and the values of providers."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from partbox.callables import Call
from partbox.handlers.annotations import POSITIONAL
from partbox.platform import library

VALUES = "_values"  # a name that no provider asks for


@dataclass(frozen=True, slots=True)
class Needs:
    """A description of how to call a handler that takes more arguments than its event."""

    # Arguments are given as indices into the available values. The available values are the state, the values of the
    # event, the trailing arguments, and the values of providers, in this order. `positions` are the positional
    # arguments, `keywords` the keyword arguments, `dependencies` the providers by parameter. Providers may take the
    # names in `provided_names`. `trailing_arg` is the position of the last parameter that neither a provider nor the
    # state fills. `state` is the class of the state if the handler asks for it. `is_guess` is True while no lifespan
    # that yields this class is registered.

    positions: tuple[int, ...]
    keywords: Mapping[str, int]
    dependencies: Mapping[str, Any]
    provided_names: tuple[str, ...]
    trailing_arg: int
    state: Any = None
    is_guess: bool = False

    def call_handler(self, handler: Call, *available: Any) -> Any:
        """Call the handler with the values that its parameters ask for, out of all available values."""
        # The values are given in the order of the class docstring.
        placed = [available[each] for each in self.positions]
        if not self.keywords:
            return handler(*placed)
        return handler(*placed, **{name: available[each] for name, each in self.keywords.items()})


class PlannedCall:
    """A function of a handler whose own parameters depend on the class that the lifespan yields."""

    def with_state(self, state: Any) -> Call:
        """Return the function for handlers of a lifespan that yields the class `state`."""
        raise NotImplementedError


def split_arguments(signature: inspect.Signature, numbers: Mapping[str, int]) -> tuple[tuple[int, ...], dict[str, int]]:
    """Decide which of a handler's arguments are passed by position and which by name."""
    # `numbers` has the number of each parameter's argument.
    # Parameters are positional until the first parameter without a number.
    positions: list[int] = []
    for name, parameter in signature.parameters.items():
        if parameter.kind not in POSITIONAL or name not in numbers:
            break
        positions.append(numbers[name])
    placed = [*signature.parameters][: len(positions)]
    return tuple(positions), {name: each for name, each in numbers.items() if name not in placed}


def supply_arguments(handler: Call, needs: Needs, *, is_async: bool, is_batch: bool) -> Call:
    """Wrap a handler so that it also receives the application's state and the values of its dependencies."""
    # The state is yielded by the lifespan, and the values of dependencies come from their providers. The wrapper takes
    # an event, or a list of events, then the values of the event's parameters and the trailing arguments.
    state_of = _state_of_first if is_batch else _state_of
    if needs.dependencies:
        return _inject_providers(handler, needs, state_of, is_async=is_async)

    def call_with_state(given: Any, *values: Any) -> Any:
        return needs.call_handler(handler, state_of(given), *values)

    return call_with_state


def _inject_providers(handler: Call, needs: Needs, state_of: Callable[[Any], Any], *, is_async: bool) -> Call:
    # fast-depends calls the providers for each call of the handler and closes their resources afterwards.
    fast_depends = library("fast_depends", "depends", "a handler with Depends needs the library fast-depends")
    # No provider may take a name with an underscore.
    parameters = {f"_{name}": each for name, each in needs.dependencies.items()}

    def call(**given: Any) -> Any:
        return needs.call_handler(handler, given["state"], *given[VALUES], *(given[name] for name in parameters))

    async def call_async(**given: Any) -> Any:
        return await call(**given)

    chosen: Any = call_async if is_async else call
    chosen.__signature__ = inspect.Signature(
        [
            *(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in (*needs.provided_names, VALUES)),
            *(
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[Any, dependant])
                for name, dependant in parameters.items()
            ),
        ]
    )
    # No casts: the value of a provider is passed on as it is.
    injected: Call = fast_depends.inject(chosen, cast=False)

    def call_injected(given: Any, *values: Any) -> Any:
        offered = dict(zip(needs.provided_names, (given, state_of(given), *values[-1:]), strict=False))
        return injected(**offered, **{VALUES: values})

    return call_injected


def _state_of(event: Any) -> Any:
    return event.state


def _state_of_first(events: Any) -> Any:
    return events[0].state
