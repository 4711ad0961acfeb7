"""Options that several commands share."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, TypeVar

import typer

from partbox.cli.shell.flags import build_dsn, load_settings
from partbox.db.operator.actions import acting_as
from partbox.db.schema.grants import Roles
from partbox.duration import seconds
from partbox.errors import PartboxError
from partbox.operations.session import OperatorCommands
from partbox.settings import Settings
from partbox.text.printing import escape_unprintable

Verbs = TypeVar("Verbs", bound=OperatorCommands)


def option(metavar: str, help: str, *names: str, min: int | None = None, max: int | None = None) -> Any:
    """Declare a command-line option with a value."""
    # By default its name is that of the annotated parameter.
    return typer.Option(*names, metavar=metavar, help=help, min=min, max=max)


def flag(help: str, *names: str) -> Any:
    """Declare a command-line option without a value, such as `--json`, and without a negative form (`--no-…`)."""
    return typer.Option(*names, help=help)


def argument(metavar: str, help: str) -> Any:
    """Declare a positional command-line argument. It is required if the annotated parameter has no default."""
    return typer.Argument(metavar=metavar, help=help)


def parse_duration(name: str, text: str) -> float:
    """Convert a duration that was typed for the option `name`, such as "2h", to seconds."""
    try:
        return seconds(text)
    except ValueError as error:
        raise PartboxError(f"{name} {text!r} is not a time: {error}") from None


Dsn = Annotated[
    str | None, option("DSN", "The database: postgresql://…, key=value pairs, or embedded: (else PARTBOX_DSN).")
]
Schema = Annotated[str | None, option("NAME", "The outbox's schema (else PARTBOX_SCHEMA, partbox).")]
Subscription = Annotated[str, option("NAME", "The consumer of the log.")]
Since = Annotated[
    str | None, option("TIME", "Only since this time, such as 2026-01-31T09:00Z, or 2h for the last two hours.")
]
Until = Annotated[str | None, option("TIME", "Only before this time, or 2h for two hours ago.")]
Group = Annotated[bool, flag("One line for each event type and error; numbers in errors are ignored.", "--group")]
Json = Annotated[bool, flag("Print JSON instead of a table.", "--json")]
Target = Annotated[str, argument("MODULE:OUTBOX", "The outbox, such as shop:outbox.")]
Yes = Annotated[bool, flag("Do not ask for confirmation.", "--yes", "-y")]


@dataclass(frozen=True, slots=True)
class DatabaseOptions:
    dsn: Dsn = None
    schema: Schema = None

    def load_settings(self, **flags: Any) -> Settings:
        return load_settings(flags={"dsn": self.dsn, "schema": self.schema, **flags})


@dataclass(frozen=True, slots=True)
class OutboxOptions(DatabaseOptions):
    """Command-line options that select the outbox, and `--json` for output as JSON."""

    json: Json = False

    def create_operations(self, kind: Callable[[Callable[[], str], Settings], Verbs]) -> Verbs:
        """Create an object with operator commands, such as `DeadRecords`, for the selected outbox."""
        # `kind` is its class.
        settings = self.load_settings()
        return kind(lambda: build_dsn(settings), settings)


@dataclass(frozen=True, slots=True)
class ActionOptions(OutboxOptions):
    """Command-line options that select the outbox, and `--reason`, which is recorded with the operator's action."""

    reason: Annotated[str | None, option("TEXT", "Why, such as a ticket: partbox actions shows it.")] = None


@dataclass(frozen=True, slots=True)
class RoleOptions:
    """Command-line options that name the database roles of publishers and workers that get privileges."""

    publisher_role: Annotated[list[str] | None, option("ROLE", "Grant a role what publishing needs; repeatable.")] = (
        None
    )
    worker_role: Annotated[list[str] | None, option("ROLE", "Grant a role what workers need; repeatable.")] = None

    @property
    def roles(self) -> Roles:
        return Roles(tuple(self.publisher_role or ()), tuple(self.worker_role or ()))


def print_granted(roles: Roles) -> None:
    # Nothing is printed if there are none.
    said = [f"to publish: {', '.join(roles.publishers)}"] * bool(roles.publishers)
    said += [f"to work: {', '.join(roles.workers)}"] * bool(roles.workers)
    if said:
        typer.echo(escape_unprintable(f"granted {'; '.join(said)}"))


def with_option_groups(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command so that the fields of its dataclass parameters become command-line options, and its actions
    are recorded with the option `--reason`."""
    signature = inspect.signature(command)
    annotated = {name: each.annotation for name, each in signature.parameters.items()}
    bundles: dict[str, Any] = {name: kind for name, kind in annotated.items() if is_dataclass(kind)}
    parameters: list[inspect.Parameter] = []
    for name, each in signature.parameters.items():
        own = inspect.signature(bundles[name]).parameters.values() if name in bundles else [each]
        parameters += [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in own]

    @wraps(command)
    def run(**given: Any) -> Any:
        for name, bundle in bundles.items():
            given[name] = bundle(**{each.name: given.pop(each.name) for each in fields(bundle)})
        reasons = (each.reason for each in given.values() if isinstance(each, ActionOptions))
        with acting_as(None, reason=next(reasons, None)):
            return command(**given)

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run
