"""Publishing depends neither on how an application has its driver convert values, nor on proxies around connections."""

import re
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import psycopg2.extras
import pytest
import pytest_asyncio
import wrapt
from kits import KITS, Asyncpg, AsyncPsycopg, Kit, Psycopg, opened
from psycopg.abc import AdaptContext
from psycopg.adapt import Dumper, Loader
from psycopg.types.json import JsonbDumper
from psycopg.types.string import TextLoader
from psycopg2 import extensions
from reading import delivered

import partbox
from partbox import Event, Outbox
from partbox.db.schema.migrate import migrate
from partbox.db.type_conversion import DEFAULTS
from partbox.publish.writing import COPY_FROM_EVENTS

PACKAGE = Path(partbox.__file__).parent
KEYED = [Event("Keyed", n, idempotency_key=f'"{n}\\,') for n in range(2)]
MANY = [Event("T", n, occurred_at=datetime.now(UTC)) for n in range(COPY_FROM_EVENTS)]
MAPS = ("_dumpers", "_dumpers_by_oid", "_loaders")
VALUES = (list, dict, tuple, str, int, float, bool, bytes, uuid.UUID, datetime, type(None))
TYPES = ("bool", "int2", "int4", "int8", "text", "varchar", "name", "uuid", "timestamptz", "json", "jsonb", "numeric")


class Asked(AssertionError):
    """The application's conversion was used for a value of ours."""


class HostileDumper(Dumper):
    def dump(self, obj: Any) -> bytes:
        raise Asked(obj)


class HostileLoader(Loader):
    def load(self, data: Any) -> Any:
        raise Asked(bytes(data))


@pytest.fixture
def adapters() -> Iterator[psycopg.adapt.AdaptersMap]:
    """psycopg's global adapters, for this test to change."""
    kept = {name: getattr(psycopg.adapters, name) for name in MAPS}
    for name, each in kept.items():
        setattr(
            psycopg.adapters,
            name,
            [*map(dict, each)] if isinstance(each, list) else {k: dict(v) for k, v in each.items()},
        )
    _forget_django()
    yield psycopg.adapters
    for name, each in kept.items():
        setattr(psycopg.adapters, name, each)
    _forget_django()


def _forget_django() -> None:
    from django.db.backends.postgresql import psycopg_any

    psycopg_any.get_adapters_template.cache_clear()


def make_hostile(context: AdaptContext) -> None:
    for kind in VALUES:
        context.adapters.register_dumper(kind, HostileDumper)
    for name in TYPES:
        context.adapters.register_loader(name, HostileLoader)


