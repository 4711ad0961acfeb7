"""Describe the events as a Markdown page for other teams."""

from collections.abc import Iterable, Iterator
from typing import Any

from partbox.catalogue.comparison import EventForm
from partbox.catalogue.entries import CatalogueEntry
from partbox.catalogue.json_schema import SchemaNode, read_description

_TABLE_HEAD = "| field | type | required | meaning |\n|---|---|---|---|"


def render_page(title: str, entries: Iterable[CatalogueEntry], forms: Iterable[EventForm]) -> str:
    """Build the Markdown page that describes the events of an outbox to other teams."""
    # Each event with a class has a table of its fields, in which nested fields appear with their paths.
    by_name = {form.name: form for form in forms}
    parts = [f"# Events of {_escape_cell(title)}"]
    for entry in entries:
        parts += [f"## {_escape_cell(entry.name)}", "\n".join(_list_fact_lines(entry))]
        if (form := by_name.get(entry.name)) is not None:
            if described := read_description(form.schema):
                parts += [_escape_cell(described)]
            parts += ["\n".join([_TABLE_HEAD, *_list_rows(SchemaNode.of(form.schema, form.schema))])]
    return "\n\n".join(parts) + "\n"


def _list_fact_lines(entry: CatalogueEntry) -> Iterator[str]:
    for name, value in (
        ("version", entry.version),
        ("aggregate type", entry.aggregate_type or "any"),
        ("key", entry.key or "none: events of this type have no order"),
        ("tenant", entry.tenant),
    ):
        if value and (entry.cls or name == "aggregate type"):
            yield f"- {name}: {_escape_cell(str(value))}"
    for row in entry.handlers:
        yield f"- handled in subscription {_escape_cell(row.subscription)} by `{row.handler}`"


def _list_rows(node: SchemaNode, path: str = "", depth: int = 4) -> Iterator[str]:
    for option in node.list_alternatives():
        for name, schema in option.properties.items():
            part, here = option.build_part(schema), f"{path}{name}"
            yield _format_row(here, part, schema, required=name in option.required)
            if depth:
                yield from _list_nested_rows(part, here, depth)


def _list_nested_rows(part: SchemaNode, path: str, depth: int) -> Iterator[str]:
    for option in part.list_alternatives():
        if option.type == "object":
            yield from _list_rows(option, f"{path}.", depth - 1)
        elif "items" in option.keywords:
            yield from _list_nested_rows(option.build_part(option.keywords["items"]), f"{path}[]", depth)


def _format_row(path: str, part: SchemaNode, schema: Any, *, required: bool) -> str:
    meaning = schema.get("description", "") if isinstance(schema, dict) else ""
    return (
        f"| `{path}` | {_escape_cell(_format_type(part))} | {'yes' if required else 'no'} | {_escape_cell(meaning)} |"
    )


def _format_type(part: SchemaNode) -> str:
    values = [repr(value) for option in part.list_alternatives() for value in option.keywords.get("enum", ())]
    return f"one of {', '.join(values)}" if values else part.values_text


def _escape_cell(text: str) -> str:
    """Escape a text for a cell of a Markdown table, as one line."""
    # Characters that have a meaning in a table or in HTML are replaced.
    return " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")
