"""A worker that counts by an ORM in the outbox's database, and kills itself at a statement of its transactions.

    python killed_orm_app.py KIND FOLDER      the DSN is PARTBOX_DSN; it works until SIGTERM comes

It dies before it sends the n-th statement of its transactions if there is a file `before-n` in the folder, which it
takes away, and when it has the answer if there is `after-n`. Three events share a transaction: by an ORM it has 19
statements, the last of which are the save and the COMMIT. An event fails as many times as its `fails` say.
"""

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import psycopg

from partbox import Outbox
from partbox.db import blocking, driver
from partbox.worker.runners import transactor

sys.path.insert(0, str(Path(__file__).parent))  # for the models
kind, folder = sys.argv[1], Path(sys.argv[2])
transactor.MAX_EVENTS = 3
outbox = Outbox(os.environ["PARTBOX_DSN"], retry="fixed:0.01", heartbeat=0.2, lease=2)


class Statements:
    """Those sent since the first transaction began."""

    def __init__(self) -> None:
        self.sent = -1

    def is_one(self, steps: Any) -> bool:
        """Count it if it is one: the first asks for the transaction's id, and BEGIN goes with it or before it."""
        if self.sent < 0:
            frame = getattr(steps, "gi_frame", None)
            self.sent = 0 if "pg_current_xact_id()" in str(frame.f_locals.get("query") if frame else steps) else -1
        counts = self.sent >= 0 and getattr(steps, "__name__", "") != "_set_autocommit_gen"
        self.sent += counts
        return counts

    def die(self, when: str) -> None:
        try:
            (folder / f"{when}-{self.sent}").unlink()
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


statements = Statements()


def is_effect() -> bool:
    return threading.current_thread().name == "partbox-transactions"


def killed_at(send: Any) -> Any:
    def sending(*args: Any, **kwargs: Any) -> Any:
        if not is_effect() or not statements.is_one(args[1]):
            return send(*args, **kwargs)
        statements.die("before")
        answer = send(*args, **kwargs)
        statements.die("after")
        return answer

    return sending


def killed_at_async(send: Any) -> Any:
    async def sending(*args: Any, **kwargs: Any) -> Any:
        if not statements.is_one(args[1]):
            return await send(*args, **kwargs)
        statements.die("before")
        answer = await send(*args, **kwargs)
        statements.die("after")
        return answer

    return sending


driver.PlainConnection.wait = killed_at(driver.PlainConnection.wait)  # type: ignore[method-assign]
driver.AsyncPlainConnection.wait = killed_at_async(driver.AsyncPlainConnection.wait)  # type: ignore[method-assign]
blocking._execute = killed_at(blocking._execute)
blocking.run_script = killed_at(blocking.run_script)


def fails(event: Any) -> None:
    if event.attempt <= event.payload.get("fails", 0):
        raise ValueError("not yet")


def clean(session: Any) -> None:
    assert not [*session.new, *session.dirty, *session.identity_map.values()], "the state of another event"


def of_sqlalchemy() -> None:
    from killed_orm_models import Tally, Trace
    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session

    def count(event: Any, session: Session) -> None:
        clean(session)
        session.get_one(Tally, event.aggregate_id).total += 1
        session.add(Trace(aggregate=event.aggregate_id, seq=event.payload["seq"]))
        session.flush()
        fails(event)

    async def count_async(event: Any, session: AsyncSession) -> None:
        clean(session)
        (await session.get_one(Tally, event.aggregate_id)).total += 1
        session.add(Trace(aggregate=event.aggregate_id, seq=event.payload["seq"]))
        await session.flush()
        fails(event)

    handler = count_async if kind.startswith("async") else count
    outbox.register(handler, "Count", transactional="sqlalchemy", max_attempts=None)


def of_sqlmodel() -> None:
    from killed_orm_models import ModelTally, ModelTrace
    from sqlmodel import Session

    @outbox.on("Count", transactional="sqlalchemy", max_attempts=None)
    def count(event: Any, session: Session) -> None:
        clean(session)
        tally = session.get_one(ModelTally, event.aggregate_id)
        tally.total += 1
        session.add(ModelTrace(aggregate=event.aggregate_id, seq=event.payload["seq"]))
        session.flush()
        fails(event)


def of_django() -> None:
    import django
    from django.conf import settings
    from psycopg.conninfo import conninfo_to_dict

    given = conninfo_to_dict(os.environ["PARTBOX_DSN"])
    names = {"NAME": "dbname", "USER": "user", "HOST": "host", "PORT": "port"}
    database = {name: str(given.get(part, "")) for name, part in names.items()}
    settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", **database}})
    django.setup()
    from django.db import models

    class Tally(models.Model):
        aggregate = models.TextField(primary_key=True)
        total = models.IntegerField()

        class Meta:
            app_label, db_table = "shop", "tally"

    class Trace(models.Model):
        id = models.BigAutoField(primary_key=True)
        aggregate = models.TextField()
        seq = models.IntegerField()

        class Meta:
            app_label, db_table = "shop", "trace"

    @outbox.on("Count", transactional="django", max_attempts=None)
    def count(event: Any) -> None:
        tally = Tally.objects.get(aggregate=event.aggregate_id)
        tally.total += 1
        tally.save()
        Trace.objects.create(aggregate=event.aggregate_id, seq=event.payload["seq"])
        fails(event)


def of_psycopg() -> None:
    @outbox.on("Count", transactional=True, max_attempts=None)
    async def count(event: Any, conn: psycopg.AsyncConnection[Any]) -> None:
        await conn.execute("update tally set total = total + 1 where aggregate = %s", [event.aggregate_id])
        values = [event.aggregate_id, event.payload["seq"]]
        await conn.execute("insert into trace (aggregate, seq) values (%s, %s)", values)
        fails(event)


{"django": of_django, "sqlmodel": of_sqlmodel, "async psycopg": of_psycopg}.get(kind, of_sqlalchemy)()

if __name__ == "__main__":
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    with outbox.worker():
        while not told.wait(0.05):
            pass
