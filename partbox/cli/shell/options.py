"""Options that several commands share."""

from typing import Annotated

import typer

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
