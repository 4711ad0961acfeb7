"""The demand of a handler, by its annotations: the event, its payload as a class, or both, and what else it needs.
Decided at registration.

    def f(event)                                   the event, as it is published: most handlers, and nothing is done
    def f(event: DeliveredEvent)                   the same
    def f(event: DeliveredEvent[OrderPlaced])      the event, whose payload is an OrderPlaced
    def f(order: OrderPlaced)                      the payload
    def f(order: OrderPlaced, event: DeliveredEvent)        both, in any order
    def f(order: OrderPlaced, state: State)        also the state, the class that the lifespan yields
    def f(order: OrderPlaced, db: Annotated[Session, Depends(session)])        also what a provider gives

A list takes lists of them: `list[OrderPlaced]`. A transactional handler takes its connection or session behind. A
handler of a class may ask for a class above it, or for a union with it. A handler of a name may ask for any class of
the four kinds, also for one that is no event.
"""

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
"""In the place of the class of the state, where no lifespan tells it."""


class EventPart(Enum):
    """The form in which a parameter gets an event."""

    EVENT = "the event"
    TYPED_EVENT = "the event, with the class as its payload"
    PAYLOAD = "the class"


@dataclass(frozen=True, slots=True)
class ArgumentPlan:
    """The payload as `model`, None if it is not read, and the form in which each parameter gets it.

    `needs`: what the handler asks for beside the event, if it does.
    """

    model: Any
    parts: tuple[EventPart, ...]
    needs: Needs | None = None

    @property
    def trailing_arg(self) -> int:
        """The place, among the parameters that are no keywords, of the one behind those of the event."""
        return len(self.parts) if self.needs is None else self.needs.trailing_arg

    def of(self, event: DeliveredEvent) -> list[Any]:
        """What the parameters get of an event. Raises PayloadError, NewerVersionError."""
        payload = None if self.model is None else event.payload_as(self.model)
        return [_form_value(part, event, payload) for part in self.parts]


def _form_value(part: EventPart, event: DeliveredEvent, payload: Any) -> Any:
    match part:
        case EventPart.EVENT:
            return event
        case EventPart.TYPED_EVENT:
            return event.carrying(payload)
        case EventPart.PAYLOAD:
            return payload


@dataclass(frozen=True, slots=True)
class HandlerInput:
    """What a handler is registered for: a type by name, and the class if it was given by that.

    `trailing_arg`: the name of what follows, a connection or a session; None: nothing does. `is_batch`: the event's get
    lists.
    """

    event_type: str
    cls: type | None
    trailing_arg: str | None
    is_batch: bool
    label: str

    @property
    def given(self) -> tuple[str, ...]:
        """The names of what providers may take."""
        return ("events" if self.is_batch else "event", "state", *([self.trailing_arg] if self.trailing_arg else []))


def plan_arguments(call: Call, handler_input: HandlerInput, state: Any = UNKNOWN_STATE) -> ArgumentPlan | None:
    """Return the demand of a handler; None if it asks for the event alone. RegistrationError if it cannot be met.

    `state` is the class that the lifespan yields. While no lifespan tells, an annotation that can be nothing else is
    taken for the state.
    """
    try:
        annotations = Annotations(call, handler_input.cls, handler_input.label)
    except ValueError:  # a builtin that does not tell
        return None
    reader = _ParameterReader(annotations, handler_input, dependencies.found(annotations))
    try:
        argument_plan = reader.argument_plan(state)
    except RegistrationError as error:
        if state is not UNKNOWN_STATE:
            raise RegistrationError(f"{error}; the lifespan yields {annotation_text(state)}") from error
        argument_plan = reader.guess_state()
        if argument_plan is None:
            raise
    if argument_plan is not None and argument_plan.needs is not None:
        needs = argument_plan.needs
        dependencies.check(needs.dependencies, handler_input.given, handler_input.label, is_async=is_async(call))
    return argument_plan


