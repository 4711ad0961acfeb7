"""`partbox config`: every setting, its value, where it comes from, and why."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import typer

from partbox.cli.shell.flags import load, typed
from partbox.cli.shell.options import OutboxOptions, bundled
from partbox.cli.shell.output import console, print_json, table
from partbox.cli.shell.target import load_target
from partbox.cli.views.settings_page import page
from partbox.settings import Settings, names

Target = Annotated[
    str | None,
    typer.Argument(
        metavar="[MODULE:OUTBOX]", show_default=False, help="Include the keywords of this outbox, such as shop:outbox."
    ),
]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print the documentation of all settings instead.")]

COLUMNS = ("setting", "value", "from", "meaning")


class ShownSetting(NamedTuple):
    """A setting as it is shown; `overruled`: other places that give it, the strongest first."""

    value: str
    origin: str
    overruled: tuple[str, ...]
    meaning: str


@bundled
def config(*, target: Target = None, outbox: OutboxOptions, markdown: Markdown = False) -> None:
    """Show every setting: its meaning, its value, the origin of that, and what it overrules; secrets are masked.

    Every setting is an option of all commands that use settings, such as --lease 10s or --pooler; an option comes
    before a keyword in code, which comes before PARTBOX_LEASE, then the file, then the default.

    Example: PARTBOX_LEASE=10s partbox config shop:outbox
    """
    if markdown:
        typer.echo(page(), nl=False)
        return
    shown = _shown(target, {"dsn": outbox.dsn, "schema": outbox.schema})
    if outbox.json:
        print_json({name: each._asdict() for name, each in shown.items()})
    else:
        rows = ((name, each.value, _why(each), each.meaning.replace("`", "")) for name, each in shown.items())
        console().print(table(COLUMNS, rows, whole=COLUMNS[:1]))


def _shown(target: str | None, flags: dict[str, str | None]) -> dict[str, ShownSetting]:
    if target is None:
        return {name: _setting(load(flags=flags), name, "keyword") for name in names()}
    database = load_target(target)._database.under(typed() | flags)
    shown = {name: _setting(database.settings, name, f"the keyword in {target}") for name in names()}
    if callable(database.dsn):
        shown["dsn"] = shown["dsn"]._replace(value="what a function gives", origin=f"the keyword in {target}")
    return shown


def _setting(found: Settings, name: str, keyword: str) -> ShownSetting:
    def called(origin: str) -> str:
        return keyword if origin == "keyword" else origin

    meaning = Settings.model_fields[names()[name]].description or ""
    value = found.shown(name)
    if name == "bell" and value != "off" and found.pooler and found.listen_dsn is None:
        value = f"{value}: off, behind a pooler without listen_dsn"
    return ShownSetting(value, called(found.origins[name]), tuple(map(called, found.overruled[name])), meaning)


def _why(shown: ShownSetting) -> str:
    """ "--lease, over the keyword in shop:outbox and PARTBOX_LEASE"."""
    return f"{shown.origin}, over {_listed(shown.overruled)}" if shown.overruled else shown.origin


def _listed(places: Sequence[str]) -> str:
    *before, last = places
    return f"{', '.join(before)} and {last}" if before else last
