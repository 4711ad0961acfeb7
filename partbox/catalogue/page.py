"""Describe the events as a Markdown page for other teams."""

from collections.abc import Iterable, Iterator
from typing import Any

from partbox.catalogue.comparison import EventForm
from partbox.catalogue.entries import CatalogueEntry
from partbox.catalogue.json_schema import SchemaNode, description

_TABLE_HEAD = "| field | type | required | meaning |\n|---|---|---|---|"


def page(title: str, entries: Iterable[CatalogueEntry], forms: Iterable[EventForm]) -> str:
    """Build the Markdown page that describes the events of an outbox to other teams."""
    # Each event with a class has a table of its fields, in which nested fields appear with their paths.
    by_name = {form.name: form for form in forms}
    parts = [f"# Events of {_cell_text(title)}"]
    for entry in entries:
        parts += [f"## {_cell_text(entry.name)}", "\n".join(_fact_lines(entry))]
        if (form := by_name.get(entry.name)) is not None:
            if described := description(form.schema):
                parts += [_cell_text(described)]
            parts += ["\n".join([_TABLE_HEAD, *_rows(SchemaNode.of(form.schema, form.schema))])]
    return "\n\n".join(parts) + "\n"


def _fact_lines(entry: CatalogueEntry) -> Iterator[str]:
    for name, value in (
        ("version", entry.version),
        ("aggregate type", entry.aggregate_type or "any"),
        ("key", entry.key or "none: its events have no order"),
        ("tenant", entry.tenant),
    ):
        if value and (entry.cls or name == "aggregate type"):
            yield f"- {name}: {_cell_text(str(value))}"
    for row in entry.handlers:
        yield f"- handled in subscription {_cell_text(row.subscription)} by `{row.handler}`"


def _rows(node: SchemaNode, path: str = "", depth: int = 4) -> Iterator[str]:
    for option in node.alternatives():
        for name, schema in option.properties.items():
            part, here = option.part(schema), f"{path}{name}"
            yield _row(here, part, schema, required=name in option.required)
            if depth:
                yield from _nested_rows(part, here, depth)


def _nested_rows(part: SchemaNode, path: str, depth: int) -> Iterator[str]:
    for option in part.alternatives():
        if option.type == "object":
            yield from _rows(option, f"{path}.", depth - 1)
        elif "items" in option.keywords:
            yield from _nested_rows(option.part(option.keywords["items"]), f"{path}[]", depth)


def _row(path: str, part: SchemaNode, schema: Any, *, required: bool) -> str:
    meaning = schema.get("description", "") if isinstance(schema, dict) else ""
    return f"| `{path}` | {_cell_text(_type_words(part))} | {'yes' if required else 'no'} | {_cell_text(meaning)} |"


def _type_words(part: SchemaNode) -> str:
    values = [repr(value) for option in part.alternatives() for value in option.keywords.get("enum", ())]
    return f"one of {', '.join(values)}" if values else part.words


def _cell_text(text: str) -> str:
    """Escape a text for a cell of a Markdown table, as one line."""
    # Characters that have a meaning in a table or in HTML are replaced.
    return " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")