@dataclass(frozen=True, slots=True)
class _ParameterReader:
    """The parameters of a handler; `dependencies` are those that providers fill, by name."""

    annotations: Annotations
    handler_input: HandlerInput
    dependencies: dict[str, Any]

    def guess_state(self) -> ArgumentPlan | None:
        """The demand if a lifespan that is not registered yet tells the right class; None if none could."""
        for candidate in self._state_candidates():
            with suppress(RegistrationError):
                argument_plan = self.argument_plan(candidate)
                if argument_plan is not None and argument_plan.needs is not None:
                    return replace(argument_plan, needs=replace(argument_plan.needs, is_guess=True))
        return None

    def _state_candidates(self) -> Iterator[type]:
        """Classes that may be that of the state."""
        for parameter in reversed(self._parameters_except(self.dependencies)):
            found = self.annotations.of_or_empty(parameter)
            if isinstance(found, type) and _can_be_state(found):
                yield found

    def argument_plan(self, state: Any) -> ArgumentPlan | None:
        """The demand where the state is of this class. RegistrationError if it cannot be met."""
        states = tuple(each.name for each in self._parameters_except(self.dependencies) if self._is_state(each, state))
        parts, models, names = self._event_parts(self._parameters_except((*self.dependencies, *states)))
        needs = None
        if states or self.dependencies:
            if len(names) < len(parts) + (self.handler_input.trailing_arg is not None):
                raise RegistrationError(
                    f"{self.handler_input.label} must name each parameter, as it asks for more than its event"
                )
            needs = self._needs(names, states, state)
        if not models and needs is None:
            return None
        return ArgumentPlan(next(iter(models), None), parts, needs)

    def _event_parts(
        self, parameters: list[inspect.Parameter]
    ) -> tuple[tuple[EventPart, ...], list[Any], tuple[str, ...]]:
        """The parts that these parameters ask for, the class, and the names of those and of what is behind them."""
        handler_input = self.handler_input
        extra = 0 if handler_input.trailing_arg is None else 1
        signature = inspect.Signature(parameters)
        count = next((each for each in (1, 2) if can_bind(signature, each + extra)), 0)
        if not count:
            for each in parameters:
                self.annotations.of(each)  # it may be one that cannot be resolved
            raise RegistrationError(f"{handler_input.label} {describe_parameters(1 + extra)}")
        positional = [each for each in parameters if each.kind in POSITIONAL]
        annotations = [self.annotations.of(each) for each in positional[:count]]
        annotations += [EMPTY] * (count - len(annotations))  # of a `*args`
        found = [_match_annotation(each, handler_input) for each in annotations]
        models = list(dict.fromkeys(model for _, model in found if model is not None))
        parts = tuple(part for part, _ in found)
        if count == 2 and (parts.count(EventPart.PAYLOAD) != 1 or len(models) != 1):
            raise RegistrationError(f"{handler_input.label} {describe_parameters(1 + extra)}")
        _check_readable(models, handler_input)
        return parts, models, tuple(each.name for each in positional[: count + extra])

    def _needs(self, names: tuple[str, ...], states: tuple[str, ...], state: Any) -> Needs:
        signature = self.annotations.signature
        numbers = dict.fromkeys(states, 0)
        numbers.update((name, number) for number, name in enumerate((*names, *self.dependencies), 1))
        positions, keywords = split_arguments(signature, numbers)
        trailing_arg = [*signature.parameters].index(names[-1])
        return Needs(
            positions, keywords, self.dependencies, self.handler_input.given, trailing_arg, state if states else None
        )

    def _parameters_except(self, names: Collection[str]) -> list[inspect.Parameter]:
        return [each for each in self.annotations.signature.parameters.values() if each.name not in names]

    def _is_state(self, parameter: inspect.Parameter, state: Any) -> bool:
        return state is not UNKNOWN_STATE and bool(self.annotations.of_or_empty(parameter) == state)


def _can_be_state(cls: type) -> bool:
    """False for events, Python's own classes, and what a handler gets that is transactional."""
    room = cls.__module__.partition(".")[0]
    is_lent = room in ("psycopg", "sqlalchemy", "sqlmodel") and cls.__name__.endswith(("Connection", "Session"))
    return room != "builtins" and not is_lent and event_type_of(cls) is None


