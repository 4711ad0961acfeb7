"""Compare two forms of an event: find the changes, the readers that they break, and the remedies.

Two kinds of readers may break: the new class, which reads old events from the log, and consumers that know the old form
and read new events. A new version helps both: an upcast reads old events, and consumers can recognise new ones."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from partbox.catalogue.json_schema import Schema, SchemaNode
from partbox.catalogue.misfits import FitCheck, Misfit, MisfitKind


@dataclass(frozen=True, slots=True)
class EventForm:
    """A description of an event type (its version, key and JSON Schemas), to compare two versions of its class."""

    # `cls` is the name of the class. `written` is the JSON Schema of the events that the class itself writes, and
    # `read` of the events that it reads. `schema` is the JSON Schema of all stored events of this version: a field with
    # a default may be missing from an event, because the field may have been added later.

    name: str
    cls: str
    version: int
    aggregate_type: str
    key: str
    tenant: str
    schema: Schema
    written: Schema
    read: Schema


@dataclass(frozen=True, slots=True)
class EventChange:
    """A change of an event type between two versions of the code, and whether the change breaks readers of the
    event."""

    # `place` is the event type or the field that changed. A breaking change has a remedy, and a harmless change has
    # none.

    place: str
    what: str
    breaks_log: bool = False
    breaks_consumers: bool = False
    remedy: str = ""

    @property
    def is_break(self) -> bool:
        """True if the change breaks the reading of stored events, or consumers that know the old form."""
        # A reader is the reading of the log, or consumers that know the old form.
        return self.breaks_log or self.breaks_consumers

    @property
    def text(self) -> str:
        """The change as one line of text, with the readers that it breaks and the remedy."""
        broken = [_LOG] * self.breaks_log + [_CONSUMERS] * self.breaks_consumers
        broken_readers = f"breaks {' and '.join(broken)}" if broken else "breaks nothing"
        return f"{self.place} {self.what}: {broken_readers}" + (f": {self.remedy}" if self.remedy else "")


_LOG: Final = "reading the log"
_CONSUMERS: Final = "consumers"

_REMEDIES: Final = {
    MisfitKind.TYPE: "leave it as it was, and add a field for the new form",
    MisfitKind.VALUE: "leave the values as they are",
    MisfitKind.RULE: "leave the rule as it is",
    MisfitKind.MISSING: "give it a default",
    MisfitKind.GONE: "keep it",
    MisfitKind.REFUSED: "allow unknown fields",
    MisfitKind.OPEN: "leave it as it was",
}


# A description of the change, by the kind of misfit and whether reading the log found it.
_TEXTS: Final = {
    (MisfitKind.MISSING, False): "may be left out now",
    (MisfitKind.GONE, False): "is gone",
    (MisfitKind.REFUSED, True): "is refused now",
    (MisfitKind.REFUSED, False): "is new, and consumers refuse fields that they do not know",
    (MisfitKind.OPEN, True): "refuses fields that it does not know",
    (MisfitKind.OPEN, False): "may have fields that the schema does not name",
}


def compare_forms(old: EventForm, new: EventForm, upcasts: Iterable[int]) -> list[EventChange]:
    """Compare an event type's old and new description, and return the changes, breaking changes first."""
    # `upcasts` are the versions that have an upcast (a function that converts old payloads).
    if new.version < old.version:
        back = f"went back from version {old.version} to {new.version}"
        return [EventChange(old.name, back, True, True, f"give it version={old.version} or more")]
    if new.version > old.version:
        return [_find_version_change(old, new, set(upcasts))]
    changes = [*_find_order_changes(old, new), *_find_field_changes(old, new)]
    return sorted(changes, key=lambda change: not change.is_break)


def report_removed_event(old: EventForm, file: str) -> EventChange:
    """Return the change that says that an event type's class was removed from the code."""
    # `file` contains its schema.
    remedy = f"keep the class, and import its module, while the log has such events; then delete {file}"
    return EventChange(old.name, f"version {old.version} has no class any more", True, False, remedy)


def _find_version_change(old: EventForm, new: EventForm, upcasts: set[int]) -> EventChange:
    missing_versions = [version for version in range(old.version, new.version) if version not in upcasts]
    what = f"has version {new.version} instead of {old.version}"
    if not missing_versions:
        return EventChange(old.name, f"{what}, with an upcast")
    remedy = f"write @outbox.upcast({new.cls}, from_version={missing_versions[0]})"
    return EventChange(old.name, f"{what}, and no upcast from version {missing_versions[0]}", True, False, remedy)


def _find_order_changes(old: EventForm, new: EventForm) -> Iterator[EventChange]:
    for what, was, now in (
        ("aggregate type", old.aggregate_type, new.aggregate_type),
        ("key", old.key, new.key),
        ("tenant", old.tenant, new.tenant),
    ):
        if was != now:
            text = f"has the {what} {now or 'none'} instead of {was or 'none'}"
            yield EventChange(old.name, text, True, True, _add_version_remedy(f"leave the {what}", new))


