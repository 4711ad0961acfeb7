"""`partbox events`: the catalogue of an outbox's events, and a check that no change breaks a reader."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from partbox.catalogue import schema_files
from partbox.catalogue.asyncapi import build_asyncapi, make_target_function
from partbox.catalogue.comparison import EventForm
from partbox.catalogue.entries import CatalogueEntry, list_entries
from partbox.catalogue.event_form import build_event_form
from partbox.catalogue.page import render_page
from partbox.cli.shell.options import Json, Target, flag, option
from partbox.cli.shell.output import build_table, escape_line, make_console, print_json
from partbox.cli.shell.target import load_target
from partbox.errors import PartboxError
from partbox.events.declaration import list_event_types
from partbox.outbox import Outbox
from partbox.text.wording import format_count

LISTING = "list"
COLUMNS = ("event", "version", "aggregate type", "key", "handlers")
NOTHING = (
    "{target} knows no event: decorate a class with @partbox.event and import its module there, or register a handler, "
    'such as @outbox.on("OrderPlaced")'
)


class DefaultListGroup(TyperGroup):
    """A group in which the command `list` may be left out: `events shop:outbox` is `events list shop:outbox`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help", "-h"):
            args = [LISTING, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=DefaultListGroup,
    help="""The events of an outbox: `partbox events shop:outbox` lists them.

Example: partbox events shop:outbox

Example: partbox events check shop:outbox --against schemas""",
    no_args_is_help=True,
)

SchemaFolder = Annotated[
    Path | None, option("DIR", "Write a JSON Schema for each event to a folder, to be committed.", "--json-schema")
]
AsyncApiFile = Annotated[
    Path | None, option("FILE", "Write an AsyncAPI 3.0 document as JSON; - is the standard output.", "--asyncapi")
]
TopicTemplate = Annotated[
    str | None, option("TEMPLATE", "Topics of the AsyncAPI document (else the topics of the setting relay).", "--topic")
]
Markdown = Annotated[bool, flag("Print a Markdown page instead of a table.", "--markdown")]
Against = Annotated[Path, option("DIR", "The folder that --json-schema wrote.", "--against")]


@app.command(LISTING)
def list_(
    target: Target,
    json_schema: SchemaFolder = None,
    asyncapi: AsyncApiFile = None,
    topic: TopicTemplate = None,
    markdown: Markdown = False,
    json: Json = False,
) -> None:
    """List the events that a class declares by @partbox.event, or that handlers name. The word `list` may be left out.

    Each event is listed with its version, aggregate type and key, and the handlers that take it, by subscription. The
    classes of all modules that MODULE imports are known. Needs no database.

    Example: partbox events shop:outbox

    Example: partbox events shop:outbox --json-schema schemas

    Example: partbox events shop:outbox --asyncapi asyncapi.json
    """
    outbox = load_target(target)
    if topic is not None and asyncapi is None:
        raise typer.BadParameter("--topic is for --asyncapi, which is missing: add --asyncapi FILE")
    found = list_entries(list_event_types(), outbox.handlers.build_table())
    if json_schema is None and asyncapi is None:
        _print_catalogue(target, found, markdown=markdown, json=json)
        return
    if markdown or json:
        other = "--markdown" if markdown else "--json"
        raise typer.BadParameter(f"{other} prints, and another option writes a file: leave one of them out")
    if json_schema is not None:
        _write_schemas(target, json_schema)
    if asyncapi is not None:
        _write_asyncapi(target, outbox, asyncapi, topic)


@app.command()
def check(target: Target, against: Against, json: Json = False) -> None:
    """Compare the events with a folder of JSON Schemas, and fail if a change breaks a reader.

    Two readers may break: the new class, which reads old events from the log, and consumers that know the old form. A
    line names the event and field, the reader that the change breaks, and the remedy. A harmless change has a line,
    too. A new version with an upcast from the old one may change everything. Exit code 1 = something breaks. Changes
    nothing.

    Example: partbox events check shop:outbox --against schemas
    """
    outbox = load_target(target)
    kept = schema_files.read_schemas(against)
    changes = schema_files.find_changes(kept, _list_forms(target), _list_upcast_versions(outbox))
    broken = [change for change in changes if change.is_break]
    if json:
        print_json(changes)
    else:
        for change in changes:
            typer.echo(escape_line(change.text))
        fit = f"{format_count(len(kept), 'schema')} of {against}"
        breaks = f"{format_count(len(broken), 'change')} break{'s' if len(broken) == 1 else ''} a reader of {fit}"
        typer.echo(breaks if broken else f"all fits {fit}")
    if broken:
        raise typer.Exit(1)


def _print_catalogue(target: str, found: list[CatalogueEntry], *, markdown: bool, json: bool) -> None:
    if markdown and json:
        raise typer.BadParameter("--markdown and --json both print: leave one of them out")
    if json:
        print_json([entry.to_plain() for entry in found])
    elif markdown:
        typer.echo(render_page(target, found, map(build_event_form, list_event_types())), nl=False)
    elif found:
        make_console().print(build_table(COLUMNS, map(_build_cells, found), lines=True))
    else:
        typer.echo(NOTHING.format(target=target))


def _build_cells(entry: CatalogueEntry) -> tuple[str, ...]:
    several = {row.subscription for row in entry.handlers} - {"default"}
    handlers = [f"{row.handler} ({row.subscription})" if several else row.handler for row in entry.handlers]
    version = "-" if entry.version is None else str(entry.version)
    return entry.name, version, entry.aggregate_type or "any", entry.key or "-", "\n".join(handlers) or "-"


def _list_forms(target: str) -> list[EventForm]:
    found = [build_event_form(each) for each in list_event_types()]
    if not found:
        raise PartboxError(
            f"no module that {target} imports declares an event: decorate a class with @partbox.event, and import it"
        )
    return found


def _write_schemas(target: str, folder: Path) -> None:
    written, same = schema_files.write_schemas(folder, _list_forms(target))
    typer.echo(f"{format_count(written, 'schema')} written to {folder}, {same} unchanged")


def _write_asyncapi(target: str, outbox: Outbox, file: Path, topic: str | None) -> None:
    document = build_asyncapi(target, _list_forms(target), make_target_function(outbox.settings.relay, topic))
    if str(file) == "-":
        print_json(document)
        return
    schema_files.write_file(file, schema_files.encode_json(document))
    typer.echo(f"{file} written")


def _list_upcast_versions(outbox: Outbox) -> dict[str, set[int]]:
    # The result has the versions from which an upcast reads, by the name of the event.
    found: dict[str, set[int]] = {}
    for name, version in outbox.codecs.upcasts:
        found.setdefault(name, set()).add(version)
    return found
