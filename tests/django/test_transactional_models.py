"""Handlers with `transactional="django"`: models write in the transaction whose commit carries the cursor."""

from pathlib import Path
from typing import Any

import pytest
from shop_program import BEGIN

TESTS = Path(__file__).parents[1]  # the folder of the proxy


def test_effects_happen_once_and_in_order_and_hooks_run_after_their_commit(shop: Any) -> None:
    shop.run(
        BEGIN
        + """
for key in ("k", "l"):
    publish(key, *range(40))
publish("m", 1, then="fail_once")
publish("n", 1, then="undo_a_part")
work(lambda: len(SAID) == 82)
for key in ("k", "l"):
    assert [name for name in groups() if name[0] == key] == [f"{key}-{number}" for number in range(40)]
assert [name for name in groups() if name[0] == "m"] == ["m-1"]
assert [name for name in groups() if name[0] == "n"] == ["n-1", "n-1, once more"]
assert len({*SAID}) == 82 and all(there for _, there in SAID), SAID
"""
    )


def test_many_events_share_a_commit(shop: Any) -> None:
    shop.run(
        BEGIN
        + """
with connection.cursor() as cursor:
    cursor.execute("alter table auth_group add xid xid8 default pg_current_xact_id()")
publish("k", *range(40))
work(lambda: len(SAID) == 40)
with connection.cursor() as cursor:
    cursor.execute("select count(distinct xid) from auth_group")
    assert cursor.fetchone()[0] < 20
"""
    )


def test_a_handler_gets_its_state_and_its_dependencies_in_the_same_transaction(shop: Any) -> None:
    """An attempt that fails takes with it the rows that its provider has written."""
    shop.run(
        BEGIN
        + """
from collections.abc import Iterator
from typing import Annotated
from django.contrib.auth.models import Group
from fast_depends import Depends

class Names:
    prefix = "named"

@outbox.lifespan
def lifespan() -> Iterator[Names]:
    yield Names()

def group(event, state: Names):
    made = Group.objects.create(name=f"{state.prefix}-{event.payload['number']}-{event.attempt}")
    try:
        yield made
    finally:
        SAID.append(("closed", made.name))

@outbox.on("Named", transactional="django", retry="fixed:0.01")
def rename(event, state: Names, group: Annotated[Group, Depends(group)]):
    group.name += f"-by-{state.prefix}"
    group.save()
    if event.attempt == 1:
        raise ValueError("no")

with transaction.atomic():
    outbox.publish(connection, "Named", {"number": 7}, aggregate_type="Key", aggregate_id="k")
work(done)
assert groups() == ["named-7-2-by-named"], groups()
assert SAID == [("closed", "named-7-1-by-named"), ("closed", "named-7-2-by-named")], SAID
"""
    )


@pytest.mark.parametrize(
    ("then", "said"),
    [
        ("repeat_the_name", "duplicate key value violates unique constraint"),
        ("swallow", "the handler has caught a database error"),
        ("commit", "This is forbidden when an 'atomic' block is active"),
        ("roll_back", "This is forbidden when an 'atomic' block is active"),
        ("set_autocommit", "This is forbidden when an 'atomic' block is active"),
        ("close", "the transaction of the handler is gone"),
        ("say_commit", "the transaction of the handler is gone"),
        ("write_elsewhere", "a transactional handler cannot write on Django's connection 'other'"),
    ],
)
def test_a_failed_event_leaves_nothing_behind_and_the_others_are_committed(shop: Any, then: str, said: str) -> None:
    shop.run(
        BEGIN
        + f"""
publish("k", 1)
publish("l", 2, then={then!r})
publish("m", 3)
work(lambda: len(dead()) == 1 and sorted(groups()) == ["k-1", "m-3"])
assert {said!r} in dead()[0], dead()
assert sorted(SAID) == [("k-1", True), ("m-3", True)], SAID
"""
    )


def test_a_failing_hook_does_not_keep_other_hooks_from_being_called(shop: Any) -> None:
    told = shop.run(
        BEGIN
        + """
import logging
logging.basicConfig()
publish("k", 1, then="fail_in_a_hook")
publish("k", 2)
work(lambda: len(SAID) == 3)
assert SAID == [("k-1", True), ("behind", True), ("k-2", True)], SAID
assert groups() == ["k-1", "k-2"] and not dead()
"""
    )
    assert "a hook that ran after the commit has failed: ZeroDivisionError" in told


def test_events_that_a_handler_publishes_commit_or_roll_back_with_its_event(shop: Any) -> None:
    shop.run(
        BEGIN
        + """
publish("k", 1, then="publish")
work(lambda: ("echo", "k-1") in SAID)
assert SAID.count(("echo", "k-1")) == 1
"""
    )


def test_other_databases_may_be_read(shop: Any) -> None:
    shop.run(BEGIN + 'publish("k", 1, then="read_elsewhere")\nwork(lambda: SAID == [("k-1", True)])')


