"""A target of the setting `relay`, to which `partbox relay` sends events of some types.

    [[partbox.relay]]
    types = ["OrderPlaced", "OrderPaid"]
    to = "kafka://broker:9092"
    topic = "orders"

As a text, for an environment variable, the setting is a JSON list of objects with the same keys."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError, field_validator, model_validator

from partbox.text.printing import shorten_line
from partbox.text.secrets import MASK, mask_url
from partbox.text.wording import format_hint

ANY: Final = "*"
WEBHOOKS: Final = ("http", "https")
FORM: Final = (
    "write [[partbox.relay]] and below it types, to and topic; as a string, a JSON list of objects with these keys"
)
_NAME = re.compile(r"[A-Za-z0-9._-]{1,60}")


class RelayTarget(BaseModel):
    """A target to which `partbox relay` sends events: the URL `to`, and the event types that are sent there.

    The type `"*"` stands for all types without another target. `topic` is a template; None stands for the default one.
    `secret` signs the requests of a webhook. `name` is the handler in logs and metrics, by default the URL's scheme."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, str_strip_whitespace=True)

    types: tuple[str, ...] = (ANY,)
    to: str
    topic: str | None = None
    secret: SecretStr | None = None
    name: str | None = None

    @property
    def scheme(self) -> str:
        """The lower-case scheme of the target's URL, such as "kafka" or "https"."""
        return self.to.partition(":")[0].lower()

    @property
    def handler(self) -> str:
        """The name of this target in logs and metrics. The default is the scheme of its URL."""
        return self.name or self.scheme

    def __str__(self) -> str:
        topic = f" (topic {self.topic})" if self.topic else ""
        secret = f" (secret {MASK})" if self.secret else ""
        return f"{', '.join(self.types)} to {mask_url(self.to)}{topic}{secret}"

    def __repr_args__(self) -> Any:
        yield from (("types", self.types), ("to", mask_url(self.to)), ("topic", self.topic), ("name", self.name))

    @field_validator("types")
    @classmethod
    def _check_types(cls, types: tuple[str, ...]) -> tuple[str, ...]:
        if not types:
            raise ValueError('names no types: leave types out, or write types = ["*"] for all types')
        for each in types:
            if not each:
                raise ValueError("has an empty type: name it, or leave it out")
            if ANY in each and each != ANY:
                raise ValueError(
                    f'has the type {shorten_line(each, 60)!r}, but only "*" alone is a wildcard: name each type'
                )
        return types

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str | None) -> str | None:
        if name is None or _NAME.fullmatch(name):
            return name
        raise ValueError(
            f"has the name {shorten_line(name, 60)!r}: use 1 to 60 letters of a to z, digits, '.', '_' and '-'"
        )

    @model_validator(mode="after")
    def _check_secret(self) -> "RelayTarget":
        if self.secret is not None and self.scheme not in WEBHOOKS:
            raise ValueError(
                f"has a secret, which only webhooks use, but sends to {mask_url(self.to)}: leave the secret out"
            )
        return self


def targets_of(value: object) -> tuple[RelayTarget, ...]:
    """Parse the setting `relay`, a list of tables or its JSON text, into targets. Raise ValueError if it is invalid."""
    # The error has one line without any secret.
    if isinstance(value, str):
        try:
            value = () if value.strip().lower() in ("", "none", "off") else json.loads(value)
        except (ValueError, RecursionError):
            raise ValueError(FORM) from None
    if not isinstance(value, Sequence) or isinstance(value, bytes):
        raise ValueError(FORM)
    targets = tuple(_parse_target(number, each) for number, each in enumerate(value, 1))
    _check_distinct("type", ((each, target.types) for each, target in enumerate(targets, 1)), "leave it to one of them")
    names = ((number, (target.handler,)) for number, target in enumerate(targets, 1))
    _check_distinct("name", names, 'give one of them another, such as name = "billing"')
    return targets


def _parse_target(number: int, value: object) -> RelayTarget:
    if isinstance(value, RelayTarget):
        return value
    if not isinstance(value, Mapping):
        raise ValueError(f"target {number} is no table: {FORM}")
    try:
        return RelayTarget.model_validate(dict(value))
    except ValidationError as error:
        raise ValueError(f"target {number} {_format_fault(error.errors(include_url=False)[0])}") from None


def _format_fault(error: Mapping[str, Any]) -> str:
    # The text follows "target 2". Only values that are no secret are quoted.
    key = str(error["loc"][0]) if error["loc"] else ""
    match error["type"]:
        case "value_error":
            return str(error["ctx"]["error"])
        case "missing":
            return 'does not say where to send: add a key such as to = "kafka://broker:9092"'
        case "extra_forbidden":
            return f"has an unknown key {shorten_line(key, 60)!r}: {format_hint(key, RelayTarget.model_fields)}"
        case _:
            form = 'a list of strings, such as ["OrderPlaced"]' if key == "types" else "a string"
            return f"has a wrong value for {key}: write {form}"


def _check_distinct(what: str, named: Iterable[tuple[int, Iterable[str]]], remedy: str) -> None:
    # `what` says which of the event types and the names is compared.
    first: dict[str, int] = {}
    for number, names in named:
        for name in names:
            if name in first:
                both = (
                    f"targets {first[name]} and {number} have" if first[name] != number else f"target {number} repeats"
                )
                raise ValueError(f"{both} the {what} {shorten_line(name, 60)!r}: {remedy}")
            first[name] = number
