"""Events that share a transaction of Django are kept apart: settings, context variables, commits and locks."""

from typing import Any

import pytest
from shop_program import BEGIN

SHARED = """
import contextvars
import partbox.worker.runners.transaction

partbox.worker.runners.transaction.LONGEST = 60.0
OF_EVENT = contextvars.ContextVar("OF_EVENT", default="nobody")
FOUND = []

@outbox.on("Scripted", transactional="django", max_attempts=1, retry="fixed:0.01")
def scripted(event):
    FOUND.append(OF_EVENT.get())
    number = event.payload["number"]
    OF_EVENT.set(str(number))
    transaction.on_commit(lambda: SAID.append((number, OF_EVENT.get())))
    with connection.cursor() as cursor:
        for statement in event.payload["run"]:
            cursor.execute(statement)

def script(*runs):
    with transaction.atomic():
        for number, run in enumerate(runs):
            payload = {"number": number, "run": run}
            outbox.publish(connection, "Scripted", payload, aggregate_type="Key", aggregate_id="k")

def effects(column="number"):
    with connection.cursor() as cursor:
        cursor.execute(f"select {column} from effect order by number")
        return [value for (value,) in cursor.fetchall()]

with connection.cursor() as cursor:
    cursor.execute("create table effect (number int, seen text)")
"""


def test_settings_and_variables_of_an_event_reach_its_hooks_and_not_the_next_event(shop: Any) -> None:
    """What Django has set on its connection, as its time zone, does."""
    shop.run(
        BEGIN
        + SHARED
        + """
SEEN = (
    "insert into effect values ({}, concat_ws('|', current_setting('app.tenant', true), current_user,"
    " current_setting('search_path'), current_setting('statement_timeout'), current_setting('TimeZone')))"
)
CHANGES = [
    "select set_config('app.tenant', 'acme', true)", "set search_path = pg_catalog", "set local role pg_monitor",
    "set role pg_monitor", "set statement_timeout = 77000", "set time zone 'Asia/Tokyo'",
    "create temporary table t (n int)", "create temporary table t (n int)",
]
script([SEEN.format(0)], *[run for n, change in enumerate(CHANGES, 1) for run in ([change], [SEEN.format(n)])])
work(done)
assert len({seen.strip("|") for seen in effects("seen")}) == 1, effects("seen")
assert len(effects()) == 9 and dead() == []
assert FOUND == ["nobody"] * 17, FOUND
assert SAID == [(number, str(number)) for number in range(17)], SAID
"""
    )


@pytest.mark.parametrize("end", [["commit"], ["commit", "begin"]])
def test_events_that_ran_before_an_event_that_commits_are_done(shop: Any, end: list[str]) -> None:
    shop.run(
        BEGIN
        + SHARED
        + f"""
end = {end}
script(*[[f"insert into effect values ({{number}})", *(end if number == 5 else [])] for number in range(10)])
work(lambda: dead() and done())
assert effects() == [*range(10)], effects()
assert len(FOUND) == 10, FOUND
assert [number for number, _ in SAID] == [0, 1, 2, 3, 4, 6, 7, 8, 9], SAID
assert ["the handler has committed it" in error for error in dead()] == [True], dead()
"""
    )


def test_an_event_that_waits_for_a_lock_does_not_hold_the_locks_of_other_events(shop: Any) -> None:
    shop.run(
        BEGIN
        + SHARED
        + """
import psycopg

with connection.cursor() as cursor:
    cursor.execute("insert into effect values (1, 'one'), (2, 'two')")
count = "update effect set seen = seen || '+' where number = {}"
other = psycopg.connect(connection.settings_dict["OTHER"])
other.execute(count.format(2))
script([count.format(1)], [count.format(2)], ["select 1"])

def freed():
    if effects("seen")[0] == "one+" and not other.closed:
        other.execute(count.format(1))
        other.commit()
        other.close()
    return other.closed and done()

work(freed)
assert effects("seen") == ["one++", "two++"] and dead() == []
"""
    )
