"""Plan the arguments of a handler by its annotations, at registration.

    def f(event)                                   the event as it is published, also for `event: DeliveredEvent`
    def f(event: DeliveredEvent[OrderPlaced])      the event, with an OrderPlaced as its payload
    def f(order: OrderPlaced)                      the payload
    def f(order: OrderPlaced, event: DeliveredEvent)        both, in any order
    def f(order: OrderPlaced, state: State)        also the state, the class that the lifespan yields
    def f(order: OrderPlaced, db: Annotated[Session, Depends(session)])        also a value of a provider

A batch handler takes lists instead, such as `list[OrderPlaced]`. A transactional handler takes its connection or
session after these arguments. A handler that is registered for a class may ask for a base class of it, or for a union
with it. A handler that is registered for a name may ask for any dataclass, pydantic model, msgspec Struct or attrs
class."""

import inspect
import types
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin

from partbox.callables import Call, can_bind, describe_parameters, is_async
from partbox.classes import UnreadableError, kind_of, reader_of
from partbox.errors import RegistrationError
from partbox.events import DeliveredEvent
from partbox.events.declaration import event_type_of
from partbox.handlers import dependencies
from partbox.handlers.annotations import EMPTY, POSITIONAL, Annotations
from partbox.handlers.needs import Needs, split_arguments

ANY = "*"
ANYTHING = (EMPTY, Any, object)
UNKNOWN_STATE: Any = EMPTY
"""Stands for the class of the state while no lifespan has declared it."""


class EventPart(Enum):
    """The value that a handler's parameter receives: the plain event, the typed event or only the payload."""

    EVENT = "the event"
    TYPED_EVENT = "the event, with the class as its payload"
    PAYLOAD = "the class"


@dataclass(frozen=True, slots=True)
class ArgumentPlan:
    """A description of the arguments that a handler is called with for an event."""

    # `model` is the class of the payload, or None. `parts` has the form of the event for each parameter, and `needs`
    # has further needs, such as dependencies.

    model: Any
    parts: tuple[EventPart, ...]
    needs: Needs | None = None

    @property
    def trailing_arg(self) -> int:
        """The index of the handler's positional parameter that receives the database connection or session."""
        # The connection or session follows the event.
        return len(self.parts) if self.needs is None else self.needs.trailing_arg

    def build_arguments(self, event: DeliveredEvent) -> list[Any]:
        """Return the arguments with which the handler is called for an event."""
        # PayloadError or NewerVersionError is raised if its payload cannot be read.
        payload = None if self.model is None else event.payload_as(self.model)
        return [_build_part(part, event, payload) for part in self.parts]


def _build_part(part: EventPart, event: DeliveredEvent, payload: Any) -> Any:
    match part:
        case EventPart.EVENT:
            return event
        case EventPart.TYPED_EVENT:
            return event.with_payload(payload)
        case EventPart.PAYLOAD:
            return payload


@dataclass(frozen=True, slots=True)
class HandlerInput:
    """The details of a registration that decide which arguments a handler receives."""

    # `cls` is the class if the event type was given as a class. `trailing_arg` is the name of the connection or session
    # argument, or None.

    event_type: str
    cls: type | None
    trailing_arg: str | None
    is_batch: bool
    label: str

    @property
    def provided_names(self) -> tuple[str, ...]:
        """The names of the values that a handler's dependency providers may ask for, such as `event`."""
        # Another is `state`.
        return ("events" if self.is_batch else "event", "state", *([self.trailing_arg] if self.trailing_arg else []))


def plan_arguments(call: Call, handler_input: HandlerInput, state: Any = UNKNOWN_STATE) -> ArgumentPlan | None:
    """Find out from the annotations which arguments a handler takes. Return None if it takes only the event."""
    # RegistrationError is raised if the handler asks for an argument that it cannot get. `state` is the class that the
    # lifespan yields. While it is unknown, an annotation that can mean nothing else is taken as the state.
    try:
        annotations = Annotations(call, handler_input.cls, handler_input.label)
    except ValueError:
        # A builtin without a signature.
        return None
    reader = _ParameterReader(annotations, handler_input, dependencies.find_dependencies(annotations))
    try:
        argument_plan = reader.build_plan(state)
    except RegistrationError as error:
        if state is not UNKNOWN_STATE:
            raise RegistrationError(f"{error}; the lifespan yields {format_annotation(state)}") from error
        argument_plan = reader.guess_state()
        if argument_plan is None:
            raise
    if argument_plan is not None and argument_plan.needs is not None:
        needs = argument_plan.needs
        dependencies.check_dependencies(
            needs.dependencies, handler_input.provided_names, handler_input.label, is_async=is_async(call)
        )
    return argument_plan


