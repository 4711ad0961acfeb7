"""The settings: `Settings` declares them, and `load` reads their values from the places in `precedence`."""

import os
import socket
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
)

from partbox.cgroup import usable_processors
from partbox.duration import format_duration, seconds
from partbox.errors import SettingsError
from partbox.protocol import outage
from partbox.protocol.retry import Exponential, Jittered, RetryPolicy, policy_of
from partbox.settings import forms
from partbox.settings.precedence import SourcedValue, from_flags, from_keywords, sort_variables, sources, strays_text
from partbox.settings.relay_target import RelayTarget, targets_of
from partbox.text.dsn import mask_dsn as dsn_shown
from partbox.text.dsn import strip_text
from partbox.text.printing import shorten_line
from partbox.text.secrets import MASK, mask_secrets
from partbox.text.wording import format_hint

Duration = Annotated[float, BeforeValidator(seconds)]
Interval = Annotated[float, Field(gt=0), BeforeValidator(seconds)]
Count = Annotated[int, Field(ge=1)]
OptionalText = Annotated[str | None, BeforeValidator(forms.none_of_text)]
Blocking = Literal["block", "continue"]
Routing = Literal["dead", "ignore", "retry"] | Callable[[Any], Any]


class Settings(BaseModel):
    """All settings of partbox as immutable values.

    Durations are seconds. Call `load()` to read the values from keywords, environment and file; the class itself reads
    none."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_by_name=True,
        validate_default=True,
        arbitrary_types_allowed=True,
        hide_input_in_errors=True,
    )

    dsn: str | None = Field(default=None, description="the database: `postgresql://…`, key=value pairs, or `embedded:`")
    schema_name: Annotated[str, BeforeValidator(forms.schema_name)] = Field(
        default="partbox", alias="schema", description="the schema that holds the outbox; several can share a database"
    )
    enabled: bool = Field(default=True, description="false: publishing works, workers deliver nothing and say so")
    auto_migrate: bool = Field(default=False, description="create or migrate the schema at start")
    node: Annotated[str, BeforeValidator(forms.node_name)] = Field(
        default_factory=socket.gethostname, description="the name of this host in `partbox status`"
    )
    processes: Count = Field(default_factory=usable_processors, description="worker processes of a node")
    concurrency: Count = Field(default=4, description="handlers in progress in one process")
    event_loop: Annotated[Literal["asyncio", "uvloop"], BeforeValidator(forms.lower)] = Field(
        default="asyncio",
        description="the event loop of `async def` handlers: `asyncio`, or `uvloop` (with its extra)",
    )
    poll_busy: Interval = Field(default=0.001, description="time between two polls while events arrive")
    poll_idle: Interval = Field(default=0.040, description="longest time between two polls when no events arrive")
    page: Count = Field(default=10_000, description="most records that one poll reads")
    window: Count = Field(default=1_000, description="records read ahead of the saved cursor, per partition")
    window_bytes: ByteSize = Field(
        default=ByteSize(64 << 20),
        gt=0,
        description="bytes of records read ahead, per process; one larger event still passes",
    )
    max_parked: Count = Field(
        default=1_000,
        description="parked records of a partition at which reading pauses in an outage of all handlers",
    )
    spill_after: Count = Field(
        default=200,
        description="parked records of an aggregate; later ones wait in the log",
    )
    max_waiting: Count = Field(
        default=10_000_000,
        description="parked records of a subscription that are not finished; beyond that, reading pauses",
    )
    heartbeat: Interval = Field(
        default=1.0, description="time between two heartbeats of a node (more with over 100 nodes)"
    )
    lease: Interval = Field(default=6.0, description="how long a silent process keeps its partitions")
    drain_timeout: Duration = Field(default=15.0, description="how long a stopping process waits for running handlers")
    handler_timeout: Annotated[float | None, Field(gt=0), BeforeValidator(forms.optional_seconds)] = Field(
        default=None, description="how long a handler may run"
    )
    max_attempts: Annotated[int | None, Field(ge=1), BeforeValidator(forms.none_of_text)] = Field(
        default=20, description="calls of a handler for one event, the first included; `none` = for ever"
    )
    retry: Annotated[RetryPolicy, BeforeValidator(policy_of)] = Field(
        default=Jittered(Exponential(0.2, 600, 3)),
        description="the wait before an attempt, in all two hours (see below)",
    )
    on_failure: Blocking = Field(
        default="block", description="`block`: later events of the aggregate wait for a failed one; or `continue`"
    )
    on_dead: Blocking = Field(
        default="continue", description="`continue`: later events of the aggregate pass a dead one; or `block`"
    )
    circuit: Annotated[outage.ErrorNames | None, BeforeValidator(outage.parse_circuit)] = Field(
        default=outage.DEFAULT_ERRORS,
        description="errors that mean that a service called by a handler is down, or `off` (see handlers)",
    )
    on_unroutable: Annotated[Routing, BeforeValidator(forms.routing)] = Field(
        default="dead",
        description="what happens to an event without a handler: `dead`, `ignore` (the default of other subscriptions "
        "than `default`), `retry`; as a keyword also a function from event to outcome. An event newer than its class "
        "waits unless this is `dead` or a function",
    )
    max_payload: ByteSize = Field(default=ByteSize(1_048_576), gt=0, description="bytes of an encoded payload")
    error_limit: Count = Field(default=4_000, description="characters kept of a handler's error")
    retain_done: Duration = Field(default=7 * 86_400.0, description="how long handled records are kept, from publish")
    retain_size: Annotated[ByteSize | None, Field(gt=0), BeforeValidator(forms.none_of_text)] = Field(
        default=None,
        description="bytes of the log beyond which its oldest handled segments are emptied early; `none`: no limit",
    )
    retain_dead: Duration = Field(default=30 * 86_400.0, description="how long dead records are kept, from death")
    retain_keys: Duration = Field(default=7 * 86_400.0, description="how long idempotency keys are kept")
    retain_inbox: Duration = Field(default=30 * 86_400.0, description="how long inbox entries are kept")
    retain_history: Duration = Field(
        default=3 * 86_400.0,
        description="how long the progress of partitions, noted each minute, is kept; `0`: it is not noted",
    )
    retain_actions: Duration = Field(default=90 * 86_400.0, description="how long notes of operators' actions are kept")
    archive: Annotated[str | None, BeforeValidator(forms.archive_place), BeforeValidator(forms.none_of_text)] = Field(
        default=None,
        description="where records are written before they leave the log: a directory, or a URL such as "
        "`s3://bucket/prefix`; `none`: nowhere",
    )
    purge_interval: Interval = Field(default=3_600.0, description="time between two purges")
    purge_batch: Count = Field(default=500, description="rows one purge transaction deletes")
    metrics_prefix: Annotated[str, BeforeValidator(forms.metric_name)] = Field(
        default="partbox", description="the first part of every metric's name"
    )
    http: Annotated[str | None, BeforeValidator(forms.http_address), BeforeValidator(forms.none_of_text)] = Field(
        default=None, description="`host:port` of metrics, health checks and the live page, or `off`"
    )
    http_names: OptionalText = Field(
        default=None,
        description="other host names under which metrics and health checks may be requested, such as "
        "`outbox.example.org,proxy.example.org`; `*`: any (see metrics)",
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="how `partbox worker` and its processes log: `text`, or `json`, one object per line"
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(forms.lower)] = Field(
        default="info",
        description="the lowest level that is logged: `debug` (with the trace of every error that is retried), `info`, "
        "`warning`, `error`",
    )
    http_token: OptionalText = Field(
        default=None,
        description="the token that actions on the live page require: 16 or more letters, digits, `-`, `_`; a secret",
    )
    http_payloads: bool = Field(
        default=False, description="the holder of `http_token` may see payloads of events on the live page"
    )
    environment: Annotated[str | None, BeforeValidator(forms.environment), BeforeValidator(forms.none_of_text)] = Field(
        default=None, description="name and colour at the head of the live page, such as `production:red`"
    )
    trace_url: Annotated[str | None, BeforeValidator(forms.trace_url), BeforeValidator(forms.none_of_text)] = Field(
        default=None, description="the URL of an event's trace in your tracing tool: `https://HOST/PATH/{trace_id}`"
    )
    relay: Annotated[tuple[RelayTarget, ...], BeforeValidator(targets_of)] = Field(
        default=(), description="which event types `partbox relay` sends where, without `--to`: tables (see relay)"
    )
    webhook_secret: OptionalText = Field(
        default=None,
        description="the key that signs requests of `partbox relay` to webhooks without a `secret` of their own: "
        "`whsec_` and base64; a secret",
    )
    pooler: bool = Field(
        default=False, description="connections go through a transaction pooler: send no session options"
    )
    bell: Annotated[Literal["auto", "on", "off"], BeforeValidator(forms.on_or_off)] = Field(
        default="auto",
        description="whether publishers wake idle workers: `auto`: where nothing prevents it; `on`: also where the "
        "server allows prepared transactions, none of which may publish; `off`",
    )
    listen_dsn: OptionalText = Field(
        default=None, description="the same database without the pooler, where workers listen for wake-ups"
    )

    @field_validator("*", mode="before")
    @classmethod
    def _strip_value(cls, value: object) -> object:
        return strip_text(value) if isinstance(value, str) else value

    @field_validator("*")
    @classmethod
    def _check_characters(cls, value: object) -> object:
        return forms.without_control_characters(value)

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)
    _overruled: dict[str, tuple[str, ...]] = PrivateAttr(default_factory=dict)

    @property
    def origins(self) -> Mapping[str, str]:
        """The origin of each setting's value by external name: "default", "keyword", "PARTBOX_LEASE" and so on."""
        return {name: self._origins.get(name, "default") for name in names()}

    @property
    def overruled(self) -> Mapping[str, tuple[str, ...]]:
        """The places, such as a file, whose value of a setting was not used, by the setting's external name."""
        # A place of higher precedence overruled them. The places are in order of precedence.
        return {name: self._overruled.get(name, ()) for name in names()}

    def unroutable_in(self, subscription: str) -> "Routing":
        """Return the policy of a subscription for events that have no handler."""
        # It is the setting `on_unroutable`. If that is not set, other subscriptions than `default` ignore such events.
        return "ignore" if self._is_unroutable_unset and subscription != "default" else self.on_unroutable

    @property
    def on_newer(self) -> "Routing":
        """The policy for events whose version is newer than the handler's event class."""
        # The event waits, unless `on_unroutable` is set to another value than `ignore`.
        unset = self._is_unroutable_unset
        return "retry" if unset or self.on_unroutable == "ignore" else self.on_unroutable

    @property
    def _is_unroutable_unset(self) -> bool:
        # Every handler asks this, so not all origins are gathered for it.
        return self._origins.get("on_unroutable", "default") == "default"

    def shown(self, name: str) -> str:
        """Return the value of the setting with this external name as text for display, with secrets masked."""
        return _format_value(name, getattr(self, names()[name]))

    def replace(self, **keywords: Any) -> "Settings":
        """Return a copy of the settings with these values changed. Raise SettingsError if one is unknown or invalid."""
        return self._overlay_values(from_keywords(keywords))

    def under(self, flags: Mapping[str, Any]) -> "Settings":
        """Return a copy of the settings in which the given command-line options take precedence."""
        # None means that an option is not given.
        return self._overlay_values(from_flags(flags))

    def _overlay_values(self, given: "Mapping[str, SourcedValue]") -> "Settings":
        kept = {name: SourcedValue(getattr(self, names()[name]), origin) for name, origin in self._origins.items()}
        made = _merge_sources(kept, given)
        for name, others in self._overruled.items():
            made._overruled[name] = made._overruled.get(name, ()) + others
        return made

    def __repr_args__(self) -> Any:
        yield from ((name, self.shown(name)) for name in names())


