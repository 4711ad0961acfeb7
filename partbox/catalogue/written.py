"""The JSON Schema of what a class writes, which is narrower than that of what it reads: a default is always written."""

from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema


class _WrittenSchema(GenerateJsonSchema):
    def field_is_required(self, field: Any, total: bool) -> bool:
        if self.mode != "serialization" or field["type"] == "typed-dict-field":
            return super().field_is_required(field, total)
        return not (field.get("serialization_exclude") or field.get("serialization_exclude_if"))


def by_pydantic(cls: Any) -> dict[str, Any]:
    """The schema of a model, or a dataclass."""
    return TypeAdapter(cls).json_schema(mode="serialization", schema_generator=_WrittenSchema)
