"""Find the places where values of one JSON Schema do not fit another schema.

For a changed event, the search runs twice: for old events that the new class reads, and for new events that consumers
read by the old schema. A case that cannot be decided counts as a misfit, so an empty result can be relied on."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Any, Final, NamedTuple

from partbox.catalogue.json_schema import FORM_KEYWORDS, SchemaNode

Bound = tuple[float, int]


class MisfitKind(StrEnum):
    """A reason why a written value does not fit a JSON Schema, such as a wrong type or a missing field."""

    # Each kind has one remedy.

    TYPE = "type"
    # A value that an enum lacks.
    VALUE = "value"
    # A keyword such as `minimum` or `pattern`.
    RULE = "rule"
    MISSING = "missing"
    # A field that the reader knows and the writer lacks, required or not.
    GONE = "gone"
    REFUSED = "refused"
    # Fields without a name in the schema.
    OPEN = "open"


class Misfit(NamedTuple):
    """A place in a JSON Schema where written values may not fit the schema of their reader."""

    # `has` describes the values that the writer may write there, and `wants` the values that the reader accepts.

    path: str
    kind: MisfitKind
    has: str
    wants: str


_LOWER: Final = {"minLength": "maxLength", "minItems": "maxItems", "minProperties": "maxProperties"}
_BOUNDS: Final = {*_LOWER, *_LOWER.values(), "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
_STRUCTURE: Final = {"type", "enum", "properties", "required", "additionalProperties", "items", "prefixItems"}


@dataclass
class FitCheck:
    """A check whether a reader accepts all values that a writer may write, according to their JSON Schemas."""

    # With `from_log`, the reader is the new class and the writer the old class. A reader of the log must not begin to
    # refuse unknown fields. Consumers read fields by name, so they notice every field that is gone.

    from_log: bool
    _open_questions: set[tuple[str, str]] = field(default_factory=set)

    def find_misfits(self, writer: SchemaNode, reader: SchemaNode, path: str = "") -> list[Misfit]:
        """Return the places where values of the writer's schema do not fit the reader's schema."""
        # Each place appears once per kind of misfit.
        asked = repr(writer.keywords), repr(reader.keywords)
        # The schema contains itself by a reference. The part fits if everything else does.
        if asked in self._open_questions:
            return []
        self._open_questions.add(asked)
        try:
            found = [
                each
                for option in writer.list_alternatives()
                for each in self._find_best_match(option, writer, reader, path)
            ]
        finally:
            self._open_questions.discard(asked)
        return list(dict.fromkeys(found))

    def _find_best_match(self, option: SchemaNode, writer: SchemaNode, reader: SchemaNode, path: str) -> list[Misfit]:
        """Return the mismatches between one alternative of the writer's union and the reader's alternative that fits
        best."""
        # The alternative is part of the writer's union.
        near = [each for each in reader.list_alternatives() if _type_fits(each.type, option.type)]
        tried = [list(self._compare_type(option, each, path)) for each in near]
        return min(tried, key=len, default=[Misfit(path, MisfitKind.TYPE, writer.values_text, reader.values_text)])

    def _compare_type(self, writer: SchemaNode, reader: SchemaNode, path: str) -> Iterator[Misfit]:
        yield from _find_value_misfits(writer, reader, path)
        yield from _find_rule_misfits(writer, reader, path)
        if writer.type == "object":
            yield from self._compare_fields(writer, reader, path)
        elif writer.type == "array":
            yield from self._compare_items(writer, reader, path)

    def _compare_fields(self, writer: SchemaNode, reader: SchemaNode, path: str) -> Iterator[Misfit]:
        extra, accepted = _find_extra_schema(writer), reader.keywords.get("additionalProperties", True)
        for name, schema in writer.properties.items():
            if name in reader.properties:
                yield from self._compare_part(writer, schema, reader, reader.properties[name], f"{path}.{name}")
            elif accepted is False:
                yield Misfit(f"{path}.{name}", MisfitKind.REFUSED, "a field", "no other field")
            else:
                yield from self._compare_part(writer, schema, reader, accepted, f"{path}.{name}")
        for name, schema in reader.properties.items():
            yield from self._find_missing_fields(name, writer, reader, f"{path}.{name}")
            if name not in writer.properties and extra is not None and self.from_log:
                yield from self._compare_part(writer, extra, reader, schema, f"{path}.{name}")
        yield from self._open_fields(writer, extra, reader, accepted, path)

    def _find_missing_fields(self, name: str, writer: SchemaNode, reader: SchemaNode, path: str) -> Iterator[Misfit]:
        if name not in writer.properties and not self.from_log:
            yield Misfit(path, MisfitKind.GONE, "nothing", "a field")
        elif name in reader.required and name not in writer.required:
            yield Misfit(path, MisfitKind.MISSING, "a field" if name in writer.properties else "nothing", "a field")

    def _open_fields(
        self, writer: SchemaNode, extra: Any, reader: SchemaNode, accepted: Any, path: str
    ) -> Iterator[Misfit]:
        if accepted is False and writer.keywords.get("additionalProperties", True) is not False:
            if self.from_log or extra is not None:
                yield Misfit(path, MisfitKind.OPEN, "other fields", "no other field")
        elif accepted is not True and extra is not None:
            yield from self._compare_part(writer, extra, reader, accepted, f"{path}{{}}")

    def _compare_items(self, writer: SchemaNode, reader: SchemaNode, path: str) -> Iterator[Misfit]:
        most = writer.keywords.get("maxItems", inf)
        placed = max(len(each.keywords.get("prefixItems", ())) for each in (writer, reader))
        for index in range(int(min(placed, most))):
            yield from self._compare_part(
                writer, _find_item_schema(writer, index), reader, _find_item_schema(reader, index), f"{path}[{index}]"
            )
        if most > placed:
            yield from self._compare_part(
                writer, _find_item_schema(writer, None), reader, _find_item_schema(reader, None), f"{path}[]"
            )

    def _compare_part(self, writer: SchemaNode, written: Any, reader: SchemaNode, read: Any, path: str) -> list[Misfit]:
        return self.find_misfits(writer.build_part(written), reader.build_part(read), path)


def _type_fits(reader: str | None, writer: str | None) -> bool:
    return reader in (None, writer) or (writer, reader) == ("integer", "number")


def _find_value_misfits(writer: SchemaNode, reader: SchemaNode, path: str) -> Iterator[Misfit]:
    read = reader.keywords.get("enum")
    if read is not None:
        written = writer.keywords.get("enum")
        beyond = [each for each in written or () if each not in read]
        if written is None or beyond:
            yield Misfit(path, MisfitKind.VALUE, _join_values(beyond), _join_values(read))


def _join_values(values: list[Any]) -> str:
    return ", ".join(map(repr, values))


def _find_rule_misfits(writer: SchemaNode, reader: SchemaNode, path: str) -> Iterator[Misfit]:
    kept, asked = _bounds_of(writer, writer.keywords.get("enum")), _bounds_of(reader)
    for name in _TIGHTNESS:
        if kept[name] < asked[name]:
            yield Misfit(path, MisfitKind.RULE, *(_format_bound(name, each[name]) for each in (kept, asked)))
    for name, value in reader.keywords.items():
        if name in _BOUNDS | _STRUCTURE or _RULE_CHECKS.get(name, _is_same)(writer, name, value):
            continue
        if name in FORM_KEYWORDS:
            yield Misfit(path, MisfitKind.TYPE, writer.values_text, reader.values_text)
        else:
            yield Misfit(
                path, MisfitKind.RULE, _format_rule(name, writer.keywords.get(name)), _format_rule(name, value)
            )


def _format_rule(name: str, value: Any) -> str:
    return f"no {name}" if value is None else f"{name} {value}"


def _is_same(writer: SchemaNode, name: str, value: Any) -> bool:
    return bool(writer.keywords.get(name) == value)


def _matches_pattern(writer: SchemaNode, name: str, pattern: str) -> bool:
    values = writer.keywords.get("enum")
    if values is None:
        return _is_same(writer, name, pattern)
    try:
        return all(re.search(pattern, each) for each in values)
    except re.error:
        # The pattern uses syntax that Python does not know.
        return False


def _are_multiples(writer: SchemaNode, name: str, value: float) -> bool:
    own = writer.keywords.get("enum") or [writer.keywords.get(name)]
    return all(each is not None and each % value == 0 for each in own)


_RULE_CHECKS: Final[dict[str, Callable[[SchemaNode, str, Any], bool]]] = {
    "pattern": _matches_pattern,
    "multipleOf": _are_multiples,
    "uniqueItems": lambda writer, name, value: not value or _is_same(writer, name, value),
}

_TIGHTNESS: Final = ("minimum", "maximum", *_LOWER, *_LOWER.values())


def _bounds_of(node: SchemaNode, values: list[Any] | None = None) -> dict[str, Bound]:
    """Return the bounds of a JSON Schema by keyword, such as `minimum`, as numbers that are higher for tighter
    bounds."""
    # An exclusive bound is tighter. The values of a writer's enum count as bounds, too.
    words = node.keywords
    found = {
        "minimum": max(_read_bound(words, "minimum", 0), _read_bound(words, "exclusiveMinimum", 1)),
        "maximum": max(_read_bound(words, "maximum", 0, -1), _read_bound(words, "exclusiveMaximum", 1, -1)),
    }
    for lower, upper in _LOWER.items():
        found[lower] = max(_read_bound(words, lower, 0), (0.0, 0))
        found[upper] = _read_bound(words, upper, 0, -1)
    if values:
        low, high = ("minLength", "maxLength") if node.type == "string" else ("minimum", "maximum")
        sizes = [len(each) if node.type == "string" else each for each in values]
        if node.type in ("string", "integer", "number"):
            found[low], found[high] = max(found[low], (min(sizes), 0)), max(found[high], (-max(sizes), 0))
    # An integer above 0 is at least 1.
    if node.type == "integer":
        found |= {name: (int(each[0] // 1) + 1, 0) for name, each in found.items() if each[1]}
    return found


def _read_bound(words: Any, name: str, without: int, sign: int = 1) -> Bound:
    return (sign * words[name], without) if name in words else (-inf, 0)


def _format_bound(name: str, bound: Bound) -> str:
    value = -bound[0] if name.startswith("max") else bound[0]
    is_none = value in (inf, -inf) or (name in _LOWER and not value)
    return _format_rule(name, None if is_none else f"{value:g}{' (not included)' * bound[1]}")


def _find_extra_schema(writer: SchemaNode) -> Any:
    """Return the JSON Schema of fields that the writer may add to an object without naming them, or None if it adds
    none."""
    # A class adds none unless its schema says so. A schema without any named field is a mapping.
    given = writer.keywords.get("additionalProperties", None if writer.properties else True)
    return None if given is False else given


def _find_item_schema(node: SchemaNode, index: int | None) -> Any:
    placed = node.keywords.get("prefixItems", ())
    return placed[index] if index is not None and index < len(placed) else node.keywords.get("items", True)