def load(*, flags: Mapping[str, Any] | None = None, **keywords: Any) -> Settings:
    """Read all settings from command-line options, keywords, environment variables and the settings file.

    `flags` are the command-line options, where None means not given. Raise SettingsError, with place and remedy, for
    the first setting that is unknown or invalid. Unknown environment variables are ignored; `strays` lists them."""
    given = {name: value for name, value in keywords.items() if name != "dsn" or value is not None}
    return _merge_sources(*sources(flags or {}, given, names()))


def strays() -> str | None:
    """Return a one-line warning about environment variables that look like settings but are none, or None."""
    return strays_text(sort_variables(os.environ, names()).strays, names())


def names() -> dict[str, str]:
    """Return a dict from the external name of every setting to its attribute in `Settings`."""
    # The dict is in the order of declaration.
    return {field.alias or attribute: attribute for attribute, field in Settings.model_fields.items()}


def _merge_sources(*sources: Mapping[str, SourcedValue]) -> Settings:
    # Later places take precedence.
    given: dict[str, SourcedValue] = {}
    overruled: dict[str, tuple[str, ...]] = {}
    for name, each in (item for place in sources for item in place.items()):
        if name not in names():
            meant = format_hint(name, names(), "`partbox config` lists all settings")
            # The value is not shown, because it may be a secret.
            raise SettingsError(f"unknown setting {shorten_line(name, 60)!r} ({_format_origin(each.origin)}): {meant}")
        if name in given and given[name].origin != each.origin:
            overruled[name] = (given[name].origin, *overruled.get(name, ()))
        given[name] = each
    try:
        settings = Settings(**{name: value for name, (value, _) in given.items()})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        value, origin = given[name]
        shown, remedy = shorten_line(_format_value(name, value)), shorten_line(_find_remedy(first))
        raise SettingsError(f"setting {name} = {shown} ({_format_origin(origin)}) is invalid: {remedy}") from None
    settings._origins.update({name: origin for name, (_, origin) in given.items()})
    settings._overruled.update(overruled)
    _check_together(settings)
    return settings


