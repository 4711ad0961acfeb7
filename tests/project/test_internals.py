"""Contracts with libraries of which partbox uses private names: a failure says which file has to change."""

import asyncio
import threading
from importlib.metadata import version
from typing import Any

import asyncpg
import psycopg
from multiprocess import popen_spawn_posix, spawn
from multiprocess.context import SpawnProcess


def changed(library: str, what: str, place: str) -> str:
    return f"{library} {version(library)} has changed {what}: see {place}"


def test_multiprocess_spawns_with_preparation_data_that_can_be_replaced() -> None:
    place = "partbox/supervisor/job_pickling.py"
    used = popen_spawn_posix.Popen._launch.__code__.co_names
    assert {"spawn", "get_preparation_data"} <= set(used), changed("multiprocess", "Popen._launch", place)
    assert "sys_path" in spawn.get_preparation_data("any"), changed("multiprocess", "get_preparation_data", place)
    assert callable(SpawnProcess._Popen), changed("multiprocess", "SpawnProcess._Popen", place)


def test_psycopg_counts_the_blocks_of_transactions(conn: psycopg.Connection[Any]) -> None:
    with conn.transaction(), conn.transaction():
        counted = getattr(conn, "_num_transactions", None)
    assert counted == 2, changed("psycopg", "Connection._num_transactions", "partbox/publish/transaction.py")


def test_a_pool_of_asyncpg_knows_its_loop() -> None:
    where = "partbox/worker/runners/pool_guard.py"
    assert "_loop" in asyncpg.pool.Pool.__slots__, changed("asyncpg", "Pool._loop", where)


def test_locks_and_event_loops_of_python_have_the_internals_that_forked_processes_need() -> None:
    reinit = "Lock._at_fork_reinit: see partbox/worker/engine/scheduler.py"
    assert hasattr(threading.Lock(), "_at_fork_reinit"), reinit
    loop = asyncio.new_event_loop()
    try:
        assert hasattr(loop, "_ready"), "BaseEventLoop._ready: see partbox/worker/runners/loop_hosts.py"
    finally:
        loop.close()
    assert hasattr(asyncio, "_get_running_loop"), "asyncio._get_running_loop: see partbox/worker/runners/pool_guard.py"
