"""The programs of the page on frameworks, each with its own library, and the traps that the page names."""

import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from forked_commands import Forks, forks
from psycopg.conninfo import conninfo_to_dict

__all__ = ["forks"]

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "frameworks.md").read_text(encoding="utf-8")
PROGRAMS = dict(re.findall(r"^```python\n# (\w+)\.py\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
(TABLE,) = re.findall(r"^```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)

ASKING = """
import asyncio
from contextlib import nullcontext
import httpx

async def ask():
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    started = getattr(app, "lifespan", nullcontext)  # Litestar's plugins need it
    async with started(), httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        print([(await client.post("/orders?reference=A-1")).status_code for _ in range(2)])

asyncio.run(ask())
"""
PUBLISHING = """
with outbox.transaction() as tx:
    outbox.publish(tx, "OrderPlaced", {"total": 42}, aggregate_type="Order", aggregate_id="A-1")
outbox.drain()
"""
CELERY = """
from celery.contrib.testing.worker import start_worker
from threading import Event
from celery.signals import task_success

done = Event()
task_success.connect(lambda **_: done.set(), weak=False)
with start_worker(tasks, perform_ping_check=False, loglevel="ERROR"):
    assert done.wait(120)
"""
FASTSTREAM = """
import asyncio
from uuid import uuid4
import pika

arrived = asyncio.Queue()
declared = RabbitQueue("orders", durable=True)

@broker.subscriber(declared)
async def see(order: dict, message: RabbitMessage):
    await arrived.put((order, message.message_id))

async def check():
    async with broker:
        await broker.start()
        twice = str(uuid4())
        with pika.BlockingConnection(pika.URLParameters(os.environ["RABBITMQ_URL"])) as other:
            other.channel().basic_publish("", "checkouts", b'{"reference": "without an id", "total": 42}')
        for message_id in (twice, twice, str(uuid4())):
            checkout = {"reference": message_id, "total": 42}
            await broker.publish(checkout, "checkouts", message_id=message_id, persist=True)
        async with outbox.worker():
            found = [await asyncio.wait_for(arrived.get(), 60) for _ in range(2)]
    print(len({order["reference"] for order, _ in found}), len({message for _, message in found}))

asyncio.run(check())
"""


def needs(*modules: str) -> Any:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason="scripts/venv test-frameworks installs them")


@pytest.fixture
def run(tmp_path: Path, dsn: str, conn: psycopg.Connection[Any], forks: Forks) -> Iterator[Callable[..., str]]:
    """Runs a program with the table of the page; what it prints."""
    parts = conninfo_to_dict(dsn)
    place = {"PGHOST": parts["host"], "PGUSER": parts["user"], "PGDATABASE": parts["dbname"], "PARTBOX_DSN": dsn}
    conn.execute(TABLE)

    def run(program: str, **environment: str) -> str:
        (tmp_path / "shop.py").write_text(program, encoding="utf-8")
        started = forks.start("python", "shop.py", cwd=tmp_path, env={**os.environ, **place, **environment})
        out, err = started.communicate()
        assert started.returncode == 0, out + err
        return out

    yield run
    conn.execute("drop table orders")


def written(conn: psycopg.Connection[Any]) -> tuple[Any, ...] | None:
    """How many orders there are, and how many events."""
    return conn.execute("select (select count(*) from orders), (select count(*) from partbox.record)").fetchone()


def changed(program: str, old: str, new: str) -> str:
    assert old in program
    return program.replace(old, new)


def test_with_fastapi_a_commit_that_fails_answers_500(run, conn):
    assert run(PROGRAMS["fastapi_shop"] + ASKING) == "[201, 500]\n"
    assert written(conn) == (1, 1)


def test_with_the_default_scope_of_fastapi_a_commit_that_fails_has_answered_201(run, conn):
    trap = changed(PROGRAMS["fastapi_shop"], ', scope="function"', "")
    assert run(trap + ASKING) == "[201, 201]\n"
    assert written(conn) == (1, 1)


@pytest.mark.soak
@needs("litestar", "advanced_alchemy")
def test_with_litestar_a_commit_that_fails_answers_500(run, conn):
    assert run(PROGRAMS["litestar_shop"] + ASKING) == "[201, 500]\n"
    assert written(conn) == (1, 1)


@pytest.mark.soak
@needs("litestar", "advanced_alchemy")
def test_with_autocommit_of_advanced_alchemy_a_commit_that_fails_answers_201(run, conn):
    trap = changed(PROGRAMS["litestar_shop"], "async with db_session.begin():", "if True:")
    trap = changed(trap, 'psycopg://"', 'psycopg://", before_send_handler="autocommit"')
    assert run(trap + ASKING) == "[201, 201]\n"
    assert written(conn) == (1, 1)


@pytest.fixture
def rabbit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a RabbitMQ."""
    monkeypatch.setattr(sys, "path", [str(Path(__file__).resolve().parents[1] / "sinks"), *sys.path])
    from broker_rabbit import Rabbit

    (folder := tmp_path / "rabbit").mkdir()
    broker = Rabbit(folder)
    broker.start()
    yield broker.url
    broker.kill()


@pytest.mark.soak
@needs("faststream")
def test_with_faststream_a_message_received_twice_makes_one_order_and_one_forwarded_event(run, conn, rabbit):
    assert run(PROGRAMS["faststream_shop"] + FASTSTREAM, RABBITMQ_URL=rabbit).endswith(
        "\n2 2\n"
    )  # after FastStream's log
    assert written(conn) == (2, 2)


@pytest.mark.soak
@needs("celery")
def test_with_celery_a_handler_sends_the_task(run):
    printed = run(PROGRAMS["celery_shop"] + PUBLISHING + CELERY, CELERY_BROKER="memory://")
    assert printed.count("invoice of A-1 over 42") == 1


@pytest.mark.soak
@needs("taskiq")
def test_with_taskiq_a_handler_sends_the_task(run):
    assert run(PROGRAMS["taskiq_shop"] + PUBLISHING) == "invoice of A-1 over 42\n"
