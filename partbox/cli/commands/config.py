"""`partbox config`: shows every setting, its value, and the origin of the value."""

from typing import Annotated, NamedTuple

import typer

from partbox.cli.shell.flags import load_settings, read_typed_flags
from partbox.cli.shell.options import OutboxOptions, argument, flag, with_option_groups
from partbox.cli.shell.output import build_table, make_console, print_json
from partbox.cli.shell.target import load_target
from partbox.protocol import retry
from partbox.settings import Settings, names
from partbox.settings.precedence import PREFIX

Target = Annotated[str | None, argument("[MODULE:OUTBOX]", "Include the keywords of this outbox, such as shop:outbox.")]
Markdown = Annotated[bool, flag("Print the documentation of all settings instead.", "--markdown")]

COLUMNS = ("setting", "value", "from", "meaning")


HEAD = """\
# Settings

This page is generated: `partbox config --markdown > docs/settings.md`.

A value is taken from the first place that gives one:

1. an option of the command line: every setting is one, such as `--lease 10s`, `--pooler` or `--no-pooler`
2. a keyword: `Outbox(lease="10s")`
3. the environment: `PARTBOX_LEASE=10s`; an empty variable counts as not set
4. a TOML file, the one that `PARTBOX_CONFIG` names, else `partbox.toml` in the current folder: its table `[partbox]`,
   or its top level if it has no such table
5. the default

An invalid value is an error that names the place it came from, and so is an unknown name. Only an unknown variable
`PARTBOX_…` is ignored, with a warning: Kubernetes adds some to every container beside a service of that name.
White space around a value, such as the line break at the end of a secret, is taken off; a file may begin with a byte
order mark.
`partbox config` shows every value, where it comes from and why, passwords masked; `partbox config shop:outbox` does so
for an outbox with its keywords. Durations are seconds, or texts such as `250ms`, `6s`, `5m`, `1h`, `7d`; sizes are
bytes, or texts such as `64MiB`. `none` and `off` stand for no value.

| setting | environment | default | meaning |
|---|---|---|---|
"""

RETRY = """
## Retry policies as text

```
{grammar}
```
"""

# Defaults that depend on the machine. The page must not show the values of the machine that generated it.
COMPUTED = {"node": "host name", "processes": "usable cores: by affinity, at most the cgroup's CPU quota"}


class ShownSetting(NamedTuple):
    """A setting as `partbox config` shows it: its value, its origin and its meaning.

    `overruled` are the other places that set it, in order of precedence."""

    value: str
    origin: str
    overruled: tuple[str, ...]
    meaning: str


@with_option_groups
def config(*, target: Target = None, outbox: OutboxOptions, markdown: Markdown = False) -> None:
    """Show every setting: meaning, value, origin of the value, and overruled places. Secrets are masked.

    Every setting is an option of all commands that use settings, such as --lease 10s or --pooler. An option takes
    precedence over a keyword in code, which takes precedence over PARTBOX_LEASE, then the file, then the default.

    Example: PARTBOX_LEASE=10s partbox config shop:outbox
    """
    if markdown:
        typer.echo(render_page(), nl=False)
        return
    shown = _list_settings(target, {"dsn": outbox.dsn, "schema": outbox.schema})
    if outbox.json:
        print_json({name: each._asdict() for name, each in shown.items()})
    else:
        rows = ((name, each.value, _format_origin(each), each.meaning.replace("`", "")) for name, each in shown.items())
        make_console().print(build_table(COLUMNS, rows, whole=COLUMNS[:1]))


def _list_settings(target: str | None, flags: dict[str, str | None]) -> dict[str, ShownSetting]:
    if target is None:
        return {name: _describe_setting(load_settings(flags=flags), name, "keyword") for name in names()}
    database = load_target(target)._database.with_flags(read_typed_flags() | flags)
    shown = {name: _describe_setting(database.settings, name, f"the keyword in {target}") for name in names()}
    if callable(database.dsn):
        shown["dsn"] = shown["dsn"]._replace(value="what a function gives", origin=f"the keyword in {target}")
    return shown


def _describe_setting(found: Settings, name: str, keyword: str) -> ShownSetting:
    def name_origin(origin: str) -> str:
        return keyword if origin == "keyword" else origin

    meaning = Settings.model_fields[names()[name]].description or ""
    value = found.shown(name)
    if name == "bell" and value != "off" and found.pooler and found.listen_dsn is None:
        value = f"{value}, but off behind a pooler without listen_dsn"
    return ShownSetting(
        value, name_origin(found.origins[name]), tuple(map(name_origin, found.overruled[name])), meaning
    )


def _format_origin(shown: ShownSetting) -> str:
    # The text is, for example, "--lease, over the keyword in shop:outbox and PARTBOX_LEASE".
    if not shown.overruled:
        return shown.origin
    *before, last = shown.overruled
    return f"{shown.origin}, over {', '.join(before)} and {last}" if before else f"{shown.origin}, over {last}"


def render_page() -> str:
    """Return the page of the documentation that lists every setting, in Markdown."""
    rows = []
    for name, attribute in names().items():
        default = COMPUTED.get(name) or f"`{Settings().shown(name)}`"
        meaning = Settings.model_fields[attribute].description
        rows.append(f"| `{name}` | `{PREFIX}{name.upper()}` | {default} | {meaning} |\n")
    grammar = "\n".join(line[4:] for line in (retry.__doc__ or "").splitlines() if line.startswith("    "))
    return HEAD + "".join(rows) + RETRY.format(grammar=grammar)