@pytest.fixture
def documents(adapters: psycopg.adapt.AdaptersMap, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists and dicts become documents, as tutorials show it, and times and ids are text."""
    for kind in (list, dict, tuple):
        adapters.register_dumper(kind, JsonbDumper)
        monkeypatch.setitem(extensions.adapters, (kind, extensions.ISQLQuote), psycopg2.extras.Json)
    for name in ("uuid", "timestamptz", "json", "jsonb", "numeric"):
        adapters.register_loader(name, TextLoader)


@pytest.fixture
def outbox(dsn: str) -> Outbox:
    return Outbox(dsn)


@pytest_asyncio.fixture(params=KITS, ids=lambda kit: kit.name)
async def kit(request: pytest.FixtureRequest, dsn: str, outbox: Outbox) -> AsyncIterator[Kit]:
    async with opened(request.param, dsn, outbox) as kit:
        yield kit


async def publish_all(kit: Kit, given: Callable[[], Any]) -> None:
    """Every form of a publish, and the inbox, on what `given` returns."""
    await kit.publish(given(), "Short", {"total": 42})
    await kit.publish(given(), "Keyed", None, idempotency_key="k")
    await kit.publish_many(given(), KEYED)
    await kit.publish_many(given(), KEYED)  # a second time: answers are read
    await kit.publish_many(given(), MANY)
    inbox, event = kit.outbox.inbox, KEYED[0]
    call = inbox.first_time_async if kit.is_async else inbox.first_time
    seen = [call(given(), event, "me"), call(given(), event, "me")]
    assert [await each if kit.is_async else each for each in seen] == [True, False]


def check(dsn: str) -> None:
    with psycopg.connect(dsn, context=DEFAULTS) as conn:
        found = [event.payload for event in delivered(conn)]
    assert found == [{"total": 42}, None, 0, 1, *range(COPY_FROM_EVENTS)]


@pytest.mark.usefixtures("documents")
async def test_lists_are_sent_as_arrays_even_if_the_application_converts_lists_to_json(kit: Kit, dsn: str) -> None:
    async with kit.transaction() as tx:
        await publish_all(kit, lambda: tx)
    check(dsn)


@pytest.mark.parametrize("kind", [Psycopg, AsyncPsycopg])
async def test_publishing_uses_no_type_conversion_of_the_application(
    kind: type[Kit], dsn: str, outbox: Outbox, adapters: psycopg.adapt.AdaptersMap
) -> None:
    told: list[list[Any]] = []
    outbox.after_commit(lambda events: told.append(events))
    make_hostile(adapters)
    async with opened(kind, dsn, outbox) as kit:
        make_hostile(kit.conn)  # type: ignore[attr-defined]
        async with kit.reported() as tx:
            await publish_all(kit, lambda: tx)
    assert len(told) == 4
    check(dsn)


def test_an_embedded_worker_uses_no_type_conversion_of_the_application(
    dsn: str, outbox: Outbox, adapters: psycopg.adapt.AdaptersMap
) -> None:
    got: list[Any] = []

    @outbox.on("T", max_attempts=1)
    def handle(event: Any) -> None:
        got.append(event.payload)
        if event.payload == 7:
            raise KeyError

    @outbox.on("Short", transactional=True)
    def transact(event: Any, conn: Any) -> None:
        with pytest.raises(Asked):  # its own adapters are the application's
            conn.execute("select 1").fetchall()
        make_hostile(conn)
        got.append(event.payload)

    make_hostile(adapters)
    with psycopg.connect(dsn) as conn:
        outbox.publish_many(conn, MANY)
        outbox.publish_many(conn, [Event("Short", "kept"), Event("Short", "too")])
    with outbox.worker() as worker:
        assert worker.wait_until_empty(120)
    assert sorted(map(str, got)) == sorted(map(str, [*range(COPY_FROM_EVENTS), "kept", "too"]))
    (dead,) = outbox.dead.list()
    assert dead.event_type == "T"
    assert outbox.dead.discard(dead.event_id) == 1


def test_calls_for_operators_use_no_type_conversion_of_the_application(
    adapters: psycopg.adapt.AdaptersMap, empty_dsn: str
) -> None:
    make_hostile(adapters)
    migrate(empty_dsn)
    outbox = Outbox(empty_dsn)
    outbox.subscriptions.create("mine", types=["T"])
    assert [each.name for each in outbox.subscriptions.list()] == ["default", "mine"]


async def test_publishing_on_a_proxy_works_as_on_the_wrapped_connection(kit: Kit, dsn: str) -> None:
    told: list[str] = []
    for moment in kit.tells:
        getattr(kit.outbox, moment)(lambda events, moment=moment: told.append(moment))
    async with kit.reported() as tx:
        await publish_all(kit, lambda: wrapt.ObjectProxy(tx))  # a tracer may make one for every use
    check(dsn)
    assert told == [moment for moment in kit.tells if moment == "after_commit"] * 4


@pytest.mark.parametrize("kind", [Psycopg, AsyncPsycopg, Asyncpg])
async def test_a_transaction_that_was_opened_on_a_proxy_is_known_on_the_wrapped_connection(
    kind: type[Kit], dsn: str, outbox: Outbox
) -> None:
    told: list[Any] = []
    outbox.after_commit(told.extend)
    async with opened(kind, dsn, outbox) as kit:
        bare = kit.conn  # type: ignore[attr-defined]
        kit.conn = wrapt.ObjectProxy(wrapt.ObjectProxy(bare))  # type: ignore[attr-defined]
        async with kit.reported():
            await kit.publish(bare, "T", 1)
    assert [event.payload for event in told] == [1]


def test_every_connection_of_partbox_converts_as_psycopg_does() -> None:
    """But those that an application's code gets too, or that play an application."""
    theirs = ("inbox.py", "demo/shop.py", "publish/transaction_scope.py", "chaos/", "bench/")
    found = [
        f"{name}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if not (name := str(path.relative_to(PACKAGE))).startswith(theirs)
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"psycopg\.connect\((?!.*context=DEFAULTS)", line)
    ]
    assert found == []
