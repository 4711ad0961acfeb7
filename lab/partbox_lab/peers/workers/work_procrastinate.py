"""A worker of procrastinate with one task. With the argument `install`, it creates the schema instead."""

import asyncio
import sys

from procrastinate import App, PsycopgConnector
from reporting import RUN, handler, wait_for_go

CONCURRENCY = 10
note = handler(lambda arguments: arguments["number"])
app = App(connector=PsycopgConnector(conninfo=RUN["dsn"], min_size=1, max_size=CONCURRENCY + 2))


@app.task(name="handle", queue="events")
async def handle(**arguments: object) -> None:
    note(arguments)


async def main() -> None:
    async with app.open_async():
        if "install" in sys.argv:
            await app.schema_manager.apply_schema_async()
            return
        wait_for_go()
        await app.run_worker_async(
            queues=["events"],
            concurrency=CONCURRENCY,
            delete_jobs="always",
            fetch_job_polling_interval=1.0,
            install_signal_handlers=False,
        )


if __name__ == "__main__":
    asyncio.run(main())
