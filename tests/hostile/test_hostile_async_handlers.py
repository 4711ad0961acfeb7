"""Async handlers that misuse their task, their loop or its other tasks: only their own event suffers."""

import asyncio
import contextlib
import sys
import threading
import time

import pytest
from deeds import first_async
from house import DONE, RETRIED
from waiting import eventually


async def _cancels_itself(event):
    asyncio.current_task().cancel()
    await asyncio.sleep(10)


async def _cancels_itself_at_the_end(event):
    asyncio.current_task().cancel()


async def _cancels_itself_and_goes_on(event):
    asyncio.current_task().cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(10)


async def _cancels_its_friends(event):
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


async def _cancels_everybody(event):
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(10)


async def _leaves_a_task(event):
    event.payload["task"] = asyncio.get_running_loop().create_task(asyncio.sleep(3600))


async def _leaves_a_task_that_exits(event):
    async def exits():
        raise SystemExit(1)

    event.payload["task"] = asyncio.get_running_loop().create_task(exits())
    await asyncio.sleep(0.05)


async def _calls_what_exits(event):
    asyncio.get_running_loop().call_soon(sys.exit, 1)
    await asyncio.sleep(0.05)


async def _stops_the_loop(event):
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.05)


async def _closes_the_loop(event):
    asyncio.get_running_loop().close()


async def _blocks_the_loop(event):
    time.sleep(0.5)


async def _never_yields_in_time(event):
    await asyncio.sleep(60)


async def _resists(event):
    for _ in range(3):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.2)


async def _yields_for_ever(event):
    while True:
        await asyncio.sleep(0)


async def _timeout_of_its_own(event):
    async with asyncio.timeout(0.01):
        await asyncio.sleep(10)


async def _group(event):
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(10))
        raise ValueError("no")


IN_THE_LOOP = {  # those that end the loop are the last
    "cancels itself": (_cancels_itself, RETRIED, {}),
    "cancels itself at the end": (_cancels_itself_at_the_end, None, {}),
    "cancels itself and goes on": (_cancels_itself_and_goes_on, None, {}),
    "cancels its friends": (_cancels_its_friends, DONE, {}),
    "leaves a task": (_leaves_a_task, DONE, {}),
    "blocks the loop": (_blocks_the_loop, DONE, {}),
    "hangs": (_never_yields_in_time, RETRIED, {"timeout": 0.3}),
    "resists its timeout": (_resists, None, {"timeout": 0.1}),
    "yields for ever": (_yields_for_ever, RETRIED, {"timeout": 0.3}),
    "a timeout of its own": (_timeout_of_its_own, RETRIED, {}),
    "a group of tasks": (_group, RETRIED, {}),
    "cancels everybody": (_cancels_everybody, RETRIED, {}),
    "leaves a task that exits": (_leaves_a_task_that_exits, None, {}),
    "calls what exits": (_calls_what_exits, None, {}),
    "stops the loop": (_stops_the_loop, None, {}),
    "closes the loop": (_closes_the_loop, RETRIED, {}),
}


FRIENDS = 4


def invite_to_the_loop(house, name):
    async def friendly(event):
        await asyncio.sleep(0.01)

    deed, ending, options = IN_THE_LOOP[name]
    house.invite(name, first_async(deed), ending, **options)
    for number in range(FRIENDS):
        house.invite(f"{name}: friend {number}", friendly, None)


def test_an_async_handler_harms_its_own_event_at_most(house):
    for name in IN_THE_LOOP:
        invite_to_the_loop(house, name)
    house.live_in_turn(1 + FRIENDS, timeout=10)


@pytest.mark.soak
@pytest.mark.parametrize("name", IN_THE_LOOP)
def test_each_async_handler_alone_harms_its_own_event_at_most(house, name):
    invite_to_the_loop(house, name)
    house.live(timeout=10)


def test_no_other_event_waits_for_an_async_handler_that_resists_its_timeout(house):
    enough = threading.Event()

    async def resists(event):
        while not enough.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)

    guest = house.invite("resists", resists, None, timeout=0.1)
    with house.working() as worker:
        try:
            house.enter([guest])
            eventually(lambda: guest.attempts, moves=house.progress)
            house.round()
            eventually(lambda: {name for name, _ in house.missing()} == {guest.name}, moves=house.progress)
        finally:
            enough.set()
        house.settle(worker)
        house.look()
    house.judge()