@pytest.mark.parametrize("age", [0, None])
def test_a_lost_or_expired_connection_is_replaced(shop: Any, age: int | None) -> None:
    """Lost: between two transactions. Old: with CONN_MAX_AGE = 0 there is none while there is nothing to do."""
    shop.databases["default"]["CONN_MAX_AGE"] = age
    shop.run(
        BEGIN
        + f"""
mine, before = [], set()
shop.outbox.handlers.intercept(lambda event: __import__("contextlib").nullcontext(mine.append(pid())))

def pid():
    return connection.connection.info.backend_pid

def asked(sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()

with outbox.worker():
    for number in range(3):
        publish("k", number)
        while len(SAID) <= number:
            time.sleep(0.01)  # between two looks: the handler says what it did in a list, which wakes nobody
        if {age!r} is None:
            asked(f"select pg_terminate_backend({{mine[-1]}})")
        else:
            while asked(f"select from pg_stat_activity where pid = {{mine[-1]}}"):
                time.sleep(0.01)  # between two looks at the server: it tells nobody when a session ends
assert groups() == ["k-0", "k-1", "k-2"]
assert len({{*mine}}) == 3, mine
"""
    )


def test_a_connection_that_hangs_is_cut_and_its_events_run_again(shop: Any) -> None:
    """At the release of a savepoint, which Django sends."""
    shop.environment |= {"PARTBOX_LEASE": "2", "PARTBOX_HEARTBEAT": "0.3", "PARTBOX_DSN": shop.dsn}
    shop.run(
        BEGIN
        + f"""
import sys
sys.path.append({str(TESTS)!r})
from hanging_proxy import hanging_proxy
from psycopg.conninfo import conninfo_to_dict
import logging

class Failures(logging.Handler):
    def emit(self, record):
        hung.append(record.getMessage())
        proxy.go_on()  # so that the server, too, ends that session, and with it what it has locked

logging.getLogger("partbox.worker").addHandler(Failures(logging.ERROR))
hung = []
shop.hang = lambda event, name: hung or hung.append(proxy.hang())
connection.ensure_connection()  # past the proxy, on which the worker's own goes
with hanging_proxy(connection.settings_dict["OTHER"]) as proxy:
    place = conninfo_to_dict(proxy.dsn)
    connections.settings["default"] |= {{"HOST": place["host"], "PORT": place["port"]}}
    publish("k", 1)
    publish("k", 2, then="hang")
    publish("k", 3)
    work(lambda: len(SAID) == 3)
assert len(hung) == 2 and "no answer within 3.0 s, so the connection was cut" in hung[1], hung
assert groups() == ["k-1", "k-2", "k-3"] and SAID == [(name, True) for name in groups()]
"""
    )


def test_the_database_of_the_alias_must_be_that_of_the_outbox(shop: Any, empty_dsn: str) -> None:
    from psycopg.conninfo import conninfo_to_dict

    shop.run(BEGIN + 'publish("k", 1)')  # else all is delivered, perhaps before the process has looked
    shop.databases["default"]["NAME"], outbox = str(conninfo_to_dict(empty_dsn)["dbname"]), shop.dsn
    told = shop.manage("partbox_worker", "--until-empty", "--processes", "1", "--dsn", outbox, code=1)
    assert "needs Django in the database of the outbox, and 'default' is another one" in told
    assert 'set PARTBOX["DATABASE"] to the alias of the former' in told


def test_the_database_alias_is_taken_from_the_setting(shop: Any) -> None:
    shop.databases["default"] = {**shop.databases["default"], "NAME": "postgres"}
    shop.environment["PARTBOX_APP"] = '{"DATABASE": "other"}'
    shop.run(
        BEGIN.replace("connection, connections, transaction", "connections, transaction").replace(
            "import time", "import time\nconnection = connections['other']"
        )
        + """
from django.contrib.auth.models import Group
shop.count_in_other = lambda event, name: Group.objects.using("other").create(name=f"{name}!")
with transaction.atomic("other"):
    outbox.publish(connection, "Other", None)
done = []

@outbox.on("Other", transactional="django")
def handle(event):
    Group.objects.using("other").create(name="there")
    transaction.on_commit(lambda: done.append(True), using="other")

work(lambda: done)
assert Group.objects.using("other").get().name == "there"
"""
    )


def test_autocommit_must_be_on(shop: Any) -> None:
    shop.run(BEGIN + 'publish("k", 1)')
    shop.databases["default"]["AUTOCOMMIT"] = False
    told = shop.manage("partbox_worker", "--until-empty", "--processes", "1", code=1)
    assert "needs AUTOCOMMIT, which 'default' has off" in told


def test_the_connection_must_be_one_of_psycopg_3(shop: Any) -> None:
    shop.run(
        """
import psycopg2
from django.db import connection
from partbox import SettingsError
from partbox.worker.runners.effects import django

class Old:
    alias, connection = "default", psycopg2.connect(connection.settings_dict["OTHER"])

try:
    django._check_connection(Old, None)
except SettingsError as error:
    assert "needs Django on psycopg 3, and 'default' uses psycopg2: use the engine" in str(error)
    assert "\\n" not in str(error)
else:
    raise AssertionError("it is taken")
finally:
    Old.connection.close()
"""
    )
