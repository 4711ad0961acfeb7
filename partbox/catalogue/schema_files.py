"""A folder with a JSON Schema file for each version of each event, for the command `check` and for other teams."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import orjson

from partbox.catalogue.comparison import EventChange, EventForm, compare_forms, report_removed_event
from partbox.errors import PartboxError
from partbox.events.declaration import dataschema_of

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
EXTENSION_KEY: Final = "x-partbox"


def build_document(form: EventForm) -> dict[str, Any]:
    """Return the content of an event type's JSON Schema file, including its name, version, key and tenant."""
    extension = {
        "name": form.name,
        "version": form.version,
        "aggregate_type": form.aggregate_type,
        "key": form.key,
        "tenant": form.tenant,
    }
    return {"$schema": DRAFT, "$id": dataschema_of(form.name, form.version), **form.schema, EXTENSION_KEY: extension}


def write_schemas(folder: Path, forms: Iterable[EventForm]) -> tuple[int, int]:
    """Write a JSON Schema file for each event type. Return the numbers of files that were written and that were up to
    date."""
    # PartboxError is raised if a file cannot be written. Other files in the folder are left alone.
    texts = {folder / build_file_name(form): encode_json(build_document(form)) for form in forms}
    changed = {path: text for path, text in texts.items() if _read_bytes(path) != text}
    for path, text in changed.items():
        write_file(path, text)
    return len(changed), len(texts) - len(changed)


def _read_bytes(path: Path) -> bytes | None:
    # The result is None if the file cannot be read. Writing the file then raises the error.
    try:
        return path.read_bytes()
    except OSError:
        return None


def write_file(path: Path, text: bytes) -> None:
    """Write a file, creating the folders above it. Raise PartboxError with advice if that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    except OSError as error:
        remedy = "name a place that you may write to"
        raise PartboxError(f"cannot write {path}: {error.strerror}: {remedy}") from None


def build_file_name(form: EventForm) -> str:
    return f"{quote(form.name, safe=' ')}.v{form.version}.json"


def encode_json(content: dict[str, Any]) -> bytes:
    """Encode a dict as the content of a JSON file: indented, with a newline at the end."""
    return orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def read_schemas(folder: Path) -> dict[Path, EventForm]:
    """Read the event types from a folder's JSON Schema files, keyed by file. Raise PartboxError if that fails."""
    # The error is raised if there are no files, or if a file cannot be read.
    remedy = f"write it with `partbox events MODULE:OUTBOX --json-schema {folder}`, and commit it"
    if not folder.is_dir():
        raise PartboxError(f"there is no folder {folder}: {remedy}")
    found = {path: _read_form(path) for path in sorted(folder.glob("*.json"))}
    if not found:
        raise PartboxError(f"folder {folder} has no schema of an event: {remedy}")
    return found


def _read_form(path: Path) -> EventForm:
    try:
        content = orjson.loads(path.read_bytes())
        extension = content[EXTENSION_KEY]
        name = str(extension["name"])
        return EventForm(
            name, name, int(extension["version"]), str(extension["aggregate_type"]), str(extension["key"]),
            str(extension["tenant"]), content, content, content,
        )  # fmt: skip
    except OSError as error:
        raise PartboxError(f"cannot read {path}: {error.strerror}: name a folder that you may read") from None
    except (ValueError, KeyError, TypeError):
        raise PartboxError(
            f"{path} is no schema that `partbox events --json-schema` wrote: restore it, or keep other files elsewhere"
        ) from None


def find_changes(
    kept: dict[Path, EventForm], forms: Iterable[EventForm], upcasts: dict[str, set[int]]
) -> list[EventChange]:
    """Compare the event types with their schema files, and return the changes, breaking changes first."""
    # The changes are the changes since the files were written. `upcasts` are the versions that have an upcast (a
    # conversion of old payloads), by event.
    now = {form.name: form for form in forms}
    changes = [
        each for path, old in kept.items() for each in _find_event_changes(path, old, now.get(old.name), upcasts)
    ]
    known = {old.name for old in kept.values()}
    changes += [EventChange(name, "is new") for name in now if name not in known]
    return sorted(changes, key=lambda change: not change.is_break)


def _find_event_changes(
    path: Path, old: EventForm, new: EventForm | None, upcasts: dict[str, set[int]]
) -> list[EventChange]:
    if new is None:
        return [report_removed_event(old, str(path))]
    try:
        return compare_forms(old, new, upcasts.get(old.name, ()))
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError):
        raise PartboxError(f"{path} holds no JSON Schema that can be read: write it again with --json-schema") from None
