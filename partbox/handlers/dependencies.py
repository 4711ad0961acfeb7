"""Find the parameters that providers of fast-depends fill, and refuse providers that cannot work, at registration."""

import inspect
import sys
from collections.abc import Collection, Mapping
from typing import Any

from partbox.callables import Call, is_async, name_of, place_of
from partbox.errors import RegistrationError
from partbox.handlers.annotations import EMPTY, Annotations

LIBRARY = "fast_depends"


def find_dependencies(annotations: Annotations) -> dict[str, Any]:
    """Return the `Depends(…)` marker of each function parameter that has one, by parameter name."""
    # RegistrationError is raised for the Depends of FastAPI.
    # A module that uses a Depends has imported its library.
    if not sys.modules.keys() & {LIBRARY, "fastapi"}:
        return {}
    parameters = annotations.signature.parameters.values()
    each = ((parameter.name, _find_marker(annotations, parameter)) for parameter in parameters)
    return {name: dependant for name, dependant in each if dependant is not None}


def _find_marker(annotations: Annotations, parameter: inspect.Parameter) -> Any:
    annotation = annotations.type_or_empty(parameter, extras=True)
    for one in (parameter.default, *getattr(annotation, "__metadata__", ())):
        kind = type(one)
        if kind.__name__ == "Dependant" and kind.__module__.startswith(LIBRARY):
            return one
        if kind.__name__ == "Depends" and kind.__module__.startswith("fastapi."):
            raise RegistrationError(
                f"{annotations.label} asks for {parameter.name!r} by the Depends of FastAPI, which is for requests: "
                "import Depends from fast_depends (pip install 'partbox[depends]')"
            )
    return None


def check_dependencies(dependencies: Mapping[str, Any], given: Collection[str], label: str, *, is_async: bool) -> None:
    """Raise RegistrationError if a handler cannot use its dependency providers."""
    # A sync handler cannot use async providers. A provider may take only the arguments in `given`, and its own
    # dependencies.
    for each in dependencies.values():
        _check_provider(each.dependency, given, label, awaits=is_async)


def _check_provider(provider: Call, given: Collection[str], label: str, *, awaits: bool) -> None:
    name = f"{name_of(provider)} ({place_of(provider)})"
    if not awaits and _is_async_provider(provider):
        raise RegistrationError(
            f"{label} is sync and depends on {name}, which is async: make the handler an async def, or its "
            f"provider sync"
        )
    try:
        annotations = Annotations(provider, None, name)
    except ValueError:
        raise RegistrationError(
            f"{name}, on which {label} depends, does not reveal its parameters: write a function around it"
        ) from None
    dependencies = find_dependencies(annotations)
    for parameter in annotations.signature.parameters.values():
        if parameter.name in dependencies and parameter.name in given:
            raise RegistrationError(
                f"{name}, on which {label} depends, would get the handler's {parameter.name!r} and not what "
                f"its Depends "
                "says: give that parameter another name"
            )
        if _is_required(parameter) and parameter.name not in {*dependencies, *given}:
            # Raises a better error if a Depends is hidden in an annotation that cannot be resolved.
            annotations.type_of(parameter)
            raise RegistrationError(
                f"{name}, on which {label} depends, takes {parameter.name!r}, which nothing provides: a provider may "
                f"take {', '.join(given)}, by these names, and dependencies of its own"
            )
    for each in dependencies.values():
        _check_provider(each.dependency, given, label, awaits=awaits)


def _is_async_provider(provider: Call) -> bool:
    return not inspect.isclass(provider) and (
        is_async(provider) or any(map(inspect.isasyncgenfunction, (provider, type(provider).__call__)))
    )


def _is_required(parameter: inspect.Parameter) -> bool:
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.default is EMPTY and parameter.kind not in variable
