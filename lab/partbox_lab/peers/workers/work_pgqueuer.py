"""A worker of PgQueuer with one entrypoint. With the argument `install`, it creates the schema instead."""

import json
import sys

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from reporting import RUN, handler, wait_for_go

SERIAL = RUN["order"] == "queue"


async def main() -> None:
    connection = await asyncpg.connect()
    if "install" in sys.argv:
        await Queries(AsyncpgDriver(connection)).install()
        return
    note = handler(lambda job: json.loads(job.payload)["number"])
    worker = PgQueuer(AsyncpgDriver(connection))

    @worker.entrypoint("handle", concurrency_limit=1 if SERIAL else 0)
    async def handle(job: Job) -> None:
        note(job)

    wait_for_go()
    await worker.run(batch_size=1 if SERIAL else 100)


if __name__ == "__main__":
    uvloop.run(main())