def _find_remedy(error: Mapping[str, Any]) -> str:
    context = error.get("ctx", {})
    match error["type"]:
        case "value_error":
            return str(context["error"])
        case "literal_error":
            return f"use {context['expected']}"
        case "greater_than":
            return f"use more than {context['gt']:g}"
        case "greater_than_equal":
            return f"use {context['ge']} or more"
        case kind if kind.startswith("bool"):
            return "use true or false"
        case kind if kind.startswith("int"):
            return "use a whole number"
        case kind if kind.startswith("byte_size"):
            return 'use a number of bytes, or a text such as "64MiB"'
        case _:
            return str(error["msg"])[:1].lower() + str(error["msg"])[1:]


def _check_together(settings: Settings) -> None:
    longest, below = settings.lease / 3, "shorter than a third of"
    if not settings.heartbeat < longest:
        reason = "two heartbeats may be lost before a process is given up"
        raise _build_conflict_error(settings, "heartbeat", "lease", below, reason)
    if settings.poll_busy > settings.poll_idle:
        raise _build_conflict_error(
            settings, "poll_busy", "poll_idle", "at most as long as", "an idle process backs off"
        )
    if not settings.poll_idle < longest:
        raise _build_conflict_error(settings, "poll_idle", "lease", below, "a process that sleeps longer looks dead")


