"""OpenTelemetry's semantic conventions as partbox uses them, and its providers in the processes of a node."""

from collections.abc import Callable
from importlib.metadata import version
from typing import Final, TypeVar

try:
    from opentelemetry.semconv._incubating.attributes import messaging_attributes as messaging
    from opentelemetry.semconv.attributes import error_attributes
except ModuleNotFoundError as missing:
    text = "tracing and metering need OpenTelemetry: pip install 'partbox[otel]'"
    raise ModuleNotFoundError(text, name=missing.name) from None

from partbox.errors import PartboxError

VERSION: Final = version("partbox")  # by the path of now, which an application may change

Operation = messaging.MessagingOperationTypeValues
COUNT: Final = messaging.MESSAGING_BATCH_MESSAGE_COUNT
DESTINATION: Final = messaging.MESSAGING_DESTINATION_NAME
ERROR: Final = error_attributes.ERROR_TYPE
MESSAGE: Final = messaging.MESSAGING_MESSAGE_ID
PARTITION: Final = messaging.MESSAGING_DESTINATION_PARTITION_ID
SUBSCRIPTION: Final = messaging.MESSAGING_DESTINATION_SUBSCRIPTION_NAME

Provider = TypeVar("Provider")


def operation(name: str, kind: Operation) -> dict[str, str]:
    """The attributes that every span of an operation has."""
    return {
        messaging.MESSAGING_SYSTEM: "partbox",
        messaging.MESSAGING_OPERATION_NAME: name,
        messaging.MESSAGING_OPERATION_TYPE: kind.value,
    }


def provider_factory(
    given: Provider | Callable[[], Provider] | None, what: str, observer: str
) -> Callable[[], Provider] | None:
    """The part of an observer that is sent to worker processes. PartboxError if it was given a provider itself."""
    if given is None or callable(given):
        return given
    raise PartboxError(
        f"a {what} does not travel to worker processes: give {observer} a function that makes one, or set the global "
        "one in the module that they import"
    )