@dataclass(frozen=True, slots=True)
class _ParameterReader:
    """A helper that chooses the argument for each parameter of a handler from the annotations."""

    # `dependencies` are the parameters that providers fill, by name.

    annotations: Annotations
    handler_input: HandlerInput
    dependencies: dict[str, Any]

    def guess_state(self) -> ArgumentPlan | None:
        """Return a plan that passes the application's state to one of the handler's parameters, or None if none
        fits."""
        # A later lifespan may declare the class of this parameter as its state.
        for candidate in self._list_state_candidates():
            with suppress(RegistrationError):
                argument_plan = self.build_plan(candidate)
                if argument_plan is not None and argument_plan.needs is not None:
                    return replace(argument_plan, needs=replace(argument_plan.needs, is_guess=True))
        return None

    def _list_state_candidates(self) -> Iterator[type]:
        for parameter in reversed(self._list_parameters_except(self.dependencies)):
            found = self.annotations.type_or_empty(parameter)
            if isinstance(found, type) and can_be_state(found):
                yield found

    def build_plan(self, state: Any) -> ArgumentPlan | None:
        """Return the plan of the handler's arguments, or None if the handler takes the event alone."""
        # `state` is the class of the lifespan's state. RegistrationError is raised if the arguments cannot be supplied.
        states = tuple(
            each.name for each in self._list_parameters_except(self.dependencies) if self._is_state(each, state)
        )
        parts, models, names = self._select_event_parts(self._list_parameters_except((*self.dependencies, *states)))
        needs = None
        if states or self.dependencies:
            if len(names) < len(parts) + (self.handler_input.trailing_arg is not None):
                raise RegistrationError(
                    f"{self.handler_input.label} must name each parameter, as it asks for more than its event"
                )
            needs = self._build_needs(names, states, state)
        if not models and needs is None:
            return None
        return ArgumentPlan(next(iter(models), None), parts, needs)

    def _select_event_parts(
        self, parameters: list[inspect.Parameter]
    ) -> tuple[tuple[EventPart, ...], list[Any], tuple[str, ...]]:
        handler_input = self.handler_input
        extra = 0 if handler_input.trailing_arg is None else 1
        signature = inspect.Signature(parameters)
        count = next((each for each in (1, 2) if can_bind(signature, each + extra)), 0)
        if not count:
            for each in parameters:
                # Raises a better error if an annotation cannot be resolved.
                self.annotations.type_of(each)
            raise RegistrationError(f"{handler_input.label} {describe_parameters(1 + extra)}")
        positional = [each for each in parameters if each.kind in POSITIONAL]
        annotations = [self.annotations.type_of(each) for each in positional[:count]]
        # `*args` may stand for the remaining parameters.
        annotations += [EMPTY] * (count - len(annotations))
        found = [_match_annotation(each, handler_input) for each in annotations]
        models = list(dict.fromkeys(model for _, model in found if model is not None))
        parts = tuple(part for part, _ in found)
        if count == 2 and (parts.count(EventPart.PAYLOAD) != 1 or len(models) != 1):
            raise RegistrationError(f"{handler_input.label} {describe_parameters(1 + extra)}")
        _check_readable(models, handler_input)
        return parts, models, tuple(each.name for each in positional[: count + extra])

    def _build_needs(self, names: tuple[str, ...], states: tuple[str, ...], state: Any) -> Needs:
        signature = self.annotations.signature
        numbers = dict.fromkeys(states, 0)
        numbers.update((name, number) for number, name in enumerate((*names, *self.dependencies), 1))
        positions, keywords = split_arguments(signature, numbers)
        trailing_arg = [*signature.parameters].index(names[-1])
        return Needs(
            positions,
            keywords,
            self.dependencies,
            self.handler_input.provided_names,
            trailing_arg,
            state if states else None,
        )

    def _list_parameters_except(self, names: Collection[str]) -> list[inspect.Parameter]:
        return [each for each in self.annotations.signature.parameters.values() if each.name not in names]

    def _is_state(self, parameter: inspect.Parameter, state: Any) -> bool:
        return state is not UNKNOWN_STATE and bool(self.annotations.type_or_empty(parameter) == state)


