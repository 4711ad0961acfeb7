"""`partbox relay`: runs the processes that send the log to a broker."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import typer
from pydantic import SecretStr

from partbox.cli.shell.node_options import NodeOptions, load_without_outbox
from partbox.cli.shell.options import option, with_option_groups
from partbox.codecs import Codecs
from partbox.errors import PartboxError, SettingsError
from partbox.handlers import Handlers
from partbox.operations import arguments
from partbox.operations.subscriptions import Subscriptions
from partbox.outbox import Outbox
from partbox.platform import require_workers
from partbox.protocol.retry import Exponential, Jittered, RetryPolicy
from partbox.settings import Settings
from partbox.settings.relay_target import WEBHOOKS, RelayTarget
from partbox.sinks import Sink, sink_of
from partbox.sinks.message import DEFAULT
from partbox.supervisor.nodes import Nodes

# A message that a broker refuses is tried for ever, and soon again once the broker takes it.
RETRY_POLICY = Jittered(Exponential(0.2, 60, 2))

To = Annotated[
    str | None,
    option(
        "URL",
        "The target: kafka://…, amqp://…, nats://…, redis://…, https://…, sqs://REGION, file:PATH, stdout: "
        "(else the targets of the setting relay).",
    ),
]
Topic = Annotated[
    str | None,
    option("TEMPLATE", f"Topic; may contain {{aggregate_type}}, {{event_type}}, {{tenant_id}} (else {DEFAULT})."),
]
Name = Annotated[str, option("NAME", "Created at the first start.", "--subscription")]
From = Annotated[
    str, option("beginning|now|TIME", "Where a new subscription starts; an existing one goes on.", "--from")
]


@with_option_groups
def relay(
    *, to: To = None, topic: Topic = None, subscription: Name = "relay", start: From = "beginning", node: NodeOptions
) -> None:
    """Send every event to a broker, in order per aggregate, until stopped.

    An event counts as sent when the broker has acknowledged it. While the broker is down, everything waits. An event
    becomes dead only if the broker refuses it for good. A consumer may see an event again, with the same id.

    Without --to each event type goes to the target that the setting relay has for it: a table partbox.relay for each
    target in partbox.toml, with types, to, topic, and perhaps secret and name. Types without a target are passed over.

    Example: partbox relay --to stdout: --dsn postgresql://localhost/shop
    """
    flags = node.collect_flags()
    settings = load_without_outbox(flags)
    targets, retry = choose_targets(settings, to, topic), choose_retry(settings)
    require_workers()
    # A mistyped position is wrong for every database, so it is refused before the first one is opened.
    arguments.parse_start_position(start)
    nodes = Nodes(
        Outbox()._database.with_flags(flags),
        *build_relay(targets, subscription, retry),
        subscription=subscription,
        load_handlers=partial(build_relay, targets, subscription, retry),
        dead_to=node.dead_to,
        prepare=partial(_ensure_subscription, name=arguments.check_subscription_name(subscription), start=start),
    )
    node.run_nodes(nodes)


def build_relay(
    targets: Sequence[RelayTarget], subscription: str, retry: RetryPolicy = RETRY_POLICY
) -> tuple[Handlers, Codecs]:
    """Return the sinks of the targets as handlers. Each worker process builds its own."""
    handlers = Handlers()
    for target in targets:
        sink = build_sink(target)
        for each in target.types:
            handlers.register(sink, each, None, subscription, retry=retry, max_attempts=None, name=target.handler)
    return handlers, Codecs()


def _ensure_subscription(subscriptions: Subscriptions, name: str, start: str) -> None:
    # Several nodes may start at once, so another one may create the subscription meanwhile.

    def exists() -> bool:
        return any(each.name == name for each in subscriptions.list())

    if not exists():
        try:
            subscriptions.create(name, start)
        except PartboxError:
            if not exists():
                raise


def choose_retry(settings: Settings) -> RetryPolicy:
    """Return the retry policy of a relay: the setting, or `RETRY_POLICY` if nothing has set it."""
    return RETRY_POLICY if settings.origins["retry"] == "default" else settings.retry


def choose_targets(settings: Settings, to: str | None, topic: str | None) -> tuple[RelayTarget, ...]:
    """Return the checked targets. Raise BadParameter if there is none, and SettingsError if a target is invalid."""
    # The brokers of the targets are not asked.
    if to is None and topic is not None:
        raise typer.BadParameter(
            "--topic goes with --to, which is missing: targets in the setting relay have topics of their own"
        )
    if to is None and not settings.relay:
        example = "for example `partbox relay --to stdout:`"
        raise typer.BadParameter(f"relay has no target: give --to, {example}, or [[partbox.relay]] in partbox.toml")
    given = settings.relay if to is None else (RelayTarget(to=to, topic=topic),)
    targets = tuple(_add_secret(target, settings.webhook_secret) for target in given)
    for number, target in enumerate(targets, 1):
        try:
            build_sink(target).check()
        except SettingsError as error:
            where = "" if to is not None else f"target {number} of relay (from {settings.origins['relay']}): "
            raise SettingsError(f"{where}{error}") from None
    return targets


def build_sink(target: RelayTarget) -> Sink:
    return sink_of(target.to, target.topic, None if target.secret is None else target.secret.get_secret_value())


def _add_secret(target: RelayTarget, secret: str | None) -> RelayTarget:
    if secret is None or target.secret is not None or target.scheme not in WEBHOOKS:
        return target
    return target.model_copy(update={"secret": SecretStr(secret)})
