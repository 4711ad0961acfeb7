"""Upcasts: functions that convert the stored payload of one version into the payload of the next.

A payload of version 1 for a class of version 3 goes through the upcasts from 1 and from 2. A missing step is an error,
because fields may keep their names and change their meaning."""

from collections.abc import Callable
from typing import Any

from partbox.callables import is_async, name_of, place_of, takes
from partbox.errors import NewerVersionError, PayloadError, RegistrationError
from partbox.events.declaration import FIRST_VERSION, EventType, event_type_of

Upcast = Callable[[Any], Any]
Upcasts = dict[tuple[str, int], Upcast]


def add_upcast(upcasts: Upcasts, cls: Any, from_version: int, function: Any) -> None:
    """Register a function that converts payloads of `from_version` into the next version."""
    # RegistrationError is raised if its version leads nowhere or has an upcast already. The function is an upcast.
    declared = event_type_of(cls)
    if declared is None:
        raise RegistrationError(f"{cls!r} is no event class: decorate it with @partbox.event")
    where = f"the upcast of {declared.name!r} from version {from_version!r}"
    if type(from_version) is not int or not FIRST_VERSION <= from_version < declared.version:
        last = declared.version
        remedy = (
            f"give a version from {FIRST_VERSION} to {last - 1}" if last > FIRST_VERSION else "raise the version first"
        )
        raise RegistrationError(f"{where} leads nowhere, because {cls.__qualname__} has version {last}: {remedy}")
    if not callable(function) or is_async(function) or not takes(function, 1):
        raise RegistrationError(
            f"{where} must be a plain function that takes the payload and returns the next version's"
        )
    if (old := upcasts.get((declared.name, from_version))) is not None:
        raise RegistrationError(f"{where} exists already, as {name_of(old)} ({place_of(old)}): remove one")
    upcasts[declared.name, from_version] = function


def apply_upcasts(payload: Any, version: int, declared: EventType, upcasts: Upcasts) -> Any:
    """Convert an older payload, one version at a time, into the current version of its class."""
    # The current version is the version in the declaration.
    # PayloadError is raised if a step fails or is missing.
    for each in range(version, declared.version):
        upcast = upcasts.get((declared.name, each))
        if upcast is None:
            name = declared.cls.__name__
            raise PayloadError(
                f"the event has version {version}, and no upcast leads from version {each} to {each + 1} of {name}: "
                f"register @outbox.upcast({name}, from_version={each})"
            )
        try:
            payload = upcast(payload)
        except Exception as error:
            # The text of the exception is left out, because it may quote the payload.
            problem = f"failed ({type(error).__name__})"
        else:
            if payload is not None:
                continue
            problem = "returned None: return the payload of the next version"
        raise PayloadError(f"the event has version {version}, and the upcast from version {each} {problem}")
    return payload


def check_not_newer(version: int, declared: EventType) -> None:
    """Raise NewerVersionError if an event's version is newer than its declared class."""
    # The class then cannot read the event.
    if version > declared.version:
        raise NewerVersionError(
            f"the event has version {version}, newer than version {declared.version} of {declared.cls.__name__} here"
        )
