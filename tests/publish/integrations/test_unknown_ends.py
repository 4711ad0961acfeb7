"""A COMMIT or COPY that is cancelled or cut off, on every pair of a library and a driver.

The COMMIT waits in a deferred trigger for a lock that the test holds, does not stop when it is cancelled, and succeeds.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from kits import KITS, Kit, opened
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from reading import count
from waiting import eventually

from partbox import Event, Outbox
from partbox.publish.writing import COPY_FROM_EVENTS
from partbox_lab.chaos.network import CUT, HALF, PASS, Network, Wire

GATE = 7
PENDING = f"""
    create function partbox.gate() returns trigger language plpgsql as $$
        begin
            loop
                begin
                    perform pg_advisory_xact_lock_shared({GATE});
                    return null;
                exception when query_canceled then null;  -- as while it waits for a synchronous standby
                end;
            end loop;
        end $$;
    create constraint trigger gate after insert on partbox.record initially deferred
        for each row execute function partbox.gate();
"""
WAITING = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
OTHERS = "from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
MANY = [Event("T", n) for n in range(COPY_FROM_EVENTS)]
ASYNC = [kit for kit in KITS if kit.is_async]


class Undo(Exception):
    """Rolls back."""


@pytest.fixture
def network(dsn: str) -> Iterator[Network]:
    host = conninfo_to_dict(dsn)
    network = Network(str(host["host"]), int(host.get("port", 5432)))
    network.start()
    yield network
    network.stop()


@pytest.fixture
def wire(network: Network) -> Wire:
    return network.wire()


@pytest_asyncio.fixture
async def kit(request: pytest.FixtureRequest, dsn: str, wire: Wire) -> AsyncIterator[Kit]:
    far = make_conninfo(dsn, host="127.0.0.1", port=wire.port)
    with suppress(Exception):  # some libraries raise when a lost connection is closed
        async with opened(request.param, far, Outbox(far)) as kit:
            yield kit


def hear(outbox: Outbox, *moments: str) -> list[tuple[str, list[Any]]]:
    heard: list[tuple[str, list[Any]]] = []
    for moment in moments:
        getattr(outbox, moment)(lambda events, moment=moment: heard.append((moment, [each.payload for each in events])))
    return heard


async def publishes(kit: Kit) -> None:
    async with kit.reported() as tx:
        with suppress(Undo):
            async with kit.savepoint(tx):
                await kit.publish(tx, "T", "taken back")
                raise Undo
        await kit.publish(tx, "T", "kept")


def close_gate(conn: psycopg.Connection[Any]) -> None:
    conn.execute(PENDING)
    conn.execute("select pg_advisory_lock(%s)", [GATE])


def open_gate(conn: psycopg.Connection[Any]) -> None:
    conn.execute("select pg_advisory_unlock(%s)", [GATE])


def is_waiting(conn: psycopg.Connection[Any]) -> bool:
    return conn.execute(WAITING).fetchone() == (1,)


def check_told(kit: Kit, heard: list[tuple[str, list[Any]]], caplog: pytest.LogCaptureFixture) -> None:
    told = "after_rollback" in kit.tells
    assert heard == [("after_rollback", ["taken back"])] * told
    warnings = [each for each in caplog.records if getattr(each, "event", "") == "partbox.publish_end_unknown"]
    assert [each.levelname for each in warnings] == ["WARNING"] * told  # Django says nothing of it


@pytest.mark.parametrize("kit", KITS, indirect=True, ids=lambda kit: kit.name)
async def test_hooks_hear_nothing_of_a_commit_whose_connection_is_cut(
    kit: Kit, network: Network, wire: Wire, conn: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    heard = hear(kit.outbox, *kit.tells)
    close_gate(conn)

    def cut() -> None:
        eventually(lambda: is_waiting(conn))
        network.set(wire, CUT)
        open_gate(conn)

    cutter = threading.Thread(target=cut)
    cutter.start()
    with pytest.raises(Exception, match=r"(?i)connection|closed|terminat"):
        await publishes(kit)
    cutter.join()
    eventually(lambda: count(conn) == 1)  # it was committed
    check_told(kit, heard, caplog)


@pytest.mark.parametrize("kit", ASYNC, indirect=True, ids=lambda kit: kit.name)
async def test_hooks_hear_nothing_of_a_commit_that_is_cancelled_too_late(
    kit: Kit, conn: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    heard = hear(kit.outbox, *kit.tells)
    close_gate(conn)
    request = asyncio.create_task(publishes(kit))
    await asyncio.to_thread(eventually, lambda: is_waiting(conn))
    request.cancel()
    asyncio.get_running_loop().call_later(0.05, open_gate, conn)
    with pytest.raises(asyncio.CancelledError):
        await request
    await asyncio.to_thread(eventually, lambda: count(conn) == 1)
    check_told(kit, heard, caplog)


@pytest.mark.parametrize("kit", KITS, indirect=True, ids=lambda kit: kit.name)
async def test_a_session_that_is_terminated_during_its_commit_is_not_reported_as_a_rollback(
    kit: Kit, conn: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """It may have waited for a synchronous standby: then it had committed."""
    heard = hear(kit.outbox, *kit.tells)
    close_gate(conn)

    def end() -> None:
        eventually(lambda: is_waiting(conn))
        conn.execute(f"select pg_terminate_backend(pid) {OTHERS} and wait_event = 'advisory'")

    ender = threading.Thread(target=end)
    ender.start()
    with pytest.raises(Exception, match=r"(?i)connection|closed|terminat"):
        await publishes(kit)
    ender.join()
    check_told(kit, heard, caplog)


@pytest.mark.parametrize("kit", ASYNC, indirect=True, ids=lambda kit: kit.name)
async def test_a_request_that_is_cancelled_during_copy_leaves_no_transaction_open(
    kit: Kit, network: Network, wire: Wire, conn: psycopg.Connection[Any]
) -> None:
    heard = hear(kit.outbox, *kit.tells)

    async def copies() -> None:
        async with kit.reported() as tx:
            await kit.execute(tx, "select 1")
            network.set(wire, HALF)  # the server begins the COPY, and its answer does not arrive
            await kit.publish_many(tx, MANY)

    request = asyncio.create_task(copies())
    copying = f"select pid {OTHERS} and query ilike '%copy%' and wait_event = 'ClientRead'"
    try:
        await asyncio.to_thread(eventually, lambda: conn.execute(copying).fetchone())
    finally:
        request.cancel()
        asyncio.get_running_loop().call_later(0.05, network.set, wire, PASS)
    with pytest.raises(asyncio.CancelledError):
        await request
    open_ = f"select pid {OTHERS} and state <> 'idle'"
    await asyncio.to_thread(eventually, lambda: conn.execute(open_).fetchone() is None)
    assert (heard, count(conn)) == ([], 0)


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["statement timeout", "user request"])
@pytest.mark.parametrize("kit", KITS, indirect=True, ids=lambda kit: kit.name)
async def test_nothing_is_published_by_a_copy_that_the_server_ends_in_the_middle(
    kit: Kit, conn: psycopg.Connection[Any], way: str
) -> None:
    """Half of the rows are written by then; the rest of the transaction commits."""
    wait = f"perform pg_advisory_xact_lock({GATE})"
    conn.execute(
        "create function partbox.stops() returns trigger language plpgsql as"
        f" $$ begin if new.payload::text = '{COPY_FROM_EVENTS // 2}' then {wait}; end if; return new; end $$;"
        "create trigger stops before insert on partbox.record for each row execute function partbox.stops()"
    )
    conn.execute("select pg_advisory_lock(%s)", [GATE])

    def cancel() -> None:
        eventually(lambda: is_waiting(conn))
        conn.execute(f"select pg_cancel_backend(pid) {OTHERS} and wait_event = 'advisory'")

    async def copies(tx: Any) -> None:
        async with kit.savepoint(tx):
            if way == "statement timeout":
                await kit.execute(tx, "set local statement_timeout = 300")
            else:
                canceller.start()
            await kit.publish_many(tx, MANY)

    canceller = threading.Thread(target=cancel)
    async with kit.transaction() as tx:
        with pytest.raises(Exception, match=f"canceling statement due to {way}"):
            await copies(tx)
        await kit.publish(tx, "T", "whole")
    assert conn.execute("select payload from partbox.record").fetchall() == [("whole",)]