def _add_version_remedy(remedy: str, new: EventForm) -> str:
    version = new.version
    return f"{remedy}, or make version={version + 1} with @outbox.upcast({new.cls}, from_version={version})"


def _find_field_changes(old: EventForm, new: EventForm) -> Iterator[EventChange]:
    before, after, reader = (SchemaNode.of(each, each) for each in (old.schema, new.written, new.read))
    from_log = FitCheck(from_log=True).find_misfits(before, reader)
    by_consumers = FitCheck(from_log=False).find_misfits(after, before)
    misfits: defaultdict[str, tuple[list[Misfit], list[Misfit]]] = defaultdict(lambda: ([], []))
    for side, found in enumerate((from_log, by_consumers)):
        for each in found:
            misfits[each.path][side].append(each)
    changes = {path: _build_field_change(new, path, *found) for path, found in misfits.items()}
    added = dict(_find_added(before, after))
    for path in _find_renamed(before, by_consumers, added, changes, new):
        changes.pop(path, None)
        added.pop(path)
    yield from changes.values()
    yield from (EventChange(f"{old.name}{path}", "is new") for path in added if path not in changes)


def _build_field_change(new: EventForm, path: str, from_log: list[Misfit], by_consumers: list[Misfit]) -> EventChange:
    texts = dict.fromkeys([_format_misfit(each, from_log=True) for each in from_log])
    texts |= dict.fromkeys([_format_misfit(each, from_log=False) for each in by_consumers])
    kind = (by_consumers or from_log)[0].kind
    remedy = _REMEDIES[kind]
    if kind is MisfitKind.MISSING and not from_log:
        remedy = "always write it"
    place = f"{new.name}{path}"
    return EventChange(place, " and ".join(texts), bool(from_log), bool(by_consumers), _add_version_remedy(remedy, new))


def _format_misfit(misfit: Misfit, *, from_log: bool) -> str:
    was, now = (misfit.has, misfit.wants) if from_log else (misfit.wants, misfit.has)
    match misfit.kind:
        case MisfitKind.TYPE:
            return f"was {was}, and is {now}"
        case MisfitKind.RULE:
            return f"had {was}, and has {now}"
        case MisfitKind.VALUE if from_log:
            return f"lost the value {was}" if was else f"takes only {now} now"
        case MisfitKind.VALUE:
            return f"may be {now}" if now else f"may have values other than {was} now"
        case MisfitKind.MISSING if from_log:
            return "is required now" if was == "a field" else "is new, and required"
    return _TEXTS[misfit.kind, from_log]


def _find_added(old: SchemaNode, new: SchemaNode, path: str = "", depth: int = 10) -> Iterator[tuple[str, SchemaNode]]:
    olds, news = (_find_object_schema(each) for each in (old, new))
    if olds is None or news is None or not depth:
        return
    for name, schema in news.properties.items():
        if name in olds.properties:
            yield from _find_added(
                olds.build_part(olds.properties[name]), news.build_part(schema), f"{path}.{name}", depth - 1
            )
        else:
            yield f"{path}.{name}", news.build_part(schema)


def _find_object_schema(node: SchemaNode) -> SchemaNode | None:
    """Return the only alternative of a schema that is an object, or None if not exactly one is."""
    found = [each for each in node.list_alternatives() if each.type == "object"]
    return found[0] if len(found) == 1 else None


def _find_renamed(
    old: SchemaNode,
    by_consumers: list[Misfit],
    added: dict[str, SchemaNode],
    changes: dict[str, EventChange],
    form: EventForm,
) -> Iterator[str]:
    """Find the fields that an event type has renamed, note the new names in `changes`, and yield the new paths."""
    # Each is described in the change of the old field.
    for misfit in by_consumers:
        if misfit.kind is not MisfitKind.GONE:
            continue
        was, parent = _find_field(old, misfit.path), misfit.path.rpartition(".")[0]
        like = [path for path, node in added.items() if path.rpartition(".")[0] == parent and _are_alike(was, node)]
        # Prefer a required field. An optional field did not take the place of the field that is gone.
        like = [path for path in like if path in changes] or like
        if len(like) == 1:
            now = like[0].rpartition(".")[2]
            remedy = _add_version_remedy(f"keep the old name as an alias of {now}", form)
            what = f"is called {now} now"
            changes[misfit.path] = replace(changes[misfit.path], what=what, breaks_log=True, remedy=remedy)
            yield like[0]


def _find_field(node: SchemaNode, path: str) -> SchemaNode | None:
    for name in path.split(".")[1:]:
        within: Any = _find_object_schema(node)
        if within is None or name not in within.properties:
            return None
        node = within.build_part(within.properties[name])
    return node


def _are_alike(one: SchemaNode | None, other: SchemaNode) -> bool:
    return one is not None and [each.keywords for each in one.list_alternatives()] == [
        each.keywords for each in other.list_alternatives()
    ]
