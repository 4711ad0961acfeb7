"""Declare classes as event types, for example by `@partbox.event(aggregate_type="Order", key="order_id", version=2)`.
The declaration belongs in the domain module, and needs no outbox."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, partial
from typing import Any, Final, TypeVar, cast, overload
from urllib.parse import quote
from uuid import UUID

from partbox.classes import fields_of, kind_of, schema_of
from partbox.errors import PublishError, RegistrationError
from partbox.events import checks

Cls = TypeVar("Cls", bound=type)
Identity = str | int | UUID
# The name of an attribute, a tuple of names, or a function of the instance.
KeyChoice = str | tuple[str, ...] | Callable[[Any], Any]

EVENT_MARK: Final = "__partbox_event__"
# The version of an event that has none.
FIRST_VERSION: Final = 1

_classes: dict[str, type] = {}


@dataclass(frozen=True, slots=True)
class EventType:
    """The event type that a class was declared as, with its name, version and sources of the ids."""

    # `key` selects the aggregate id of an instance, and `tenant` its tenant id. None means that there is none.
    # `version` counts from 1.

    name: str
    cls: type
    aggregate_type: str
    key: KeyChoice | None
    tenant: KeyChoice | None
    version: int

    def read_aggregate_id(self, event: Any) -> Identity:
        """Return the aggregate id of an event instance. Raise PublishError if it is None or unreadable."""
        assert self.key is not None
        found: Identity | None = _read_choice(self.key, event, f"the key of {self.name}")
        if found is None:
            raise PublishError(
                f"{_format_choice(self.key)} of {self.name} is None, and it is the key: flush first, so that "
                "the object "
                "has its id; for an event without order declare no key"
            )
        return found

    def read_tenant_id(self, event: Any) -> str | None:
        """Return the tenant id of an event instance, or None. Raise PublishError if it cannot be read."""
        found = None if self.tenant is None else _read_choice(self.tenant, event, f"the tenant of {self.name}")
        return found if found is None else str(found)

    def build_json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema (draft 2020-12) of the payload. Raise RegistrationError if a field has none."""
        try:
            return schema_of(self.cls)
        except TypeError as error:
            raise RegistrationError(f"{self.cls.__qualname__} cannot be described as JSON Schema: {error}") from error


@lru_cache(maxsize=1_000)
def dataschema_of(name: str, version: int | str) -> str:
    """Return a URI that identifies an event type and its version."""
    # Sinks send it as the CloudEvents attribute `dataschema`.
    return f"urn:partbox:{quote(name, safe='')}:{version}"


def type_name_of(field: str, value: str | Enum | type) -> str:
    """Return the name of an event type given as a text, Enum or declared class. Raise PublishError for other values."""
    # A declared class stands for its name, an Enum for its value.
    if not isinstance(value, type):
        return checks.check_kind(field, value)
    return _require_declaration(value).name


def declaration_of(event: Any) -> EventType:
    """Return the event type declared for an instance's class. Raise PublishError if there is none."""
    # The error quotes nothing of the instance.
    if isinstance(event, type):
        raise PublishError(f"{event.__qualname__} is a class: publish an instance of it")
    return _require_declaration(type(event))


def _require_declaration(cls: type) -> EventType:
    if (found := event_type_of(cls)) is not None:
        return found
    if (kind := kind_of(cls)) is None:
        raise PublishError(f"an Event is needed, not a {cls.__name__}: wrap it in partbox.Event")
    inherited = next((declared for each in cls.__mro__ if (declared := event_type_of(each)) is not None), None)
    inherits = "" if inherited is None else f" (only its base class {inherited.cls.__qualname__} is)"
    raise PublishError(
        f"{cls.__qualname__} is a {kind.value}, but not declared as an event{inherits}: decorate the class with "
        "@partbox.event, or give a type and its payload"
    )


def list_event_types() -> list[EventType]:
    """Return the event types declared in all modules imported so far, sorted by name."""
    found = (event_type_of(cls) for _, cls in sorted(_classes.items()))
    return [each for each in found if each is not None]


def event_type_of(cls: Any) -> EventType | None:
    """Return the event type that the class itself was declared as, or None."""
    # Declarations of base classes do not count.
    return vars(cls).get(EVENT_MARK) if isinstance(cls, type) else None


@overload
def event(cls: Cls, /) -> Cls: ...


@overload
def event(
    *,
    name: str | None = None,
    aggregate_type: str | Enum = checks.GLOBAL,
    key: KeyChoice | None = None,
    tenant: KeyChoice | None = None,
    version: int = FIRST_VERSION,
) -> Callable[[Cls], Cls]: ...


