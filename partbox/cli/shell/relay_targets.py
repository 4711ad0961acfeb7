"""The targets of `partbox relay`: that of the command line, else those of the settings, each with its sink."""

import typer
from pydantic import SecretStr

from partbox.errors import SettingsError
from partbox.settings import Settings
from partbox.settings.relay_target import WEBHOOKS, RelayTarget
from partbox.sinks import Sink, sink_of

NONE = "relay has no target: give --to, for example `partbox relay --to stdout:`, or [[partbox.relay]] in partbox.toml"
TOPIC = "--topic is that of --to, which is missing: targets of the settings have their own"


def chosen(settings: Settings, to: str | None, topic: str | None) -> tuple[RelayTarget, ...]:
    """The targets to send to, checked as far as possible without their brokers; SettingsError, BadParameter."""
    if to is None and topic is not None:
        raise typer.BadParameter(TOPIC)
    if to is None and not settings.relay:
        raise typer.BadParameter(NONE)
    given = settings.relay if to is None else (RelayTarget(to=to, topic=topic),)
    targets = tuple(_signed(target, settings.webhook_secret) for target in given)
    for number, target in enumerate(targets, 1):
        try:
            sink_to(target).check()
        except SettingsError as error:
            where = "" if to is not None else f"target {number} of relay (from {settings.origins['relay']}): "
            raise SettingsError(f"{where}{error}") from None
    return targets


def sink_to(target: RelayTarget) -> Sink:
    """The sink of a target; SettingsError."""
    return sink_of(target.to, target.topic, None if target.secret is None else target.secret.get_secret_value())


def _signed(target: RelayTarget, secret: str | None) -> RelayTarget:
    """The target with this secret, if it is a webhook without one of its own."""
    if secret is None or target.secret is not None or target.scheme not in WEBHOOKS:
        return target
    return target.model_copy(update={"secret": SecretStr(secret)})
