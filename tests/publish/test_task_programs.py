"""Tasks of a program, in its worker processes and in those of its module."""

import os
import subprocess
from pathlib import Path

from forked_commands import Forks

PROGRAM = """
import os
import sys
from decimal import Decimal

import psycopg
from pydantic import BaseModel

from partbox import Outbox
from partbox.events import DeliveredEvent

outbox = Outbox()


class Address(BaseModel):
    street: str


def note(*words):
    with open(sys.argv[1], "a") as file:
        file.write(" ".join(map(str, words)) + "\\n")


@outbox.task
def greet(name: str, address: Address, price: Decimal, event: DeliveredEvent):
    assert type(address) is Address, type(address)
    note("greeted", name, address.street, price.quantize(Decimal("0.01")), event.attempt, os.getpid())
    with outbox.transaction() as tx:
        follow.publish(tx, name=name)


@outbox.task(name="follow-up")
async def follow(name: str):
    note("followed", name)


def made():
    @outbox.task
    def nested(name: str):
        note("nested", name)
        if name == "Bob":
            with outbox.transaction() as tx:
                again.options(idempotency_key="again").publish(tx, name="Cy")

    @outbox.task
    def again(name: str):
        note("again", name)

    return nested


nested = made()

if __name__ == "__main__":
    with psycopg.connect(outbox.dsn) as conn:
        greet.publish(conn, name="Ada", address={"street": "Elm"}, price="1.5")
        nested.publish(conn, name="Bob")
        conn.commit()
    print(greet.name, nested.name, os.getpid())
    sys.exit(outbox.run(processes=2, until_empty=True))
"""


def test_tasks_of_a_program_travel_to_its_worker_processes(dsn: str, tmp_path: Path, forks: Forks) -> None:
    ended = run(forks, tmp_path, dsn, PROGRAM)
    assert ended.returncode == 0, ended.stderr
    assert "Warning" not in ended.stderr
    *names, parent = ended.stdout.split()
    assert names == ["shop.greet", "shop.made.nested"]
    lines = (tmp_path / "notes").read_text().splitlines()
    greeted, pid = next(line for line in lines if line.startswith("greeted")).rsplit(" ", 1)
    assert (greeted, pid != parent) == ("greeted Ada Elm 1.50 1", True)
    assert sorted(line for line in lines if not line.startswith("greeted")) == [
        "again Cy",
        "followed Ada",
        "nested Bob",
    ]


def test_a_task_that_only_the_main_program_has_names_the_remedy(dsn: str, tmp_path: Path, forks: Forks) -> None:
    program = """
import sys
from partbox import Outbox

if __name__ == "__main__":
    outbox = Outbox(error_limit=300)

    @outbox.task
    def greet(name: str):
        pass

    import dill
    from partbox.tasks.task import import_runner

    handlers = dill.dumps(outbox.handlers)
    del greet
    try:
        dill.loads(handlers)
    except Exception as error:
        print(type(error).__name__, error)
"""
    ended = run(forks, tmp_path, dsn, program)
    assert ended.stdout.startswith("RegistrationError there is no task __main__.greet in a worker process: "), ended


def test_a_worker_of_a_module_delivers_the_tasks_that_the_program_published(
    dsn: str, tmp_path: Path, forks: Forks
) -> None:
    run(forks, tmp_path, dsn, PROGRAM.replace("sys.exit(outbox.run(processes=2, until_empty=True))", ""))
    worker = ["partbox", "worker", "shop:outbox", "--until-empty", "--processes=1"]
    environment = environ(dsn) | {"PYTHONPATH": str(tmp_path)}
    program = PROGRAM.replace("sys.argv[1]", repr(str(tmp_path / "notes")))
    (tmp_path / "shop.py").write_text(program)
    process = forks.start(*worker, cwd=tmp_path, env=environment)
    _, said = process.communicate()
    assert process.returncode == 0, said
    assert "followed Ada" in (tmp_path / "notes").read_text()


def run(forks: Forks, folder: Path, dsn: str, program: str) -> subprocess.CompletedProcess[str]:
    (folder / "shop.py").write_text(program)
    process = forks.start("python", str(folder / "shop.py"), str(folder / "notes"), cwd=folder, env=environ(dsn))
    out, err = process.communicate()
    return subprocess.CompletedProcess(process.args, process.wait(), out, err)


def environ(dsn: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PARTBOX_")}
    return kept | {"PARTBOX_DSN": dsn}
