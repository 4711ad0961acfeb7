"""Transactional handlers beside Django's ORM, which has connections of its own: refused, or in the transaction."""

from typing import Any

import pytest

from partbox.publish.integrations.django import _only_reads

HANDLERS = """

from django.contrib.auth.models import Group
from django.db import connection, transaction
from partbox import PartboxError

def group(name):
    return f"insert into auth_group (name) values ('{name}')"

@outbox.on("Wrong", transactional=True, max_attempts=1)
def write_by_orm(event, conn):
    conn.execute(group("wrong, by the right connection"))
    with transaction.atomic():
        Group.objects.count()
        Group.objects.create(name="wrong")

@outbox.on("WrongSql", transactional=True, max_attempts=1)
def write_by_cursor(event, conn):
    with connection.cursor() as cursor:
        cursor.execute(group("wrong"))

@outbox.on("WrongEvent", transactional=True, max_attempts=1)
def publish_there(event, conn):
    with transaction.atomic():
        outbox.publish(connection, "OrderPlaced", None)

@outbox.on("Right", transactional=True, max_attempts=1)
def write(event, conn):
    assert not Group.objects.filter(name="right").exists()
    conn.execute(group("right"))

@outbox.on("Plain", max_attempts=1)
def write_once(event):
    with transaction.atomic():
        if outbox.inbox.first_time(connection, event, "groups"):
            Group.objects.create(name="plain")
"""

PUBLISH = """
from django.db import connection, transaction
from shop.outbox import outbox

with transaction.atomic():
    for name in ("Wrong", "WrongSql", "WrongEvent", "Right", "Plain"):
        outbox.publish(connection, name, None)
"""

SHOW = """
from django.contrib.auth.models import Group
from shop.outbox import outbox

print("groups:", sorted(Group.objects.values_list("name", flat=True)))
for dead in outbox.dead.list():
    print("dead:", dead.event_type, dead.error)
"""


@pytest.fixture
def shop(migrated: Any) -> Any:
    module = migrated.folder / "shop/outbox.py"
    module.write_text(module.read_text() + HANDLERS)
    return migrated


def test_writes_of_the_orm_outside_the_handlers_transaction_are_refused_and_leave_nothing(shop: Any) -> None:
    shop.run(PUBLISH)
    shop.manage("partbox_worker", "--until-empty", "--processes", "1")
    told = shop.run(SHOW)
    assert "groups: ['plain', 'right']" in told
    for name in ("Wrong", "WrongSql", "WrongEvent"):
        assert f"dead: {name} a transactional handler cannot write on Django's connection 'default'" in told
    assert told.count("dead: ") == 3


def test_a_worker_without_the_django_app_refuses_writes_of_the_orm_too(shop: Any) -> None:
    """As `partbox worker` does where the outbox only publishes on Django's connections."""
    assert "groups: ['plain', 'right']" in shop.run(
        f"{PUBLISH}\nassert not outbox.handlers.interceptors\noutbox.drain()\n{SHOW}"
    )


def test_a_django_check_names_transactional_handlers_that_write_by_the_orm(shop: Any) -> None:
    told = shop.manage("check")
    assert "(partbox.W004) Django's ORM cannot write in the transaction of these transactional handlers" in told
    assert "shop.outbox.write_by_orm" in told
    assert "write_once" not in told


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1", " \n(select 1) union (select 2)", "-- why\nselect 1", "/* insert */ select 1 for update",
        "with x as (select 1) select * from x", "SAVEPOINT s1", "RELEASE SAVEPOINT s1", "ROLLBACK TO SAVEPOINT s1",
        "SET LOCAL x = 1", "explain select 1", "values (1)", "show all", "select 'updated'", "table x",
    ],
)  # fmt: skip
def test_statements_that_only_read_are_allowed(sql: str) -> None:
    assert _only_reads(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "insert into x values (1)", "UPDATE x SET a = 1", "/* select */ delete from x", "merge into x using y on true",
        "with x as (insert into y values (1) returning *) select * from x", "explain analyze delete from x",
        "truncate x", "create table x ()", "drop table x", "alter table x add y int", "copy x from stdin", "call f()",
        "do $$ begin end $$", "refresh materialized view x", "lock table x", "notify x", "",
    ],
)  # fmt: skip
def test_statements_that_may_write_are_refused(sql: str) -> None:
    assert not _only_reads(sql)
