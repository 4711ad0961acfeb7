"""Operators' verbs from async code: the event loop goes on, and nothing of a verb is lost or changed on the way."""

import asyncio
import inspect
import threading
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from partbox import Outbox
from partbox.errors import PartboxError
from partbox.operations import Operations
from partbox.operations.aio import AsyncCommand

NOUNS = ("dead", "blocked", "subscriptions", "limits", "actions", "stats", "records")
WAITS = "select count(*) from pg_stat_activity where application_name = 'partbox dead' and wait_event_type = 'Lock'"


async def until_one_waits(dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as looking:
        while await (await looking.execute(WAITS)).fetchone() != (1,):
            await asyncio.sleep(0.01)


def verbs(of: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(of, inspect.isfunction) if not name.startswith("_")}


@pytest.mark.parametrize("noun", NOUNS)
def test_every_verb_of_a_noun_is_there_for_async_code(outbox: Outbox, noun: str) -> None:
    sync, asynchronous = getattr(outbox, noun), getattr(outbox.aio, noun)
    offered = {name: verb for name, verb in vars(type(asynchronous)).items() if isinstance(verb, AsyncCommand)}
    assert offered.keys() == verbs(type(sync))
    assert {name: verb._command for name, verb in offered.items()} == {n: getattr(type(sync), n) for n in offered}


def test_every_noun_and_every_verb_of_the_outbox_with_its_own_connection_is_there_for_async_code(
    outbox: Outbox,
) -> None:
    nouns = {name for name, each in inspect.getmembers(Operations) if isinstance(each, property)}
    assert nouns - {"settings", "dsn", "asks_for_dsn", "inbox"} == {*NOUNS}
    assert {name for name in vars(type(outbox.aio)) if not name.startswith("_")} == verbs(Operations) - {"acting_as"}


def test_a_verb_runs_beside_the_event_loop_and_not_in_it(dsn: str) -> None:
    """Seen by the callable that gives the DSN, which a verb calls when it connects."""
    threads = set[int]()

    def given() -> str:
        threads.add(threading.get_ident())
        return dsn

    asyncio.run(Outbox(given).aio.dead.count())
    assert threads
    assert threading.get_ident() not in threads


def test_the_loop_goes_on_while_a_verb_waits(outbox: Outbox, dsn: str, conn: Connection[Any]) -> None:
    """An operator's verb waits for a lock that the same loop releases when it has seen it wait."""

    async def run() -> int:
        with psycopg.connect(dsn) as locking:
            locking.execute("lock table partbox.parked in access exclusive mode")
            counted = asyncio.create_task(outbox.aio.dead.count())
            await until_one_waits(dsn)
            assert not counted.done()
            locking.rollback()
            return await counted

    assert asyncio.run(run()) == 0


def test_a_verb_whose_task_is_cancelled_is_not_waited_for_and_goes_on(outbox: Outbox, plant: Any, dsn: str) -> None:
    record_id = plant.park("a")

    async def run() -> None:
        with psycopg.connect(dsn) as locking:
            locking.execute("lock table partbox.parked in access exclusive mode")
            replay = asyncio.create_task(outbox.aio.dead.replay(record_id))
            await until_one_waits(dsn)
            replay.cancel()
            with pytest.raises(asyncio.CancelledError):
                await replay
            assert locking.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS  # nobody has let it through

    asyncio.run(run())  # whose end waits for its threads
    assert outbox.dead.count() == 0
    assert [(each.action, each.target) for each in outbox.actions.list()] == [
        ("dead replay", {"record_ids": [record_id]})
    ]


def test_a_verb_raises_its_errors_in_the_task_and_acts_with_the_identity_of_the_task(outbox: Outbox) -> None:
    async def run() -> None:
        with outbox.acting_as("alice"):
            assert await outbox.aio.subscriptions.pause("default")
        with pytest.raises(PartboxError, match="no dead record 7 in subscription 'default'"):
            await outbox.aio.dead.replay(7)

    asyncio.run(run())
    (pause,) = outbox.actions.list()
    assert pause.who.startswith("alice as ")
