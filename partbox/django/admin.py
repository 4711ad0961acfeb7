"""The admin: the log, and dead records with replay and discard. Nothing can be added, changed or deleted."""

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.http import HttpRequest

from partbox.django import database, outbox
from partbox.django.conf import config
from partbox.django.models import Dead, Record
from partbox.errors import PartboxError
from partbox.text.secrets import mask_headers, mask_optional
from partbox.text.wording import format_count, format_names, shorten_text

# Records in a list. The log may be of any size and has no index for the list's queries.
RECENT = 10_000
# Named in each query, so that the primary key (partition, id) finds a record by its id.
PARTITIONS = [*range(256)]
DEFAULT = "default"
BRIEF = 120  # characters of an error in a list; the page of the record has the whole


class ReadOnly(admin.ModelAdmin):
    """The base class of partbox's read-only Django admin pages.

    - The pages read the database of the setting PARTBOX, even if a database router names another."""

    show_full_result_count = False
    actions_selection_counter = True

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    has_change_permission = has_delete_permission = has_add_permission

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).using(config().database)

    @admin.display(description="aggregate", ordering="aggregate_id")
    def aggregate(self, event: Record | Dead) -> str:
        return f"{event.aggregate_type} {event.aggregate_id or ''}"


class RecordList(ChangeList):
    """A page of the list of records, whose states are read by one query."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        states = database.read_states((each.partition, each.id) for each in self.result_list)
        for each in self.result_list:
            each.states = states[each.id]


@admin.register(Record)
class RecordAdmin(ReadOnly):
    """The Django admin page of event records: the newest records, and any other record by the id in its address."""

    list_display = ("id", "state", "event_type", "aggregate", "tenant_id", "created_at")
    search_fields = ("event_type__exact", "aggregate_id__exact", "event_id__exact")
    search_help_text = f"Type, aggregate id or event id, among the newest {RECENT:,} records."
    ordering = ("-id",)
    readonly_fields = ("state", "shown_headers")

    @admin.display(description="state")
    def state(self, record: Record) -> str:
        states = getattr(record, "states", None)
        if states is None:
            states = database.read_states([(record.partition, record.id)])[record.id]
        return _describe_states(states)

    def get_changelist(self, request: HttpRequest, **more: Any) -> type[ChangeList]:
        return RecordList

    @admin.display(description="headers")
    def shown_headers(self, record: Record) -> Any:
        return record.headers and mask_headers(record.headers)

    def get_queryset(self, request: HttpRequest) -> Any:
        found = super().get_queryset(request).filter(partition__in=PARTITIONS).defer("payload")
        if getattr(request.resolver_match, "kwargs", {}).get("object_id"):
            return found
        return found.filter(id__gt=database.highest_record_id() - RECENT)

    def get_exclude(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("headers",) if _may_see_payloads(request) else ("headers", "payload")

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        # A URL of the admin page can filter by payload and headers, which would reveal a value guess by guess.
        if lookup.partition("__")[0] in ("payload", "headers") and not _may_see_payloads(request):
            return False
        return bool(super().lookup_allowed(lookup, value, request))


class SubscriptionFilter(admin.SimpleListFilter):
    """A filter for the Django admin page of dead records, so that the page always shows a single subscription.

    A record may be dead in several subscriptions, and the record id is the key of the page."""

    title = "subscription"
    parameter_name = "subscription"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        names = Dead.objects.using(config().database).values_list("subscription", flat=True).distinct()
        return [(name, name) for name in sorted({*names} - {DEFAULT})]

    def choices(self, changelist: Any) -> Any:
        first, *others = super().choices(changelist)
        yield {**first, "display": DEFAULT}
        yield from others

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        # `DeadAdmin.get_queryset` has filtered already.
        return queryset


@admin.register(Dead)
class DeadAdmin(ReadOnly):
    """The Django admin page of dead records, with replay and discard for users with the permission."""

    list_display = ("record_id", "brief_error", "event_type", "aggregate", "attempts", "died_at", "blocks")
    list_filter = (SubscriptionFilter, "event_type", "blocks")
    search_fields = ("event_type__exact", "aggregate_id__exact", "error")
    ordering = ("record_id",)
    actions = ("replay", "discard")
    exclude = ("error", "traceback")
    readonly_fields = ("shown_error", "shown_traceback")

    @admin.display(description="error")
    def shown_error(self, record: Dead) -> str | None:
        # An import or an older version may have stored secrets in the error.
        return mask_optional(record.error)

    @admin.display(description="error", ordering="error")
    def brief_error(self, record: Dead) -> str | None:
        return shorten_text(mask_optional(record.error) or "", BRIEF) or None

    @admin.display(description="traceback")
    def shown_traceback(self, record: Dead) -> str | None:
        return mask_optional(record.traceback)

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).filter(subscription=_read_subscription(request))

    def has_replay_permission(self, request: HttpRequest) -> bool:
        return _has_permission(request, "replay_dead")

    def has_discard_permission(self, request: HttpRequest) -> bool:
        return _has_permission(request, "discard_dead")

    @admin.action(description="Replay: deliver again", permissions=["replay"])
    def replay(self, request: HttpRequest, queryset: Any) -> None:
        self._act_on_each(request, queryset, outbox().dead.replay, "replayed")

    @admin.action(description="Discard: give up for good", permissions=["discard"])
    def discard(self, request: HttpRequest, queryset: Any) -> None:
        self._act_on_each(request, queryset, outbox().dead.discard, "discarded")

    def _act_on_each(self, request: HttpRequest, queryset: Any, act: Callable[..., int], done: str) -> None:
        # The records are in the order of the log. Failures are shown and skipped.
        number = 0
        with outbox().acting_as(request.user.get_username()):
            for record in queryset.order_by("record_id"):
                try:
                    number += act(record.record_id, subscription=record.subscription)
                except PartboxError as error:
                    self.message_user(request, str(error), messages.ERROR)
                else:
                    self.log_change(request, record, done)
        if number:
            self.message_user(request, f"{format_count(number, 'record')} {done}.", messages.SUCCESS)


def _describe_states(states: dict[str, str]) -> str:
    """Return the state of a record in words: of each subscription if they differ."""
    words = {name: "waiting" if state == "pending" else state for name, state in states.items()}
    if len({*words.values()}) <= 1:
        return next(iter(words.values()), "no subscription")
    by_state: dict[str, list[str]] = {}
    for name, state in words.items():
        by_state.setdefault(state, []).append(name)
    return "; ".join(f"{state} ({format_names(names, 3)})" for state, names in by_state.items())


def _may_see_payloads(request: HttpRequest) -> bool:
    return bool(request.user.has_perm("partbox.view_payload"))


def _has_permission(request: HttpRequest, permission: str) -> bool:
    # Without an outbox there are no actions.
    return config().outbox is not None and bool(request.user.has_perm(f"partbox.{permission}"))


def _read_subscription(request: HttpRequest) -> str:
    """Return the name of the subscription whose dead records the admin page shows."""
    # The page of a record that was opened from the list keeps the subscription of the list.
    name = SubscriptionFilter.parameter_name
    kept = parse_qs(request.GET.get("_changelist_filters", "")).get(name, [DEFAULT])
    return str(request.GET.get(name) or kept[0])