def can_be_state(cls: type) -> bool:
    """Return True if a parameter of this class may receive the object that the startup code (lifespan) yields."""
    # An event class, a builtin, or a connection or session of transactional handlers cannot be the state.
    room = cls.__module__.partition(".")[0]
    is_lent = room in ("psycopg", "sqlalchemy", "sqlmodel") and cls.__name__.endswith(("Connection", "Session"))
    return room != "builtins" and not is_lent and event_type_of(cls) is None


def _check_readable(models: list[Any], handler_input: HandlerInput) -> None:
    try:
        for model in models:
            reader_of(model)
    except UnreadableError as error:
        raise RegistrationError(
            f"{handler_input.label} asks for {format_annotation(models[0])}, which cannot be read: {error}"
        ) from error


EventMatch = tuple[EventPart, Any]
"""A form, and the class to read, or None for the plain event."""


def _match_annotation(annotation: Any, handler_input: HandlerInput) -> EventMatch:
    """Return the form of the event (plain, typed or payload) that a parameter's annotation asks for, and its class."""
    # The form is plain, typed, or payload. RegistrationError is raised if none or several fit.
    single = _list_item_of(annotation) if handler_input.is_batch else annotation
    matches = dict.fromkeys(
        found for each in _union_members_of(single) if (found := _match_member(each, handler_input)) is not None
    )
    if len(matches) == 1:
        return next(iter(matches))
    raise RegistrationError(f"{handler_input.label} {_describe_mismatch(annotation, handler_input)}")


def _list_item_of(annotation: Any) -> Any:
    if annotation in ANYTHING:
        return Any
    origin = get_origin(annotation) or annotation
    if isinstance(origin, type) and issubclass(list, origin):
        return next(iter(get_args(annotation)), Any)
    return None


def _union_members_of(annotation: Any) -> list[Any]:
    is_union = get_origin(annotation) in (Union, types.UnionType)
    return [each for each in get_args(annotation) if each is not type(None)] if is_union else [annotation]


def _match_member(annotation: Any, handler_input: HandlerInput) -> EventMatch | None:
    inside = get_args(annotation)[0] if get_origin(annotation) is DeliveredEvent else None
    if inside is not None and inside not in ANYTHING and not isinstance(inside, TypeVar):
        models = [model for each in _union_members_of(inside) if (model := _model_of(each, handler_input)) is not None]
        return (EventPart.TYPED_EVENT, models[0]) if models else None
    if inside is not None or annotation is DeliveredEvent or annotation in ANYTHING:
        return EventPart.EVENT, None
    if (model := _model_of(annotation, handler_input)) is not None:
        return EventPart.PAYLOAD, model
    is_open = isinstance(annotation, TypeVar) or getattr(annotation, "_is_protocol", False)
    return (EventPart.EVENT, None) if is_open else None


def _model_of(annotation: Any, handler_input: HandlerInput) -> Any:
    """Return the class into which the payload is decoded for a parameter, or None if its annotation does not fit."""
    # The result is None if the annotation does not fit the handler's event type.
    if handler_input.cls is not None:
        return handler_input.cls if annotation in handler_input.cls.__mro__ else None
    if kind_of(get_origin(annotation) or annotation) is None or handler_input.event_type == ANY:
        return None
    declared = event_type_of(annotation)
    return annotation if declared is None or declared.name == handler_input.event_type else None


def _describe_mismatch(annotation: Any, handler_input: HandlerInput) -> str:
    offered = handler_input.cls.__qualname__ if handler_input.cls is not None else None
    wanted = offered or "its class"
    if handler_input.is_batch and _list_item_of(annotation) is None:
        return (
            f"gets lists, and asks for {format_annotation(annotation)}: annotate the parameter with "
            f"list[{offered or 'DeliveredEvent'}]"
        )
    declared = next(
        (event_type_of(each) for each in _union_members_of(annotation) if event_type_of(each) is not None), None
    )
    if handler_input.event_type == ANY:
        return f"gets every type of event, and asks for {format_annotation(annotation)}: ask for a DeliveredEvent"
    if declared is not None:
        remedy = f"register it for {declared.cls.__qualname__}, or ask for {wanted} or a DeliveredEvent"
        return f"gets {handler_input.event_type!r}, and asks for {format_annotation(annotation)}: {remedy}"
    return (
        f"asks for {format_annotation(annotation)}, which no event provides: ask for a DeliveredEvent, a "
        f"DeliveredEvent[…] or {wanted}"
    )


def format_annotation(annotation: Any) -> str:
    """Return the text of a type annotation as it is written in Python code."""
    return annotation.__qualname__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)
