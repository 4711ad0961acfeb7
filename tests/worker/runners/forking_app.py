"""A process with a worker whose handlers fork: `forking_app.py DSN FILE MODE` runs until all is delivered.

Each start of a handler and each end of a forked process is a line in FILE: `ran KIND NUMBER`, `ended KIND STATUS`.
"""

import asyncio
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from partbox import Dead, Outbox
from partbox.observe.logs.setup import find_worker_level
from partbox.supervisor.child import Job
from partbox.supervisor.supervisor import Supervisor
from partbox.worker.runners.loop_hosts import find_loop_factory

DSN, FILE = sys.argv[1:3]
NUMBERS = 6
PATIENCE = 120.0  # seconds, on a busy machine

outbox = Outbox(DSN, retry="fixed:0")


def write(line: str) -> None:
    with open(FILE, "a") as file:
        file.write(line + "\n")


def ran(event: Any) -> None:
    write(f"ran {event.event_type} {event.payload}")


def forks(event: Any, in_child: Callable[[], Any]) -> Any:
    """Note the event; fork at the second one."""
    ran(event)
    if event.payload != 1:
        return None
    child = os.fork()
    if child == 0:
        return in_child()
    write(f"ended {event.event_type} {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}")
    return None


def fails() -> None:
    raise ValueError("in the child")


IN_CHILD: dict[str, Callable[[], Any]] = {
    "returns": lambda: None,
    "exits": lambda: sys.exit(3),
    "fails": fails,
    "asks": lambda: Dead("in the child"),
    "execs": lambda: os.execv(sys.executable, [sys.executable, "-c", "raise SystemExit(7)"]),
}


def forking(in_child: Callable[[], Any]) -> Callable[[Any], Any]:
    return lambda event: forks(event, in_child)


for name, in_child in IN_CHILD.items():
    outbox.on(name)(forking(in_child))


@outbox.on("async")
async def forks_in_the_loop(event: Any) -> Any:
    await asyncio.sleep(0.001)
    return forks(event, lambda: None)


@outbox.on("awaits")
async def awaits_in_the_child(event: Any) -> None:
    pid = os.getpid()
    forks(event, lambda: None)
    if os.getpid() != pid:
        future = FUTURES[0]
        await future  # of the parent's loop: it goes back to the loop, where others would be resumed


FUTURES: list[asyncio.Future[None]] = []


@outbox.on("neighbour")
async def waits_beside(event: Any) -> None:
    """Runs in the event loop all the while, and in no other process than this."""
    ran(event)
    pid = os.getpid()
    FUTURES.append(asyncio.get_running_loop().create_future())
    try:
        for _ in range(100):
            await asyncio.sleep(0.002)  # it waits in the loop while another handler forks
    finally:
        if os.getpid() != pid:
            write("went on in a child")
    write(f"ended neighbour {event.payload}")


@outbox.on_batch("lists", max_size=3)
def forks_with_a_list(events: Sequence[Any]) -> None:
    for event in events:
        forks(event, sys.exit)


@outbox.on("effects", transactional=True)
def forks_in_a_transaction(event: Any, conn: Any) -> None:
    conn.execute("select 1")
    forks(event, lambda: None)


@outbox.on("multiprocessing")
def uses_multiprocessing(event: Any) -> None:
    ran(event)
    if event.payload == 1:
        process = multiprocessing.get_context("fork").Process(target=write, args=("target multiprocessing",))
        process.start()
        process.join()
        write(f"ended multiprocessing {process.exitcode}")


@outbox.on("terminated")
def terminates_its_child(event: Any) -> None:
    ran(event)
    if event.payload == 1:
        process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
        process.start()
        process.terminate()
        process.join()
        write(f"ended terminated {process.exitcode}")


@outbox.on("subprocess")
def uses_subprocess(event: Any) -> None:
    ran(event)
    if event.payload == 1:
        done = subprocess.run([sys.executable, "-c", "raise SystemExit(5)"], preexec_fn=os.getpid, check=False)
        write(f"ended subprocess {done.returncode}")


KINDS = [*IN_CHILD, "async", "awaits", "lists", "effects", "multiprocessing", "terminated", "subprocess"]


def publish() -> None:
    with psycopg.connect(DSN) as conn:
        outbox.publish(conn, "neighbour", 0, aggregate_type="Key", aggregate_id="neighbour")
        for number in range(NUMBERS):
            for kind in KINDS:
                outbox.publish(conn, kind, number, aggregate_type="Key", aggregate_id=kind)


def prefork() -> None:
    """The application forks while its worker runs: the child leaves by all doors, and the parent goes on."""
    worker = outbox.worker(concurrency=2)
    worker.start()
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # a child that hangs ends by this
        worker.wake()
        worker.stop()
        del worker
        write("child stopped")
        sys.exit(0)
    wait_for(child)
    publish()
    assert worker.wait_until_empty(PATIENCE)
    worker.stop()


def supervise() -> None:
    """In a worker process; this one forks beside it, and its child must not touch it."""
    job = Job(
        outbox.settings,
        lambda: (outbox.handlers, outbox.codecs),
        lambda: DSN,
        "default",
        4,
        find_worker_level(outbox.settings),
    )
    supervisor = Supervisor(job, handlers=outbox.handlers, processes=1)
    supervisor.start()
    child = os.fork()
    if child == 0:
        supervisor.stop()
        supervisor.kill()
        supervisor.join(1)
        os._exit(0)
    wait_for(child)
    until = time.monotonic() + PATIENCE
    while not ((work := supervisor.find_outstanding_work()) and work.is_done) and time.monotonic() < until:
        time.sleep(0.05)
    write(f"restarts {supervisor.read_vitals().recent_deaths}")
    supervisor.stop()
    supervisor.join()


def wait_for(child: int) -> None:
    write(f"ended child {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}")


async def application() -> None:
    """The application's own loop runs the handlers; it forks, too, and its child has nothing of them."""
    async with outbox.worker(concurrency=4) as worker:
        child = os.fork()
        if child == 0:
            os._exit(0)
        wait_for(child)
        assert await asyncio.to_thread(worker.wait_until_empty, PATIENCE)


def main() -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    threading.current_thread().name = "main"
    mode = sys.argv[3]
    if mode == "prefork":
        prefork()
        return
    publish()
    if mode == "supervised":
        supervise()
        return
    if mode == "application":
        with asyncio.Runner(loop_factory=find_loop_factory(outbox.settings.event_loop)) as runner:
            runner.run(application())
        return
    with outbox.worker(concurrency=4) as worker:
        assert worker.wait_until_empty(PATIENCE)


if __name__ == "__main__":
    main()
