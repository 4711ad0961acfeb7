"""The setting PARTBOX of a Django project, and the outbox that it names."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from partbox.outbox import Outbox
from partbox.settings import load
from partbox.text.dsn import strip_text
from partbox.text.wording import format_hint

_WRONG = {
    "OUTBOX": 'name it as text, as in "shop.outbox:outbox"',
    "DATABASE": "give an alias of DATABASES, as text",
    "SCHEMA": "give its name, as text",
}


@dataclass(frozen=True, slots=True)
class Config:
    """The values of Django's PARTBOX setting: the path of the outbox, the database alias and the schema.

    `outbox` is a path such as "shop.outbox:outbox", and `database` is an alias of DATABASES."""

    outbox: str | None
    database: str
    schema: str


def config() -> Config:
    """Return the present values of the Django setting PARTBOX. Raise ImproperlyConfigured if one is wrong."""
    # The schema is by default that of the environment and of partbox.toml.
    given = getattr(settings, "PARTBOX", {})
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured(f"PARTBOX is a {type(given).__name__}: make it a dict with {', '.join(_WRONG)}")
    for name in given.keys() - _WRONG.keys():
        meant = format_hint(str(name).upper(), tuple(_WRONG), f"it takes {', '.join(_WRONG)}", likeness=0.4)
        raise ImproperlyConfigured(f"PARTBOX has an unknown key {name!r}: {meant}")
    for name, value in given.items():
        if not isinstance(value, str | None):
            raise ImproperlyConfigured(f'PARTBOX["{name}"] is {value!r}: {_WRONG[name]}')
    outbox, database, schema = (strip_text(given.get(name) or "") for name in _WRONG)
    return Config(outbox or None, database or "default", schema or load().schema_name)


def table(name: str) -> str:
    """Return the schema-qualified name of a partbox table, for the `db_table` of a Django model."""
    # Django does not change names in quotes.
    schema = config().schema.replace('"', '""')
    return f'"{schema}"."{name}"'


def import_outbox() -> Outbox:
    """Import and return the outbox that the Django setting PARTBOX names. Raise ImproperlyConfigured if that fails."""
    # Unlike `load_outbox`, this function returns the outbox as the application has made it.
    target = config().outbox
    if not target:
        raise ImproperlyConfigured('PARTBOX has no "OUTBOX": name it, such as "shop.outbox:outbox"')
    module, colon, attribute = target.partition(":")
    if not (module and colon and attribute):
        raise ImproperlyConfigured(f'PARTBOX["OUTBOX"] is {target!r}: write MODULE:OUTBOX, as in "shop.outbox:outbox"')
    found = getattr(import_module(module), attribute, None)
    if not isinstance(found, Outbox):
        raise ImproperlyConfigured(f'PARTBOX["OUTBOX"] is {target!r}, but the module has no Outbox of that name')
    return found