def event(
    cls: Any = None,
    /,
    *,
    name: str | None = None,
    aggregate_type: str | Enum = checks.GLOBAL,
    key: KeyChoice | None = None,
    tenant: KeyChoice | None = None,
    version: int = FIRST_VERSION,
) -> Any:
    """Declare a dataclass, pydantic model, msgspec.Struct or attrs class as an event type.

    `name` is the event type, by default the name of the class. `key` is the attribute with the aggregate id, a tuple of
    attributes (their texts are joined with `/`), or a function of the instance. Without a key, the events have no
    order. `tenant` selects the tenant id in the same way. `version` counts from 1. Raise it with each change that
    readers of the old version cannot take, and register `outbox.upcast` for stored events. Raise RegistrationError for
    a class of another kind, for an attribute that the class lacks, or for a second class with the same name."""
    declare = partial(_declare, name=name, aggregate_type=aggregate_type, key=key, tenant=tenant, version=version)
    return declare if cls is None else declare(cls)


def _declare(cls: Any, *, name: str | None, **given: Any) -> Any:
    class_name = getattr(cls, "__qualname__", repr(cls))
    if kind_of(cls) is None:
        raise RegistrationError(
            f"{class_name} cannot be an event: make it a dataclass, a pydantic model, a msgspec.Struct or "
            f"an attrs class, "
            "with @partbox.event above the other decorators"
        )
    version = given["version"]
    if type(version) is not int or version < FIRST_VERSION:
        raise RegistrationError(
            f"version of the event {class_name} cannot be {version!r}: give a whole number from {FIRST_VERSION}"
        )
    try:
        name = checks.check_name("name", cls.__name__ if name is None else name)
        given["aggregate_type"] = checks.check_name("aggregate_type", given["aggregate_type"])
    except PublishError as error:
        raise RegistrationError(f"of the event {class_name}, {error}") from None
    for what in ("key", "tenant"):
        given[what] = _check_choice(what, given[what], cls)
    _register(EventType(name, cls, **given))
    return cls


def _check_choice(what: str, given: Any, cls: type) -> KeyChoice | None:
    if given is None or callable(given):
        return cast(KeyChoice | None, given)
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, list | tuple) else ()
    there = fields_of(cls)
    for name in names:
        if name not in there and not (isinstance(name, str) and hasattr(cls, name)):
            raise RegistrationError(
                f"the {what} of the event {cls.__qualname__} cannot be {name!r}, which the class lacks: it has "
                f"{', '.join(there) or 'no fields'}"
            )
    if not names:
        raise RegistrationError(
            f"the {what} of the event {cls.__qualname__} cannot be {given!r}: give the name of an attribute, a tuple "
            "of names, or a function of the instance"
        )
    return given if isinstance(given, str) else names


def _register(new: EventType) -> None:
    old = _classes.get(new.name)
    if old is not None and old is not new.cls and _is_still_defined(old, new.cls):
        raise RegistrationError(
            f"{new.name!r} is the event {old.__module__}.{old.__qualname__}, and cannot be {new.cls.__module__}."
            f"{new.cls.__qualname__} too: give one of them another name=, or leave the second undecorated and ask for "
            "it by a handler's annotation"
        )
    setattr(new.cls, EVENT_MARK, new)
    _classes[new.name] = new.cls


def _is_still_defined(old: type, new: type) -> bool:
    """Return True if `old` is still defined in its module and `new` is a different class."""
    # Both classes declare the same event type. `new` may be the same class, defined again, which gives False: a module
    # runs again when it is reloaded, and runs under two names if it is the main program.
    module = sys.modules.get(old.__module__)
    found: Any = module
    for step in old.__qualname__.split("."):
        found = getattr(found, step, None)
    if found is not old:
        return False
    same_file = getattr(module, "__file__", None) == getattr(sys.modules.get(new.__module__), "__file__", "")
    return not (same_file and old.__qualname__ == new.__qualname__)


def _read_choice(choice: KeyChoice, event: Any, what: str) -> Any:
    try:
        if isinstance(choice, str):
            return getattr(event, choice)
        if callable(choice):
            return choice(event)
        found = [getattr(event, name) for name in choice]
    except Exception as error:
        raise PublishError(
            f"{what}, {_format_choice(choice)}, cannot be read: {type(error).__name__}: {error}"
        ) from error
    if None in found:
        return None
    return "/".join(_escape_part(checks.check_identity(what, each)) for each in found)


def _escape_part(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F")


def _format_choice(choice: KeyChoice) -> str:
    if isinstance(choice, str):
        return choice
    return getattr(choice, "__qualname__", repr(choice)) if callable(choice) else f"({', '.join(choice)})"
