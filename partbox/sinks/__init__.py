"""Sinks of events for brokers, webhooks and files (`Sink`), and sinks of dead events (`dead`). A sink is a batch
handler, and an event counts as handled when the broker has acknowledged it."""

from importlib import import_module
from typing import Any, Final
from urllib.parse import urlsplit

from partbox.errors import SettingsError
from partbox.settings.relay_target import WEBHOOKS
from partbox.sinks.message import DEFAULT, Message
from partbox.sinks.sink import Sink
from partbox.text.dsn import check_ports
from partbox.text.secrets import mask_url

__all__ = ["Message", "Sink", "sink_of"]

# The module in this package and the class, by URL scheme. The class makes a sink by `from_url(url, topic)`.
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

SHOWN: Final = "kafka://…, amqp://…, nats://…, redis://…, https://…, sqs://REGION, file:PATH or stdout:"


def sink_of(url: str, topic: str | None = None, secret: str | None = None) -> Sink:
    """Create the sink for a URL, which sends events to a broker, webhook or file. Raise SettingsError on failure.

    `topic` is the template for topics, and `secret` signs the requests of webhooks. The error is raised if the URL
    names no sink or the sink's extra is not installed."""
    # The error is in one line. The module of a kind of broker needs an extra of its own, so it is loaded with the first
    # sink of that kind.
    try:
        scheme = urlsplit(url).scheme
    except ValueError as error:
        raise SettingsError(f"{mask_url(url)!r} is not a URL ({error}): use {SHOWN}") from None
    if scheme not in KINDS:
        raise SettingsError(f"{mask_url(url)!r} is not a target for events: use {SHOWN}")
    module, name = KINDS[scheme]
    kind: Any = getattr(import_module(f"partbox.sinks.{module}"), name)
    signed = {"secret": secret} if scheme in WEBHOOKS else {}
    made: Sink = kind.from_url(url, DEFAULT if topic is None else topic, **signed)
    check_ports(url)
    return made
