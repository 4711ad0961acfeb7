"""Who only publishes loads what publishing needs."""

import json
import subprocess
import sys

PUBLISH = """
import json, sys
import psycopg
from partbox import Event, Outbox

outbox = Outbox(sys.argv[1])

@outbox.on("T")
def handler(event): ...

@outbox.task
def task(n: int): ...

with psycopg.connect(sys.argv[1]) as conn:
    outbox.publish(conn, "T", 1, idempotency_key="k")
    outbox.publish_many(conn, [Event("T", n) for n in range(10)])
    task.publish(conn, n=1)
with outbox.transaction() as tx:
    outbox.publish(tx, "T", 1)
print(json.dumps(sorted(sys.modules)))
"""

OTHERS = (
    "partbox.blocked", "partbox.dead", "partbox.purge", "partbox.rebase", "partbox.stats", "partbox.subscriptions",
    "partbox.db.schema.migrate", "partbox.worker", "partbox.supervisor", "partbox.sinks", "partbox.dashboard",
    "partbox.doctor", "partbox.cli", "multiprocess", "opentelemetry", "prometheus_client", "psycopg_pool", "rich",
    "starlette", "typer", "uvicorn", "asyncpg", "django", "greenlet", "psycopg2", "sqlalchemy", "sqlmodel",
)  # fmt: skip


SLOW = ("pydantic", "pydantic_settings")
"""Libraries that take long to load; an import alone needs none of them."""


def test_an_import_alone_loads_nothing_that_takes_long() -> None:
    program = "import json, sys; from partbox import Outbox; print(json.dumps([*sys.modules]))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = json.loads(ended.stdout)
    assert "partbox.outbox" in loaded
    assert [name for name in (*SLOW, *OTHERS) if name in loaded] == []


def test_the_testing_kit_needs_neither_pytest_nor_hypothesis() -> None:
    program = "import json, sys; from partbox.testing import Kit, PartboxTestCase; print(json.dumps([*sys.modules]))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = json.loads(ended.stdout)
    assert "partbox.testing.kit" in loaded
    assert [name for name in ("_pytest", "pytest", "hypothesis", "django") if name in loaded] == []


def test_publishing_loads_no_modules_that_only_workers_and_commands_need(dsn: str) -> None:
    ended = subprocess.run([sys.executable, "-c", PUBLISH, dsn], capture_output=True, text=True, check=True)
    loaded = json.loads(ended.stdout)
    assert {"partbox.publish", "psycopg"} <= set(loaded)
    assert [name for name in loaded if name.startswith(tuple(f"{each}." for each in OTHERS)) or name in OTHERS] == []
