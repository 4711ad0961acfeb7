"""Describe a declared class for comparison. The schema of the written events is narrower than the schemas of readable
and of stored events: a field with a default is always written, but may be missing when read."""

from typing import Any

from partbox.catalogue.comparison import EventForm
from partbox.catalogue.entries import format_choice
from partbox.classes.kinds import ClassKind, kind_of
from partbox.errors import RegistrationError
from partbox.events.declaration import EventType

JsonSchema = dict[str, Any]


def build_event_form(event: EventType) -> EventForm:
    """Describe an event class by its version, key and JSON Schemas, for comparison with earlier versions of the
    class."""
    # RegistrationError is raised if a field has no JSON Schema.
    read = event.build_json_schema()
    schema, written = _build_schemas(event, read)
    key, tenant = format_choice(event.key), format_choice(event.tenant)
    return EventForm(
        event.name, event.cls.__name__, event.version, event.aggregate_type, key, tenant, schema, written, read
    )


def _build_schemas(event: EventType, read: JsonSchema) -> tuple[JsonSchema, JsonSchema]:
    """Return two JSON Schemas of an event type: one for stored events, and one for newly written events."""
    # The stored events are in the log. The class writes the others now.
    if kind_of(event.cls) in (ClassKind.PYDANTIC, ClassKind.DATACLASS):
        return _build_pydantic_schema(event, always=False), _build_pydantic_schema(event, always=True)
    return read, read if _omits_defaults(event.cls) else require_all(read)


def _build_pydantic_schema(event: EventType, *, always: bool) -> JsonSchema:
    """Return the JSON Schema of the JSON that pydantic writes for an event class."""
    # The class is a pydantic model or dataclass. With `always`, fields with a default are required, too.
    from pydantic import PydanticInvalidForJsonSchema, TypeAdapter
    from pydantic.json_schema import GenerateJsonSchema

    class WrittenSchema(GenerateJsonSchema):
        def field_is_required(self, field: Any, total: bool) -> bool:
            if field["type"] == "typed-dict-field":
                return super().field_is_required(field, total)
            if field.get("serialization_exclude") or field.get("serialization_exclude_if"):
                return False
            return always or field["type"] == "computed-field" or field["schema"]["type"] != "default"

    try:
        return TypeAdapter(event.cls).json_schema(mode="serialization", schema_generator=WrittenSchema)
    except PydanticInvalidForJsonSchema as error:
        reason = str(error).partition("\n")[0]
        raise RegistrationError(f"{event.name} cannot be described as JSON Schema: {reason}") from None


def _omits_defaults(cls: Any) -> bool:
    from msgspec import inspect

    waiting, seen = [inspect.type_info(cls)], set[int]()
    while waiting:
        part: Any = waiting.pop()
        if isinstance(part, list | tuple):
            waiting.extend(part)
        elif isinstance(part, inspect.Type | inspect.Field) and id(part) not in seen:
            seen.add(id(part))
            if isinstance(part, inspect.StructType) and part.cls.__struct_config__.omit_defaults:
                return True
            waiting.extend(getattr(part, name) for name in part.__struct_fields__)
    return False


def require_all(schema: JsonSchema) -> JsonSchema:
    """Return a copy of a JSON Schema made by msgspec in which all fields of all objects are required."""
    parts = {name: _require_properties(each) for name, each in schema.get("$defs", {}).items()}
    return {**schema, "$defs": parts} if parts else _require_properties(schema)


def _require_properties(part: JsonSchema) -> JsonSchema:
    return {**part, "required": list(part["properties"])} if "properties" in part else part
