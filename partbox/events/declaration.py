"""Classes as types of events: `@partbox.event`, and what it keeps of a class.

    @partbox.event(aggregate_type="Order", key="order_id", version=2)
    class OrderPlaced(BaseModel):
        order_id: int
        total: Decimal

It belongs into the module of the domain, and needs no outbox. `event_types()` are all that have been imported.
"""

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
KeyChoice = str | tuple[str, ...] | Callable[[Any], Any]
"""An attribute by name, several of them, or a function of the instance."""

EVENT_MARK: Final = "__partbox_event__"
FIRST_VERSION: Final = 1
"""The version of an event that has none."""

_classes: dict[str, type] = {}


@dataclass(frozen=True, slots=True)
class EventType:
    """A class as a type of events.

    `key` chooses the aggregate id of an instance, `tenant` its tenant; None: it has none. `version` counts from 1.
    """

    name: str
    cls: type
    aggregate_type: str
    key: KeyChoice | None
    tenant: KeyChoice | None
    version: int

    def aggregate_id(self, event: Any) -> Identity:
        """The key of an instance; PublishError if it is None, or cannot be had."""
        assert self.key is not None
        found: Identity | None = _choose(self.key, event, f"the key of {self.name}")
        if found is None:
            raise PublishError(
                f"{_choice_text(self.key)} of {self.name} is None, and it is the key: flush first, so that the object "
                "has its id; for an event without order declare no key"
            )
        return found

    def tenant_id(self, event: Any) -> str | None:
        """The tenant of an instance; None without one. PublishError."""
        found = None if self.tenant is None else _choose(self.tenant, event, f"the tenant of {self.name}")
        return found if found is None else str(found)

    def json_schema(self) -> dict[str, Any]:
        """JSON Schema (draft 2020-12) of the payload. RegistrationError if a field has none."""
        try:
            return schema_of(self.cls)
        except TypeError as error:
            raise RegistrationError(f"{self.cls.__qualname__} cannot be described as JSON Schema: {error}") from error


@lru_cache(maxsize=1_000)
def dataschema(name: str, version: int | str) -> str:
    """The URI of a version of a type of events: the attribute `dataschema` of CloudEvents at the sinks."""
    return f"urn:partbox:{quote(name, safe='')}:{version}"


def type_name(field: str, value: str | Enum | type) -> str:
    """A type of events as its text: a declared class stands for its name, an Enum for its value. PublishError."""
    if not isinstance(value, type):
        return checks.kind(field, value)
    return _require_declaration(value).name


def declaration_of(event: Any) -> EventType:
    """The declaration of the class of an instance; PublishError, which quotes nothing of it, if it has none."""
    if isinstance(event, type):
        raise PublishError(f"{event.__qualname__} is a class: publish an instance of it")
    return _require_declaration(type(event))


def _require_declaration(cls: type) -> EventType:
    if (found := event_type_of(cls)) is not None:
        return found
    if (kind := kind_of(cls)) is None:
        raise PublishError(f"an Event is needed, not a {cls.__name__}: wrap it in partbox.Event")
    inherited = next((declared for each in cls.__mro__ if (declared := event_type_of(each)) is not None), None)
    inherits = "" if inherited is None else f" of its own (it inherits from {inherited.cls.__qualname__})"
    raise PublishError(
        f"{cls.__qualname__} is a {kind.value}, and no event{inherits}: decorate the class with @partbox.event, or "
        "give a type and its payload"
    )


def event_types() -> list[EventType]:
    """All that are declared in the modules imported so far, by name."""
    found = (event_type_of(cls) for _, cls in sorted(_classes.items()))
    return [each for each in found if each is not None]


def event_type_of(cls: Any) -> EventType | None:
    """The declaration of a class itself, not of one that it inherits from; None if it has none."""
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
    """Decorates a dataclass, pydantic model, msgspec.Struct or attrs class whose instances are published.

    `name` is the type of its events, the class's own name unless given. `key` is the attribute with the aggregate id,
    several in a tuple (their texts, with `/` between them), or a function of the instance; without one its events ask
    for no order. `tenant` chooses the tenant id likewise. `version` counts from 1: raise it with a change that readers
    of the old one cannot take, and register `outbox.upcast` for what is stored. RegistrationError for a class of no
    such kind, an attribute that it lacks, or a second class of that name.
    """
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
        name = checks.name("name", cls.__name__ if name is None else name)
        given["aggregate_type"] = checks.name("aggregate_type", given["aggregate_type"])
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
                f"the {what} of the event {cls.__qualname__} cannot be {name!r}, which it lacks: it has "
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
    """True if a class is still where its module defines it, and the new one is another, not that one made anew.

    A module is run again when it is reloaded, and under two names if it is the program.
    """
    module = sys.modules.get(old.__module__)
    found: Any = module
    for step in old.__qualname__.split("."):
        found = getattr(found, step, None)
    if found is not old:
        return False
    same_file = getattr(module, "__file__", None) == getattr(sys.modules.get(new.__module__), "__file__", "")
    return not (same_file and old.__qualname__ == new.__qualname__)


def _choose(choice: KeyChoice, event: Any, what: str) -> Any:
    try:
        if isinstance(choice, str):
            return getattr(event, choice)
        if callable(choice):
            return choice(event)
        found = [getattr(event, name) for name in choice]
    except Exception as error:
        raise PublishError(f"{what}, {_choice_text(choice)}, cannot be had: {type(error).__name__}: {error}") from error
    if None in found:
        return None
    return "/".join(_escape_part(checks.identity(what, each)) for each in found)


def _escape_part(text: str) -> str:
    """A part of a key, without the sign that stands between parts."""
    return text.replace("%", "%25").replace("/", "%2F")


def _choice_text(choice: KeyChoice) -> str:
    if isinstance(choice, str):
        return choice
    return getattr(choice, "__qualname__", repr(choice)) if callable(choice) else f"({', '.join(choice)})"
