"""What a handler needs beside its event: the state that the lifespan yields, and what providers give for each event."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from partbox.callables import Call
from partbox.platform import library

VALUES = "_values"  # no provider asks for that


@dataclass(frozen=True, slots=True)
class Needs:
    """The parameters of a handler that needs more than its event.

    `names` get the parts of the event, and what is behind them; `states` the state; `dependencies` what their providers
    give. Providers may take what `given` names. `places`: those that have no names for a caller; `behind`: the place of
    the last of `names`. `hope`: the class that a lifespan has to yield, as long as none is registered.
    """

    names: tuple[str, ...]
    states: tuple[str, ...]
    dependencies: Mapping[str, Any]
    given: tuple[str, ...]
    places: tuple[str, ...]
    behind: int
    hope: Any = None

    def call(self, handler: Call, values: Sequence[Any], state: Any, found: Mapping[str, Any]) -> Any:
        """Call the handler with the values of `names`, the state, and what its providers have given."""
        given = {**dict(zip(self.names, values, strict=True)), **dict.fromkeys(self.states, state), **found}
        placed = [given.pop(name) for name in self.places]
        return handler(*placed, **given)


def supplied(handler: Call, needs: Needs, *, is_async: bool, is_batch: bool) -> Call:
    """A call that takes an event, or a list of them, and the values of `names`."""
    state_of = _state_of_first if is_batch else _state
    if needs.dependencies:
        return _injected(handler, needs, state_of, is_async=is_async)

    def stated(given: Any, *values: Any) -> Any:
        return needs.call(handler, values, state_of(given), {})

    return stated


def _injected(handler: Call, needs: Needs, state_of: Callable[[Any], Any], *, is_async: bool) -> Call:
    """The call of a handler with dependencies: fast-depends asks their providers, and closes what they have opened."""
    fast_depends = library("fast_depends", "depends", "a handler with Depends needs the library fast-depends")
    parameters = {f"_{name}": each for name, each in needs.dependencies.items()}  # no name that providers may take

    def call(**given: Any) -> Any:
        found = {name[1:]: given[name] for name in parameters}
        return needs.call(handler, given[VALUES], given["state"], found)

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

    def asked(given: Any, *values: Any) -> Any:
        offered = dict(zip(needs.given, (given, state_of(given), *values[-1:]), strict=False))
        return injected(**offered, **{VALUES: values})

    return asked


def _state(event: Any) -> Any:
    return event.state


def _state_of_first(events: Any) -> Any:
    return events[0].state
