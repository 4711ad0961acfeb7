"""OpenTelemetry's semantic conventions for messaging, and the providers, as tracing and metering use them."""

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

# Read at import, because an application may change `sys.path` later.
VERSION: Final = version("partbox")

Operation = messaging.MessagingOperationTypeValues
COUNT: Final = messaging.MESSAGING_BATCH_MESSAGE_COUNT
DESTINATION: Final = messaging.MESSAGING_DESTINATION_NAME
ERROR: Final = error_attributes.ERROR_TYPE
MESSAGE: Final = messaging.MESSAGING_MESSAGE_ID
PARTITION: Final = messaging.MESSAGING_DESTINATION_PARTITION_ID
SUBSCRIPTION: Final = messaging.MESSAGING_DESTINATION_SUBSCRIPTION_NAME

Provider = TypeVar("Provider")


def describe_operation(name: str, kind: Operation) -> dict[str, str]:
    """Return the OpenTelemetry attributes of a messaging operation, with partbox as the messaging system."""
    return {
        messaging.MESSAGING_SYSTEM: "partbox",
        messaging.MESSAGING_OPERATION_NAME: name,
        messaging.MESSAGING_OPERATION_TYPE: kind.value,
    }


def require_provider_factory(
    given: Provider | Callable[[], Provider] | None, what: str, observer: str
) -> Callable[[], Provider] | None:
    """Return the given function that creates an OpenTelemetry provider, or None. Raise PartboxError for a provider
    object."""
    # The function is called in each worker process. None stands for the global provider.
    # Raise PartboxError for a provider object, which cannot be pickled for another process.
    if given is None or callable(given):
        return given
    raise PartboxError(
        f"a {what} cannot be passed to worker processes: give {observer} a function that makes one, or set the "
        "global one in the module that the workers import"
    )
