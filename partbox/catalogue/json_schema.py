"""Read a JSON Schema in the form for comparison: references resolved, unions split, annotations removed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

Schema = Mapping[str, Any]

# Keywords that neither allow nor refuse a value. Keywords with the prefix `x-` do not either.
ANNOTATIONS: Final = frozenset({
    "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "discriminator",
    "$comment", "$id", "$schema", "$defs", "definitions",
})  # fmt: skip

# Names of JSON types for messages.
TYPE_WORDS: Final = {
    "string": "text", "integer": "an integer", "number": "a number", "boolean": "true or false", "null": "null",
    "array": "a list", "object": "an object",
}  # fmt: skip

_KINDS: Final = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
# Keywords that give a text a special form, such as a time.
FORM_KEYWORDS: Final = ("format", "contentEncoding")
# Holds keywords of an `allOf` that cannot be merged with the others.
UNMERGED_KEYWORD: Final = "allOf"


@dataclass(frozen=True, slots=True)
class SchemaNode:
    """A part of a JSON Schema with its references resolved, for the comparison of two schemas."""

    # `keywords` are the keywords of this part, with `allOf` merged and with references resolved in the `whole` schema.
    # `list_alternatives` splits unions.

    keywords: Schema
    whole: Schema

    @classmethod
    def of(cls, schema: Any, whole: Schema) -> "SchemaNode":
        """Convert a part of the JSON Schema `whole` into a SchemaNode, with its references resolved."""
        # True stands for anything, and False for nothing.
        if isinstance(schema, bool):
            return cls({} if schema else {"not": {}}, whole)
        keywords = {name: value for name, value in schema.items() if not _is_left_out(name)}
        parts = [*schema.get("allOf", ())]
        if "$ref" in schema:
            parts.append(resolve_reference(schema["$ref"], whole))
        for part in parts:
            keywords = _merge_keywords(keywords, cls.of(part, whole).keywords)
        return cls(keywords, whole)

    def build_part(self, schema: Any) -> "SchemaNode":
        """Convert another part of the same JSON Schema into a SchemaNode."""
        return SchemaNode.of(schema, self.whole)

    def list_alternatives(self) -> list["SchemaNode"]:
        """Split a union into its alternatives, each with at most one type."""
        # A part without unions has one alternative.
        for union in ("anyOf", "oneOf"):
            if union in self.keywords:
                rest = {name: value for name, value in self.keywords.items() if name != union}
                kept = rest.get(UNMERGED_KEYWORD, ())
                options = [self.build_part({**rest, "allOf": [*kept, option]}) for option in self.keywords[union]]
                return [each for option in options for each in option.list_alternatives()]
        return [SchemaNode(each, self.whole) for each in _split_types(self.keywords)]

    @property
    def type(self) -> str | None:
        """The JSON type that this part of the schema allows, or None for any type."""
        return self.keywords.get("type")

    @property
    def properties(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.keywords.get("properties", {})
        return found

    @property
    def required(self) -> set[str]:
        return set(self.keywords.get("required", ()))

    @property
    def values_text(self) -> str:
        """The values that this part of the schema allows, described for people, such as "text (date-time)"."""
        words = list(dict.fromkeys(each.own_values_text for each in self.list_alternatives()))
        return " or ".join(words)

    @property
    def own_values_text(self) -> str:
        kind = TYPE_WORDS.get(self.type or "", "anything")
        form = next((self.keywords[name] for name in FORM_KEYWORDS if name in self.keywords), None)
        return f"{kind} ({form})" if form else kind


def _is_left_out(name: str) -> bool:
    return name in ANNOTATIONS or name.startswith("x-") or name in ("$ref", "allOf")


def _merge_keywords(one: Schema, other: Schema) -> dict[str, Any]:
    # A value must fit both parts of the JSON Schema. Keywords with conflicting values are kept unmerged.
    merged = {**other, **one}
    for name in one.keys() & other.keys():
        if name == "properties":
            merged[name] = {**other[name], **one[name]}
        elif name == "required":
            merged[name] = [*one[name], *other[name]]
        elif one[name] != other[name]:
            merged[UNMERGED_KEYWORD] = [*merged.get(UNMERGED_KEYWORD, ()), {name: other[name]}]
    return merged


def resolve_reference(reference: str, whole: Schema) -> Any:
    """Return the part of a JSON Schema to which a reference (`#/…`) leads. Raise KeyError if there is none."""
    # The reference is inside the document.
    place: Any = whole
    for step in reference.removeprefix("#").split("/")[1:]:
        place = place[step.replace("~1", "/").replace("~0", "~")]
    return place


def read_description(schema: Schema) -> str:
    """Return the description of a JSON Schema, even if its root is only a reference to a part."""
    # pydantic 2.7 puts the reference into `allOf`.
    parts = [schema, *schema.get("allOf", ())]
    roots = (resolve_reference(each["$ref"], schema) for each in parts if "$ref" in each)
    return next((str(described) for each in (schema, *roots) if (described := each.get("description"))), "")


def _split_types(keywords: Schema) -> Iterator[Schema]:
    """Yield the keywords of a JSON Schema once for each type that they allow."""
    # Values of an enum are grouped by their types.
    if "const" in keywords:
        keywords = {**keywords, "enum": [keywords["const"]]}
    rest = {name: value for name, value in keywords.items() if name not in ("type", "enum", "const")}
    kinds = keywords.get("type")
    if "enum" in keywords:
        for kind in dict.fromkeys(map(json_type_of, keywords["enum"])):
            yield {**rest, "type": kind, "enum": [each for each in keywords["enum"] if json_type_of(each) == kind]}
    elif kinds is None:
        yield {**rest, "type": "object"} if "properties" in rest else rest
    else:
        for kind in [kinds] if isinstance(kinds, str) else kinds:
            yield {**rest, "type": kind}


def json_type_of(value: Any) -> str:
    """Return the JSON type of a Python value, such as "string" or "null"."""
    return "null" if value is None else _KINDS[type(value)]
