"""Validated parameters of a request. PartboxError names the wrong one."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from partbox.errors import PartboxError
from partbox.operations.arguments import MAX_BIGINT

FILTERS = ("event_type", "aggregate_type", "aggregate_id", "older_than", "group")
FINDING = ("ended", "event_type", "tenant", "since", "until")
MOST = 500  # records of one action
LARGEST_BODY = 64 * 1024  # bytes

Id = Annotated[int, Field(strict=True, ge=1, le=MAX_BIGINT)]
Text = Annotated[str, StringConstraints(max_length=20_000)]


class ActionParams(BaseModel):
    """The parameters of an operator's action, from the body of a POST request."""

    # Each action uses the fields that it needs.

    model_config = ConfigDict(extra="forbid", frozen=True)

    subscription: Text = "default"
    records: Annotated[list[Id], Field(max_length=MOST)] = []
    filters: dict[str, Text] = {}
    reason: Text | None = None
    handler: Text = ""
    rate: Text | None = None
    at_once: Text | None = None
    value: Text | None = None
    event_type: Text | None = None
    tenant: Text | None = None

    @property
    def given_reason(self) -> str | None:
        """The reason that the operator has typed, or None if the field was left blank."""
        return (self.reason or "").strip() or None


def parse_action_params(body: bytes) -> ActionParams:
    try:
        made = ActionParams.model_validate(orjson.loads(body))
    except orjson.JSONDecodeError:
        raise PartboxError("the request is not JSON") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the request"
        raise PartboxError(f"{where}: {first['msg']}") from None
    for name, value in made.filters.items():
        # An ignored filter would make the action larger than intended.
        if name not in FILTERS:
            raise PartboxError(f"filters: {name[:40]!r} is not one of {', '.join(FILTERS)}")
        if not value:
            raise PartboxError(f"filters: {name} '' is empty: give it a value, or leave it out")
    return made


def read_filters(given: Mapping[str, str], names: Collection[str] = FILTERS) -> dict[str, str]:
    """Return the filters with these names from a URL query, without empty ones."""
    # The default names are the filters of dead records.
    return {name: given[name] for name in names if given.get(name)}


def parse_number(given: Mapping[str, str], name: str, default: Any = None) -> Any:
    text = given.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdecimal() or len(text) > 19:
        raise PartboxError(f"{name} {text[:40]!r} must be a whole number")
    return int(text)
