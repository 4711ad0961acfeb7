"""What a handler asks for by its annotations: the event, its payload as a class, or both. Decided at registration.

    def f(event)                                   the event, as it is published: most handlers, and nothing is done
    def f(event: DeliveredEvent)                   the same
    def f(event: DeliveredEvent[OrderPlaced])      the event, whose payload is an OrderPlaced
    def f(order: OrderPlaced)                      the payload
    def f(order: OrderPlaced, event: DeliveredEvent)        both, in any order

A list takes lists of them: `list[OrderPlaced]`. A transactional handler takes its connection or session behind. A
handler of a class may ask for a class above it, or for a union with it. A handler of a name may ask for any class of
the four kinds, also for one that is no event.
"""

import inspect
import types
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin

from partbox.callables import Call, must_take, takes
from partbox.classes import UnreadableError, kind_of, reader_of
from partbox.errors import RegistrationError
from partbox.events import DeliveredEvent
from partbox.events.declaration import event_type_of
from partbox.handlers.annotations import annotations_of

ANY = "*"
ANYTHING = (inspect.Parameter.empty, Any, object)


class EventPart(Enum):
    """The form in which a parameter gets an event."""

    EVENT = "the event"
    CARRIER = "the event, with the class as its payload"
    PAYLOAD = "the class"


@dataclass(frozen=True, slots=True)
class Demand:
    """The payload as `model`, and the form in which each parameter gets it."""

    model: Any
    parts: tuple[EventPart, ...]

    def of(self, event: DeliveredEvent) -> list[Any]:
        """What the parameters get of an event. Raises PayloadError, NewerVersionError."""
        payload = event.payload_as(self.model)
        return [_formed(part, event, payload) for part in self.parts]


def _formed(part: EventPart, event: DeliveredEvent, payload: Any) -> Any:
    match part:
        case EventPart.EVENT:
            return event
        case EventPart.CARRIER:
            return event.carrying(payload)
        case EventPart.PAYLOAD:
            return payload


@dataclass(frozen=True, slots=True)
class Offer:
    """What a handler is registered for: a type by name, and the class if it was given by that.

    `extra`: how many parameters follow those that an event fills; `is_batch`: those get lists.
    """

    event_type: str
    cls: type | None
    extra: int
    is_batch: bool
    who: str


def demand_of(call: Call, offer: Offer) -> Demand | None:
    """What the handler asks for; None = the event and nothing else. RegistrationError if that cannot be met."""
    is_one = takes(call, 1 + offer.extra)
    annotations = annotations_of(call, 1 if is_one else 2, offer.cls, offer.who)
    found = [_asked(each, offer) for each in annotations]
    models = list(dict.fromkeys(model for _, model in found if model is not None))
    parts = tuple(part for part, _ in found)
    if not is_one and (parts.count(EventPart.PAYLOAD) != 1 or len(models) != 1):
        raise RegistrationError(f"{offer.who} {must_take(1 + offer.extra)}")
    if not models:
        return None
    try:
        reader_of(models[0])
    except UnreadableError as error:
        raise RegistrationError(f"{offer.who} asks for {_named(models[0])}, which cannot be read: {error}") from error
    return Demand(models[0], parts)


Answer = tuple[EventPart, Any]
"""A form, and the class that it needs; None for the plain event."""


def _asked(annotation: Any, offer: Offer) -> Answer:
    """The one answer to an annotation. RegistrationError if there is none, or several."""
    single = _of_list(annotation) if offer.is_batch else annotation
    answers = dict.fromkeys(found for each in _options(single) if (found := _answer(each, offer)) is not None)
    if len(answers) == 1:
        return next(iter(answers))
    raise RegistrationError(f"{offer.who} {_unmet(annotation, offer)}")


def _of_list(annotation: Any) -> Any:
    """The annotation of what is in a list; None if it is none of a list."""
    if annotation in ANYTHING:
        return Any
    origin = get_origin(annotation) or annotation
    if isinstance(origin, type) and issubclass(list, origin):
        return next(iter(get_args(annotation)), Any)
    return None


def _options(annotation: Any) -> list[Any]:
    """The members of a union, without None; else the annotation alone."""
    is_union = get_origin(annotation) in (Union, types.UnionType)
    return [each for each in get_args(annotation) if each is not type(None)] if is_union else [annotation]


def _answer(annotation: Any, offer: Offer) -> Answer | None:
    inside = get_args(annotation)[0] if get_origin(annotation) is DeliveredEvent else None
    if inside is not None and inside not in ANYTHING and not isinstance(inside, TypeVar):
        models = [model for each in _options(inside) if (model := _model(each, offer)) is not None]
        return (EventPart.CARRIER, models[0]) if models else None
    if inside is not None or annotation is DeliveredEvent or annotation in ANYTHING:
        return EventPart.EVENT, None
    if (model := _model(annotation, offer)) is not None:
        return EventPart.PAYLOAD, model
    is_open = isinstance(annotation, TypeVar) or getattr(annotation, "_is_protocol", False)
    return (EventPart.EVENT, None) if is_open else None


def _model(annotation: Any, offer: Offer) -> Any:
    """The class to read, if the annotation takes one that is offered."""
    if offer.cls is not None:
        return offer.cls if annotation in offer.cls.__mro__ else None
    if kind_of(get_origin(annotation) or annotation) is None or offer.event_type == ANY:
        return None
    declared = event_type_of(annotation)
    return annotation if declared is None or declared.name == offer.event_type else None


def _unmet(annotation: Any, offer: Offer) -> str:
    """The reason and the remedy, behind the name of the handler."""
    offered = offer.cls.__qualname__ if offer.cls is not None else None
    wanted = offered or "its class"
    if offer.is_batch and _of_list(annotation) is None:
        return f"gets lists, and asks for {_named(annotation)}: annotate it with list[{offered or 'DeliveredEvent'}]"
    declared = next((event_type_of(each) for each in _options(annotation) if event_type_of(each) is not None), None)
    if offer.event_type == ANY:
        return f"gets every type of event, and asks for {_named(annotation)}: ask for a DeliveredEvent"
    if declared is not None:
        remedy = f"register it for {declared.cls.__qualname__}, or ask for {wanted} or a DeliveredEvent"
        return f"gets {offer.event_type!r}, and asks for {_named(annotation)}: {remedy}"
    return (
        f"asks for {_named(annotation)}, which no event is: ask for a DeliveredEvent, a DeliveredEvent[…] or {wanted}"
    )


def _named(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)
