"""Makes every setting an option of every command that uses settings, such as `--lease 10s` or `--no-pooler`."""

import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import wraps
from types import MappingProxyType
from typing import Annotated, Any

import typer
from psycopg.conninfo import make_conninfo

from partbox import settings
from partbox.db.connect import resolve_dsn
from partbox.errors import PartboxError
from partbox.operations.arguments import ArgumentError
from partbox.settings import Settings, names
from partbox.text.dsn import connect_share, parse_dsn

Command = Callable[..., Any]

_typed: ContextVar[Mapping[str, Any]] = ContextVar("typed", default=MappingProxyType({}))


def load_settings(*, flags: Mapping[str, Any] | None = None) -> Settings:
    """Load the settings for a command. Its own `flags` take precedence over settings that were typed as options."""
    return settings.load(flags=read_typed_flags() | dict(flags or {}))


def read_typed_flags() -> dict[str, Any]:
    """Return the settings that the user typed as command-line options, by name."""
    # Options that are parameters of the command itself are left out.
    return dict(_typed.get())


# Names of arguments in Python that have another name on the command line.
_ALIASES = {"event_type": "type", "types": "type", "from_id": "point", "from_time": "point", "subscription": "name"}


def with_settings(command: Command) -> Command:
    """Decorate a command so that every setting of the outbox is a command-line option of it."""
    # The help hides these options, because they are the same everywhere and `partbox config` lists them.
    # A setting that is among the command's parameters gets no option. An ArgumentError of the command becomes a
    # PartboxError that names the option instead of the Python argument.
    signature = inspect.signature(command)
    added = [_build_parameter(name) for name in names() if name not in signature.parameters]
    parameters = [*signature.parameters.values(), *added]
    typed = {each.name: _format_option(each) for each in parameters}

    @wraps(command)
    def run(**given: Any) -> Any:
        token = _typed.set({each.name: value for each in added if (value := given.pop(each.name)) is not None})
        try:
            return command(**given)
        except ArgumentError as error:
            name = typed.get(error.name) or typed.get(_ALIASES.get(error.name, "")) or error.name
            raise PartboxError(f"{name} {error.reason}") from None
        finally:
            _typed.reset(token)

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


def _build_parameter(name: str) -> inspect.Parameter:
    is_flag = Settings.model_fields[names()[name]].annotation is bool
    option = f"--{name.replace('_', '-')}"
    declared = f"{option}/--no-{option.removeprefix('--')}" if is_flag else option
    made = typer.Option(declared, hidden=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(
        name, kind, default=None, annotation=Annotated[bool | None if is_flag else str | None, made]
    )


CONNECT_TIMEOUT = 10  # seconds for all servers of the DSN together, because a user waits at the terminal


def build_dsn(settings: Settings) -> str:
    """Return the database connection string of the settings, with a connect timeout added if it has none."""
    # The string is resolved.
    given = parse_dsn(resolve_dsn(settings.dsn))
    return make_conninfo("", **{"connect_timeout": str(connect_share(CONNECT_TIMEOUT, given)), **given})


def _format_option(parameter: inspect.Parameter) -> str:
    info = next(iter(getattr(parameter.annotation, "__metadata__", ())), None)
    if type(info).__name__ == "ArgumentInfo":
        return str(getattr(info, "metavar", None) or parameter.name)
    declared: list[Any] = [getattr(info, "default", None), *(getattr(info, "param_decls", None) or [])]
    long = (each for each in declared if isinstance(each, str) and each.startswith("--"))
    return next(long, f"--{parameter.name.replace('_', '-')}")
