"""The adapters of libraries: one module per library, imported when the first connection of that library is used.

Each module lists the types of its library in `KINDS`, with the adapter of each type or advice about the object to pass
instead. A type is recognised by the package and name of the type itself or of a base class, so no library is imported
for the test."""

from importlib import import_module
from typing import Any

from partbox.errors import PublishError
from partbox.publish.adapter import Adapter, AsyncAdapter
from partbox.publish.transaction import PUBLISH_REMEDIES

# An adapter, or advice about the object to pass instead.
AdapterOrRemedy = type[Adapter] | type[AsyncAdapter] | str

_MODULES = {
    "asyncpg": "asyncpg",
    "django": "django",
    "psycopg": "psycopg",
    "psycopg_pool": "psycopg",
    "sqlalchemy": "sqlalchemy",
}
_registered: dict[type, AdapterOrRemedy] = {}
_found_classes: dict[tuple[type, type], type[Adapter] | type[AsyncAdapter]] = {}


def register(kind: type, adapter: type[Adapter] | type[AsyncAdapter]) -> None:
    """Use an adapter class for publishing on connections of the type `kind` and of its subclasses."""
    _registered[kind] = adapter
    _found_classes.clear()


def sync_adapter_of(conn: Any, remedies: tuple[str, str] = PUBLISH_REMEDIES) -> Adapter:
    """Return the synchronous adapter for publishing on `conn`. Raise PublishError with advice if there is none."""
    # The error is also raised if the adapter is asynchronous.
    found = adapter_class_of(conn)
    if issubclass(found, Adapter):
        return found(conn)
    raise PublishError(f"{_type_name(conn.__class__)} is asynchronous: {remedies[1]}")


def async_adapter_of(conn: Any, remedies: tuple[str, str] = PUBLISH_REMEDIES) -> AsyncAdapter:
    """Return the asynchronous adapter for publishing on `conn`. Raise PublishError with advice if there is none."""
    # The error is also raised if the adapter is synchronous.
    found = adapter_class_of(conn)
    if issubclass(found, AsyncAdapter):
        return found(conn)
    raise PublishError(f"{_type_name(conn.__class__)} is synchronous: {remedies[0]}")


def is_connection(value: Any) -> bool:
    """Return True if the value is a connection or session that events may be published on."""
    return any(isinstance(_lookup_type(kind), type) for kind in (type(value), value.__class__))


def adapter_class_of(conn: Any) -> type[Adapter] | type[AsyncAdapter]:
    """Return the adapter class for the type of a connection or session. Raise PublishError if there is none."""
    # A tracer's proxy counts as the object that it wraps: `__class__` of the proxy says so, although `type` does not.
    kinds = type(conn), conn.__class__
    return _found_classes.get(kinds) or _find_adapter(*kinds)


def _find_adapter(outer: type, kind: type) -> type[Adapter] | type[AsyncAdapter]:
    found = _lookup_type(outer) or _lookup_type(kind)
    if isinstance(found, str):
        raise PublishError(f"a {_type_name(kind)} has no transaction to publish in: {found}")
    if found is None:
        raise PublishError(
            f"a connection or session of psycopg, SQLAlchemy, Django or asyncpg is needed, not a {_type_name(kind)}: "
            "pass the one that has your transaction, or register an adapter for this type"
        )
    _found_classes[outer, kind] = found
    return found


def _lookup_type(kind: type) -> AdapterOrRemedy | None:
    for each in kind.__mro__:
        if each in _registered:
            return _registered[each]
        if file := _MODULES.get(each.__module__.partition(".")[0]):
            kinds: dict[str, AdapterOrRemedy] = import_module(f"{__name__}.{file}").KINDS
            if each.__name__ in kinds:
                return kinds[each.__name__]
    return None


def _type_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
