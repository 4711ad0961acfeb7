"""Options that several commands share, alone or together."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, TypeVar

import typer

from partbox.cli.shell.flags import database, load
from partbox.operations.session import OperatorVerbs
from partbox.settings import Settings

Verbs = TypeVar("Verbs", bound=OperatorVerbs)

Dsn = Annotated[
    str | None,
    typer.Option(
        metavar="DSN",
        show_default=False,
        help="The database: postgresql://…, key=value pairs, or embedded: (else PARTBOX_DSN).",
    ),
]
Dsns = Annotated[
    list[str] | None,
    typer.Option(
        "--dsn",
        metavar="DSN",
        show_default=False,
        help="The database (else PARTBOX_DSN); repeatable; --processes applies to each.",
    ),
]
Schema = Annotated[
    str | None,
    typer.Option(metavar="NAME", show_default=False, help="The outbox's schema (else PARTBOX_SCHEMA, partbox)."),
]
PublisherRoles = Annotated[
    list[str] | None,
    typer.Option(
        "--publisher-role", metavar="ROLE", show_default=False, help="Grant a role what publishing needs; repeatable."
    ),
]
WorkerRoles = Annotated[
    list[str] | None,
    typer.Option(
        "--worker-role", metavar="ROLE", show_default=False, help="Grant a role what workers need; repeatable."
    ),
]
Subscription = Annotated[str, typer.Option(metavar="NAME", help="The consumer of the log.")]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        show_default=False,
        help="Only since then: a time such as 2026-01-31T09:00Z, or 2h for the last two hours.",
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        "--until", metavar="TIME", show_default=False, help="Only before then: a time, or 2h for two hours ago."
    ),
]
Group = Annotated[
    bool, typer.Option("--group", help="A line for each kind: one event type, one error but for numbers.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Target = Annotated[
    str,
    typer.Argument(metavar="MODULE:OUTBOX", show_default=False, help="The outbox, such as shop:outbox."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


@dataclass(frozen=True, slots=True)
class OutboxOptions:
    """The outbox that an operator's command works on, and the form of its answer."""

    dsn: Dsn = None
    schema: Schema = None
    json: Json = False

    def settings(self, **flags: Any) -> Settings:
        """The settings, under these options and more `flags` of the command."""
        return load(flags={"dsn": self.dsn, "schema": self.schema, **flags})

    def verbs(self, kind: type[Verbs]) -> Verbs:
        """The verbs of the operations of this kind, on its database."""
        settings = self.settings()
        return kind(lambda: database(settings), settings)


def bundled(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command, with an option for each field of a parameter that is a dataclass of options."""
    signature = inspect.signature(command)
    bundles: dict[str, Any] = {
        name: each.annotation for name, each in signature.parameters.items() if is_dataclass(each.annotation)
    }
    parameters: list[inspect.Parameter] = []
    for name, each in signature.parameters.items():
        kind = inspect.Parameter.KEYWORD_ONLY
        if name in bundles:
            parameters += [
                inspect.Parameter(option.name, kind, default=option.default, annotation=option.type)
                for option in fields(bundles[name])
            ]
        else:
            parameters.append(each.replace(kind=kind))

    @wraps(command)
    def run(**given: Any) -> Any:
        for name, bundle in bundles.items():
            given[name] = bundle(**{each.name: given.pop(each.name) for each in fields(bundle)})
        return command(**given)

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run