def _build_conflict_error(settings: Settings, name: str, other: str, must_be: str, reason: str) -> SettingsError:
    one, two = (
        f"{n} = {shorten_line(settings.shown(n))} ({_format_origin(settings.origins[n])})" for n in (name, other)
    )
    return SettingsError(f"{one} must be {must_be} {two}, because {reason}: lower {name} or raise {other}")


def _format_origin(origin: str) -> str:
    return "the default" if origin == "default" else f"from {shorten_line(origin, 60)}"


def _format_value(name: str, value: Any) -> str:
    if value is None:
        return "off" if name in ("http", "circuit") else "none"
    if name in _SECRETS:
        return MASK
    if name == "relay":
        # A value that could not be read as targets may hold a secret anywhere.
        is_read = isinstance(value, tuple) and all(isinstance(each, RelayTarget) for each in value)
        return ("; ".join(map(str, value)) or "none") if is_read else MASK
    if name in _DURATIONS and isinstance(value, float):
        return format_duration(value)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    text = dsn_shown(text) if name in ("dsn", "listen_dsn") else mask_secrets(text)
    return text if len(text) <= 200 else f"{text[:200]}…"


_SECRETS = frozenset({"http_token", "webhook_secret"})
_DURATIONS = frozenset(n for n, f in Settings.model_fields.items() if f.annotation in (float, float | None))
