"""The conversion of a task's arguments to JSON and back. An argument that is left out gets its default at delivery. An
argument that would not survive JSON is refused at publishing, where the caller can fix it."""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NotRequired, cast, get_args, get_origin, get_type_hints

import orjson
from pydantic import ConfigDict, PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

# pydantic requires this TypedDict before Python 3.12.
from typing_extensions import TypedDict

from partbox.classes import UnreadableError
from partbox.classes.bridge import add_bridges
from partbox.errors import PayloadError, PublishError, RegistrationError
from partbox.events import DeliveredEvent
from partbox.handlers.annotations import Annotations
from partbox.handlers.argument_plan import UNKNOWN_STATE, can_be_state, format_annotation
from partbox.handlers.dependencies import find_dependencies
from partbox.text.printing import shorten_line

_NAMED_KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class _Supplied:
    def __repr__(self) -> str:
        return "partbox.supplied"

    def __reduce__(self) -> str:
        return "supplied"


supplied: Final[Any] = _Supplied()
"""The default of a task's parameter that the worker supplies: the event, or the state of the lifespan.

Type checkers then know that `publish` takes no such argument: `def welcome(email: str, state: State = supplied)`."""


class TaskArguments:
    """The parameters of a task's function, with the conversion of their values to JSON and back.

    The worker supplies the parameters in `dependencies` and `states`. RegistrationError is raised if the others cannot
    be sent as JSON. `state` is the class that the lifespan yields."""

    def __init__(self, function: Callable[..., Any], task: str, state: Any = UNKNOWN_STATE) -> None:
        self._task = task
        hints = _resolve_hints(function, task)
        self.dependencies = find_dependencies(Annotations(function, None, f"task {task!r}"))
        self.states: dict[str, Any] = {}
        self._event_parameter: str | None = None
        parameters: dict[str, inspect.Parameter] = {}
        for name, parameter in inspect.signature(function).parameters.items():
            if name in self.dependencies:
                continue
            _check_parameter(parameter, hints, task)
            hint = hints[name]
            if any((get_origin(each) or each) is DeliveredEvent for each in (hint, *get_args(hint))):
                self._event_parameter = name
            elif parameter.default is supplied or (hint == state and can_be_state(state)):
                _check_state(name, hint, state, task)
                self.states[name] = hint
            else:
                parameters[name] = parameter.replace(annotation=hint)
        try:
            self._type_adapter = _build_type_adapter(parameters.values(), task)
        except RegistrationError:
            # A lifespan that is registered later may yield this class.
            guess = _guess_state(parameters.values(), task) if state is UNKNOWN_STATE else None
            if guess is None:
                raise
            self.states[guess] = parameters.pop(guess).annotation
            self._type_adapter = _build_type_adapter(parameters.values(), task)
        self._parameters = parameters

    def name_arguments(self, given: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a task call by name. Raise PublishError if one is given twice or there are too many.

        Those that the worker supplies do not count among arguments by position."""
        names = [each.name for each in self._parameters.values() if each.kind is not each.KEYWORD_ONLY]
        if len(given) > len(names):
            raise PublishError(
                f"task {self._task!r} was given {len(given)} arguments by position, and takes "
                f"{', '.join(names) or 'none'}: pass them by name, behind the connection"
            )
        by_position = dict(zip(names, given, strict=False))
        if twice := by_position.keys() & named.keys():
            raise PublishError(f"task {self._task!r} was given {min(twice)!r} twice: pass it by name alone")
        return {**by_position, **named}

    def build_payload(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a task call as a JSON object. Raise PublishError if they do not fit."""
        # The error never quotes a value.
        try:
            valid = self._type_adapter.validate_python(dict(given))
            plain = self._type_adapter.dump_python(valid, mode="json", by_alias=True, warnings="error")
        except ValidationError as error:
            raise PublishError(f"task {self._task!r} {self._describe_problem(error)}") from None
        except (PydanticSerializationError, ValueError) as error:
            raise PublishError(
                f"an argument of task {self._task!r} cannot be written as JSON ({type(error).__name__}): pass a value "
                "of its annotated type, and annotate bytes that are no text as pydantic.Base64Bytes"
            ) from None
        try:
            self._type_adapter.validate_json(self._type_adapter.dump_json(valid, by_alias=True))
        except ValidationError as error:
            raise PublishError(
                f"task {self._task!r} could not be delivered, as its JSON {self._describe_problem(error)}: "
                "annotate the argument with a type that can be read back from JSON"
            ) from None
        return cast(dict[str, Any], plain)

    def from_event(self, event: DeliveredEvent) -> dict[str, Any]:
        """Decode the arguments of a task call from its event. Raise PayloadError if they do not fit."""
        # The event itself is added if the function asks for it.
        try:
            given = self._type_adapter.validate_json(orjson.dumps(event.payload))
        except ValidationError as error:
            problem = self._describe_problem(error)
        else:
            return given if self._event_parameter is None else given | {self._event_parameter: event}
        raise PayloadError(f"the event does not fit task {self._task!r}, which {problem}")

    def _describe_problem(self, error: ValidationError) -> str:
        # The text names the first argument that does not fit the task's function, with the remedy and without the
        # value.
        first, *others = error.errors(include_url=False, include_input=False, include_context=False)
        location = ".".join(map(str, first["loc"]))
        more = f" (and {len(others)} more)" if others else ""
        if first["type"] == "missing" and len(first["loc"]) == 1:
            return f"lacks the argument {location!r}: give it{more}"
        if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
            return f"has no argument {location!r}: it takes {', '.join(self._parameters) or 'none'}{more}"
        return f"has a wrong argument {location!r}: {shorten_line(first['msg'], 200)}{more}"


def _resolve_hints(function: Callable[..., Any], task: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise RegistrationError(
            f"an annotation of task {task!r} cannot be resolved ({error}): define its type at module level, "
            "before the task"
        ) from error


def _check_parameter(parameter: inspect.Parameter, hints: Mapping[str, Any], task: str) -> None:
    if parameter.kind not in _NAMED_KINDS:
        raise RegistrationError(
            f"task {task!r} has the parameter `{parameter}`: each parameter must be passable by name"
        )
    if parameter.name not in hints:
        raise RegistrationError(f"parameter {parameter.name!r} of task {task!r} has no annotation: give it a type")


def _to_checkable_type(name: str, hint: Any, task: str) -> Any:
    """Return the type of a task's parameter in a form that pydantic can check."""
    # There are bridges for msgspec Structs and attrs classes.
    try:
        return add_bridges(hint)
    except UnreadableError as error:
        raise RegistrationError(f"parameter {name!r} of task {task!r} cannot be read back: {error}") from error


def _check_state(name: str, hint: Any, state: Any, task: str) -> None:
    if state is not UNKNOWN_STATE and hint != state:
        raise RegistrationError(
            f"task {task!r} asks for {format_annotation(hint)} as {name!r}, and the lifespan yields "
            f"{format_annotation(state)}: annotate the parameter with that class"
        )


def _guess_state(parameters: Collection[inspect.Parameter], task: str) -> str | None:
    """Return the name of the last parameter that cannot be sent as JSON and may be the state of the lifespan."""
    for each in reversed([*parameters]):
        if isinstance(each.annotation, type) and can_be_state(each.annotation):
            try:
                _build_type_adapter([each], task)
            except RegistrationError:
                return each.name
    return None


def _build_type_adapter(parameters: Collection[inspect.Parameter], task: str) -> TypeAdapter[dict[str, Any]]:
    types = {each.name: _to_checkable_type(each.name, each.annotation, task) for each in parameters}
    fields = {
        each.name: types[each.name] if each.default is each.empty else NotRequired[types[each.name]]
        for each in parameters
    }
    # The checker is no pydantic model, because an argument may have any name, even a name that models use.
    schema = cast(Any, TypedDict)("TaskArguments", fields)
    schema.__pydantic_config__ = ConfigDict(extra="forbid")
    try:
        return TypeAdapter(schema)
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        problem = str(error).partition("\n")[0]
        raise RegistrationError(
            f"an argument of task {task!r} has a type that cannot be checked ({problem}): use a dataclass, a pydantic "
            "model, a msgspec.Struct, an attrs class, or a plain type"
        ) from error
