"""Makes the sink of a URL; its module is loaded only then."""

from importlib import import_module
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from partbox.errors import SettingsError
from partbox.settings.relay_target import WEBHOOKS
from partbox.sinks.sink import Sink
from partbox.sinks.topic import DEFAULT
from partbox.text.secrets import masked_url

KINDS: Final = {
    "stdout": ("lines", "StdoutSink"),
    "file": ("lines", "FileSink"),
    "kafka": ("kafka", "KafkaSink"),
    "amqp": ("amqp", "RabbitSink"),
    "amqps": ("amqp", "RabbitSink"),
    "nats": ("nats", "NatsSink"),
    "tls": ("nats", "NatsSink"),
    "redis": ("redis", "RedisSink"),
    "rediss": ("redis", "RedisSink"),
    "unix": ("redis", "RedisSink"),
    "http": ("webhook", "WebhookSink"),
    "https": ("webhook", "WebhookSink"),
    "sqs": ("sqs", "SqsSink"),
}
"""By scheme the module of this room and its class, which is made by `from_url(url, topic)`."""

SHOWN: Final = "kafka://…, amqp://…, nats://…, redis://…, https://…, sqs://REGION, file:PATH or stdout:"


def sink_of(url: str, topic: str | None = None, secret: str | None = None) -> Sink:
    """The sink of a URL; SettingsError in one line if there is none, or if its extra is not installed.

    `secret` signs the requests of webhooks; others ignore it.
    """
    scheme = _split(url).scheme
    if scheme not in KINDS:
        raise SettingsError(f"{masked_url(url)!r} is not a target for events: use {SHOWN}")
    module, name = KINDS[scheme]
    kind: Any = getattr(import_module(f"partbox.sinks.{module}"), name)
    signed = {"secret": secret} if scheme in WEBHOOKS else {}
    made: Sink = kind.from_url(url, DEFAULT if topic is None else topic, **signed)
    return made


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:
        raise SettingsError(f"{masked_url(url)!r} is not a URL ({error}): use {SHOWN}") from None
