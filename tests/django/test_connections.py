"""Handlers have connections of Django that work, and nobody else's end takes one away."""

from typing import Any

CUT = """

from django.db import connection
from partbox import Fixed

def cut(cursor_of, attempt):
    with cursor_of.cursor() as cursor:
        cursor.execute("select pg_backend_pid()" if attempt > 1 else "select pg_terminate_backend(pg_backend_pid())")

at_once = {"retry": Fixed(0), "max_attempts": 2}

@outbox.on("Cut", **at_once)
def cutting(event):
    cut(connection, event.attempt)
    print("plain:", event.attempt)

@outbox.on("CutAsync", **at_once)
async def cutting_async(event):
    from asgiref.sync import sync_to_async

    await sync_to_async(cut)(connection, event.attempt)
    print("async:", event.attempt)
"""

PUBLISH = """
from django.db import connection, transaction
from shop.outbox import outbox

with transaction.atomic():
    for name in ("Cut", "CutAsync"):
        outbox.publish(connection, name, None)
"""


def test_a_connection_that_broke_in_a_handler_is_replaced_before_the_next(migrated: Any) -> None:
    module = migrated.folder / "shop/outbox.py"
    module.write_text(module.read_text() + CUT)
    migrated.databases["default"]["CONN_MAX_AGE"] = None  # or it would be closed anyway
    migrated.run(PUBLISH)

    printed = migrated.manage("partbox_worker", "--until-empty", "--processes", "1", "--concurrency", "1")

    assert "plain: 2" in printed
    assert "async: 2" in printed


TOGETHER = """
import asyncio
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Permission
from django.db import connection
from partbox.django.loading import FreshConnections

def cut():
    with connection.cursor() as cursor:
        try:
            cursor.execute("select pg_terminate_backend(pg_backend_pid())")
        except Exception:
            pass

async def main():
    async with FreshConnections(None):
        rows = Permission.objects.aiterator(chunk_size=1)
        await anext(rows)
        async with FreshConnections(None):
            await Permission.objects.acount()
        print("others:", len([row async for row in rows]) > 1)
        await sync_to_async(cut)()
        async with FreshConnections(None):
            print("again:", await Permission.objects.acount() > 1)
    print("closed:", await sync_to_async(lambda: connection.connection is None)())

asyncio.run(main())
"""


def test_async_handlers_share_a_connection_which_the_last_of_them_closes(migrated: Any) -> None:
    printed = migrated.run(TOGETHER).splitlines()
    assert printed == ["others: True", "again: True", "closed: True"]
