"""`manage.py partbox_worker` and `partbox_relay`: workers that know Django."""

import json
import signal
from typing import Any

import psycopg
import pytest
from waiting import eventually

PUBLISH = """
from django.db import connection, transaction
from shop.outbox import outbox

with transaction.atomic():
    outbox.publish(connection, "OrderPlaced", {"total": 42}, aggregate_type="Order", aggregate_id="7")
"""

ENQUEUE = """
from datetime import timedelta
from django.db import transaction
from django.utils import timezone
from partbox.django.task_calls import exceptions
from shop import tasks

results = [tasks.add.using(run_after=timezone.now() - timedelta(days=1)).enqueue(40, b=2), tasks.fail.enqueue("oh")]
results.append(tasks.add.using(run_after=timezone.now() + timedelta(days=1)).enqueue(1, 2))
with transaction.atomic():
    gone = tasks.add.enqueue(0, 0)
    assert tasks.add.get_result(gone.id).status == "READY"
    transaction.set_rollback(True)
try:
    tasks.add.get_result(gone.id)
except exceptions.TaskResultDoesNotExist:
    print("rolled back")
try:
    tasks.add.using(priority=1)
except (getattr(exceptions, "InvalidTask", None) or exceptions.InvalidTaskError) as error:
    print("invalid:", error)
open("ids.json", "w").write(json.dumps([each.id for each in results]))
"""

REFUSED = """
from django.db import connection, transaction
from partbox.django.models import Record
from partbox.django.task_calls import exceptions
from shop import tasks
from shop.outbox import outbox

with transaction.atomic():
    for refused in (lambda: tasks.add.enqueue(object(), 1), lambda: outbox.publish(connection, "", 1)):
        try:
            refused()
        except Exception as error:
            print(type(error).__name__)
    kept = tasks.add.enqueue(20, 1)
    foreign = outbox.publish(connection, "OrderPlaced", 1)
try:
    tasks.add.enqueue(object(), 1)
except TypeError:
    print("of add:", Record.objects.filter(event_type="shop.tasks.add").count())
for strange in ("nonsense", "7", f"{int(kept.id.partition('.')[0]) + 1}.{foreign}"):
    try:
        tasks.add.get_result(strange)
    except exceptions.TaskResultDoesNotExist:
        print("no result")
"""

RESULTS = """
from shop import tasks

for id, task in zip(json.load(open("ids.json")), (tasks.add, tasks.fail, tasks.add)):
    found = task.get_result(id)
    print(found.status, found.args, found.kwargs, found.attempts, [each.exception_class for each in found.errors])
"""


def worker(project: Any, *words: str) -> str:
    return str(project.manage("partbox_worker", "--until-empty", "--processes", "1", *words))


def test_a_worker_delivers_what_was_published_in_an_atomic_block(migrated: Any) -> None:
    migrated.run(PUBLISH)
    assert "users: 0 order: {'total': 42}" in worker(migrated)


def test_tasks_are_events_of_the_callers_transaction(migrated: Any) -> None:
    said = migrated.run(ENQUEUE)
    assert "rolled back" in said
    assert "invalid: Backend does not support setting priority of tasks." in said

    printed = worker(migrated)

    assert "sum: 42" in printed
    assert "oh at attempt 1" in printed
    assert migrated.run(RESULTS).splitlines() == [
        "SUCCESSFUL [40] {'b': 2} 0 []",
        "FAILED ['oh'] {} 1 [<class 'LookupError'>]",
        "READY [1, 2] {} 0 []",
    ]


def test_a_refused_task_leaves_the_callers_transaction_as_it_was(migrated: Any) -> None:
    said = migrated.run(REFUSED).splitlines()
    assert said == ["TypeError", "PublishError", "of add: 1", *["no result"] * 3]


def test_the_django_command_has_the_options_and_the_errors_of_partbox(project: Any) -> None:
    said = project.manage("partbox_worker", "--help")
    assert {"--processes", "--until-empty", "--reload"} <= set(said.split())
    assert "partbox: setting lease = 0s (from --lease) is invalid" in project.manage(
        "partbox_worker", "--lease", "0s", code=1
    )
    assert "it needs DEBUG = True" in project.manage("partbox_worker", "--reload", code=1)


def test_a_relay_needs_no_dsn(migrated: Any) -> None:
    migrated.run(PUBLISH)
    target = migrated.folder / "sent.jsonl"
    migrated.manage("partbox_relay", "--to", f"file:{target}", "--until-empty", "--processes", "1")
    assert [json.loads(line)["data"] for line in target.read_text().splitlines()] == [{"total": 42}]


def test_a_password_of_any_characters_reaches_libpq(project: Any) -> None:
    secret = "a b'c\\d@/:%?\"é"
    options = {"sslmode": "disable", "pool": False, "connect_timeout": 7}
    project.databases["default"] |= {"PASSWORD": secret, "OPTIONS": options}
    printed = project.run(
        "from psycopg.conninfo import conninfo_to_dict\nfrom shop.outbox import outbox\n"
        "print(json.dumps(conninfo_to_dict(outbox.dsn)))"
    )
    found = json.loads(printed)
    assert found["password"] == secret
    assert (found["sslmode"], found["connect_timeout"]) == ("disable", "7")
    assert "pool" not in found


@pytest.mark.thorough
def test_a_worker_with_reload_ends_when_its_work_ends(migrated: Any) -> None:
    migrated.run(PUBLISH)
    words = ("partbox_worker", "--reload", "--until-empty", "--processes", "1")
    assert "has changed" not in migrated.manage(*words, DEBUG="1")


@pytest.mark.soak
def test_a_worker_with_reload_restarts_when_the_code_changes(migrated: Any, dsn: str) -> None:
    process = migrated.started("partbox_worker", "--reload", "--processes", "1", DEBUG="1")
    code, out = migrated.folder / "shop/outbox.py", migrated.folder / "greeted"
    with psycopg.connect(dsn, autocommit=True) as conn:
        eventually(lambda: conn.execute("select from partbox.instance").fetchone() is not None, timeout=120)
    code.write_text(code.read_text() + GREETED)
    eventually(lambda: "outbox.py has changed" in process.stderr.readline(), timeout=120)

    migrated.run(PUBLISH)
    eventually(out.exists, timeout=120)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 0
    process.close()


GREETED = """

@outbox.intercept
def greeting(event):
    from contextlib import nullcontext

    open("greeted", "a").write("x")
    return nullcontext()
"""