def _check_readable(models: list[Any], handler_input: HandlerInput) -> None:
    try:
        for model in models:
            reader_of(model)
    except UnreadableError as error:
        raise RegistrationError(
            f"{handler_input.label} asks for {annotation_text(models[0])}, which cannot be read: {error}"
        ) from error


EventMatch = tuple[EventPart, Any]
"""A form, and the class that it needs; None for the plain event."""


def _match_annotation(annotation: Any, handler_input: HandlerInput) -> EventMatch:
    """The one answer to an annotation. RegistrationError if there is none, or several."""
    single = _list_item(annotation) if handler_input.is_batch else annotation
    matches = dict.fromkeys(
        found for each in _union_members(single) if (found := _match_member(each, handler_input)) is not None
    )
    if len(matches) == 1:
        return next(iter(matches))
    raise RegistrationError(f"{handler_input.label} {_describe_mismatch(annotation, handler_input)}")


def _list_item(annotation: Any) -> Any:
    """The annotation of what is in a list; None if it is none of a list."""
    if annotation in ANYTHING:
        return Any
    origin = get_origin(annotation) or annotation
    if isinstance(origin, type) and issubclass(list, origin):
        return next(iter(get_args(annotation)), Any)
    return None


def _union_members(annotation: Any) -> list[Any]:
    """The members of a union, without None; else the annotation alone."""
    is_union = get_origin(annotation) in (Union, types.UnionType)
    return [each for each in get_args(annotation) if each is not type(None)] if is_union else [annotation]


def _match_member(annotation: Any, handler_input: HandlerInput) -> EventMatch | None:
    inside = get_args(annotation)[0] if get_origin(annotation) is DeliveredEvent else None
    if inside is not None and inside not in ANYTHING and not isinstance(inside, TypeVar):
        models = [model for each in _union_members(inside) if (model := _model_of(each, handler_input)) is not None]
        return (EventPart.TYPED_EVENT, models[0]) if models else None
    if inside is not None or annotation is DeliveredEvent or annotation in ANYTHING:
        return EventPart.EVENT, None
    if (model := _model_of(annotation, handler_input)) is not None:
        return EventPart.PAYLOAD, model
    is_open = isinstance(annotation, TypeVar) or getattr(annotation, "_is_protocol", False)
    return (EventPart.EVENT, None) if is_open else None


def _model_of(annotation: Any, handler_input: HandlerInput) -> Any:
    """The class to read, if the annotation takes one that is offered."""
    if handler_input.cls is not None:
        return handler_input.cls if annotation in handler_input.cls.__mro__ else None
    if kind_of(get_origin(annotation) or annotation) is None or handler_input.event_type == ANY:
        return None
    declared = event_type_of(annotation)
    return annotation if declared is None or declared.name == handler_input.event_type else None


def _describe_mismatch(annotation: Any, handler_input: HandlerInput) -> str:
    """The reason and the remedy, behind the name of the handler."""
    offered = handler_input.cls.__qualname__ if handler_input.cls is not None else None
    wanted = offered or "its class"
    if handler_input.is_batch and _list_item(annotation) is None:
        return (
            f"gets lists, and asks for {annotation_text(annotation)}: annotate it with "
            f"list[{offered or 'DeliveredEvent'}]"
        )
    declared = next(
        (event_type_of(each) for each in _union_members(annotation) if event_type_of(each) is not None), None
    )
    if handler_input.event_type == ANY:
        return f"gets every type of event, and asks for {annotation_text(annotation)}: ask for a DeliveredEvent"
    if declared is not None:
        remedy = f"register it for {declared.cls.__qualname__}, or ask for {wanted} or a DeliveredEvent"
        return f"gets {handler_input.event_type!r}, and asks for {annotation_text(annotation)}: {remedy}"
    return (
        f"asks for {annotation_text(annotation)}, which no event is: ask for a DeliveredEvent, a "
        f"DeliveredEvent[…] or {wanted}"
    )


def annotation_text(annotation: Any) -> str:
    """An annotation as it is written."""
    return annotation.__qualname__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)
