"""Errors name options as they are typed: Python's `older_than` is `--older-than` on a command line."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from partbox.errors import PartboxError
from partbox.operations.arguments import ArgumentError

# Parameters of commands that go by another name in Python.
_ALIASES = {"event_type": "type", "types": "type", "from_id": "point", "from_time": "point", "subscription": "name"}


def spelled(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command, whose ArgumentError names its own options."""
    typed = {name: _typed(each) for name, each in inspect.signature(command).parameters.items()}

    @wraps(command)
    def run(**given: Any) -> Any:
        try:
            return command(**given)
        except ArgumentError as error:
            name = typed.get(error.name) or typed.get(_ALIASES.get(error.name, "")) or error.name
            raise PartboxError(f"{name} {error.said}") from None

    return run


def _typed(parameter: inspect.Parameter) -> str:
    """The option, or the argument as the help calls it."""
    info = next(iter(getattr(parameter.annotation, "__metadata__", ())), None)
    if type(info).__name__ == "ArgumentInfo":
        return str(getattr(info, "metavar", None) or parameter.name)
    declared: list[Any] = [getattr(info, "default", None), *(getattr(info, "param_decls", None) or [])]
    long = (each for each in declared if isinstance(each, str) and each.startswith("--"))
    return next(long, f"--{parameter.name.replace('_', '-')}")
