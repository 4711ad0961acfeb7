"""Engines and pools of an application with an embedded worker: in its loop, and beside a loop of the handlers'."""

import asyncio
import contextlib

import asyncpg
import psycopg_pool
import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import URL, text
from sqlalchemy.ext.asyncio import create_async_engine

TRANSACTION = "select pg_current_xact_id()::text"
REMEDY = "`async def` handlers run in an event loop of their own"


def parts(dsn):
    """As asyncpg takes them."""
    given = conninfo_to_dict(dsn)
    names = {"host": "host", "port": "port", "user": "user", "database": "dbname"}
    return {name: given[part] for name, part in names.items() if part in given}


def engine(dsn, driver):
    given = parts(dsn)
    host = {name: str(given[name]) for name in ("host", "port") if name in given}
    url = URL.create(f"postgresql+{driver}", given["user"], database=given["database"], query=host)
    return create_async_engine(url, pool_size=2)


def sqlalchemy_over(driver):
    @contextlib.asynccontextmanager
    async def opened(dsn):
        of = engine(dsn, driver)

        async def use():
            async with of.begin() as conn:
                return (await conn.execute(text(TRANSACTION))).scalar_one()

        yield use
        await of.dispose()

    return opened


@contextlib.asynccontextmanager
async def asyncpg_pool(dsn):
    async with asyncpg.create_pool(**parts(dsn), min_size=1, max_size=2) as pool:

        async def use():
            async with pool.acquire() as conn, conn.transaction():
                return await conn.fetchval(TRANSACTION)

        yield use


@contextlib.asynccontextmanager
async def psycopg_pool_(dsn):
    async with psycopg_pool.AsyncConnectionPool(dsn, min_size=1, max_size=2) as pool:

        async def use():
            async with pool.connection() as conn:
                return (await (await conn.execute(TRANSACTION)).fetchone())[0]

        yield use


POOLS = {
    "sqlalchemy, asyncpg": sqlalchemy_over("asyncpg"),
    "sqlalchemy, psycopg": sqlalchemy_over("psycopg"),
    "asyncpg": asyncpg_pool,
    "psycopg": psycopg_pool_,
}


async def eventually(check):
    async with asyncio.timeout(60):
        while not check():
            await asyncio.sleep(0.01)


@pytest.mark.thorough
@pytest.mark.parametrize("idle", [False, True], ids=["in use", "idle"])
@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
def test_a_handler_that_uses_the_pool_of_the_application_is_refused_and_the_application_goes_on(
    desk_with, dsn, pool, idle
):
    """Requests use it all the time, as many as it has connections; or begin to after the handlers have tried."""
    desk, requests = desk_with(max_attempts=2, retry="fixed:0.01"), []

    async def request(use, ended):
        while not ended.is_set():
            requests.append(await use())
            await asyncio.sleep(0)

    async def main():
        ended = asyncio.Event()
        async with pool(dsn) as use:

            async def handle(event):
                await use()

            desk.outbox.register(handle, "Counted")
            async with desk.outbox.worker(loop="own"), asyncio.TaskGroup() as group:
                for _ in range(0 if idle else 2):
                    group.create_task(request(use, ended))
                await eventually(lambda: idle or len(requests) > 10)
                await asyncio.to_thread(lambda: [desk.publish(f"k{number}", number) for number in range(20)])
                await eventually(lambda: len(desk.outbox.dead.list()) == 20)
                group.create_task(request(use, ended))
                since = len(requests)
                await eventually(lambda: len(requests) > since + 10)
                ended.set()

    asyncio.run(main())
    assert all(REMEDY in dead.error for dead in desk.outbox.dead.list())


@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
def test_in_the_loop_of_the_application_handlers_and_requests_use_one_pool(desk, dsn, pool):
    """With a loop of their own, handlers and requests shared transactions, or the process crashed."""
    handled, requests, transactions = 200, [], []

    async def request(use, ended):
        while not ended.is_set():
            requests.append(await use())

    async def main():
        ended = asyncio.Event()
        async with pool(dsn) as use:

            async def handle(event):
                transactions.append(await use())
                desk.note(event)

            desk.outbox.register(handle, "Counted")
            async with desk.outbox.worker(concurrency=4), asyncio.TaskGroup() as group:
                for _ in range(2):
                    group.create_task(request(use, ended))
                await asyncio.to_thread(lambda: [desk.publish(f"k{number % 8}", number) for number in range(handled)])
                await eventually(lambda: len(desk.seen) == handled)
                ended.set()

    asyncio.run(main())
    assert desk.all_done()
    assert sorted(number for _, number, _ in desk.seen) == [*range(handled)]
    assert requests
    assert len({*requests, *transactions}) == len(requests) + len(transactions)


def test_an_error_about_two_loops_of_the_application_is_left_as_it_is(desk_with):
    """In the loop of the application there is nothing that partbox could advise."""
    desk = desk_with(max_attempts=1)
    elsewhere = asyncio.new_event_loop()
    answer = elsewhere.create_future()

    async def main():
        async def handle(event):
            await answer

        desk.outbox.register(handle, "Counted")
        desk.publish("k", 1)
        async with desk.outbox.worker():
            await eventually(lambda: len(desk.outbox.dead.list()) == 1)

    asyncio.run(main())
    elsewhere.close()
    (dead,) = desk.outbox.dead.list()
    assert "attached to a different loop" in dead.error
    assert REMEDY not in dead.error


@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
def test_a_pool_that_only_handlers_use_works(desk, dsn, pool):
    async def main():
        opened = []

        async def handle(event):
            if not opened:
                opened.append(contextlib.AsyncExitStack())
                opened.append(await opened[0].enter_async_context(pool(dsn)))
            await opened[1]()
            desk.note(event)
            if event.payload["number"] == 9:
                await opened[0].aclose()

        desk.outbox.register(handle, "Counted")
        desk.publish("k", *range(10))
        async with desk.outbox.worker(loop="own"):
            await eventually(lambda: len(desk.seen) == 10)

    asyncio.run(main())


def test_an_error_about_two_loops_has_the_remedy_whichever_client_raises_it(desk_with):
    """A future of the application's loop, as the clients of most libraries await one."""
    desk = desk_with(max_attempts=1)

    async def main():
        answer = asyncio.get_running_loop().create_future()

        async def handle(event):
            await answer

        desk.outbox.register(handle, "Counted")
        desk.publish("k", 1)
        async with desk.outbox.worker(loop="own"):
            await eventually(lambda: len(desk.outbox.dead.list()) == 1)

    asyncio.run(main())
    (dead,) = desk.outbox.dead.list()
    assert "attached to a different loop" in dead.error
    assert REMEDY in dead.error
    assert "await answer" in dead.traceback


def test_an_application_may_use_one_pool_in_several_loops_of_its_own(desk, dsn):
    """It may use a pool from several that never run at the same time, and is watched beside a worker alone."""
    of = engine(dsn, "psycopg")

    async def use():
        async with of.begin() as conn:
            await conn.execute(text(TRANSACTION))
        await of.dispose()

    async def handle(event):
        desk.note(event)

    desk.outbox.register(handle, "Counted")
    with desk.outbox.worker():
        for _ in range(2):
            asyncio.run(use())
