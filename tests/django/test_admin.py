"""The admin shows the log and what is dead, and acts on it as far as permissions go."""

from typing import Any

import psycopg

ASK = """
import re
from django.contrib.auth.models import Permission, User
from django.db import connection, transaction
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from shop.outbox import outbox
import partbox.django
from partbox.django.admin import _describe_states
from partbox.django.models import Record

def client(name, *permissions):
    user = User.objects.create(username=name, is_staff=True, is_superuser=not permissions)
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="partbox", codename__in=permissions))
    made = Client()
    made.force_login(user)
    return made

with transaction.atomic():
    for number in range(3):
        outbox.publish(connection, "Hopeless", {"secret": number}, aggregate_type="Order", aggregate_id=str(number),
                       headers={"x-api-key": "KEPT-BACK", "shop": "north"})
assert partbox.django.outbox().drain()
ids = [each.record_id for each in outbox.dead.list()]

chief, clerk, viewer = client("chief"), client("clerk", "view_dead", "replay_dead"), client("viewer", "view_record")
RECORDS, DEAD = "/admin/partbox/record/", "/admin/partbox/dead/"

def act(who, action, *chosen):
    data = {"action": action, "_selected_action": chosen}
    return who.post(DEAD, data, follow=True).content.decode()

def read(address, **asked):
    # The page, and the number of queries that it took.
    with CaptureQueriesContext(connection) as queries:
        page = chief.get(address, asked).content.decode()
    return page, len(queries)

with transaction.atomic():
    outbox.publish(connection, "Hopeless", None, aggregate_type="Order", aggregate_id="late")
all_, one = read(RECORDS), read(RECORDS, q="late")
print("states:", *re.findall('field-state">([^<]*)', all_[0]), *re.findall('field-state">([^<]*)', one[0]))
print("queries for each row:", all_[1] - one[1])
print("state of one:", "dead" in read(f"{RECORDS}{ids[0]}/change/")[0])
print("of two:", _describe_states({"a": "pending", "b": "dead", "c": "dead"}), _describe_states({}))
columns = re.findall('class="[^"]*column-([a-z_]+)', read(DEAD)[0])
print("columns:", *columns[:3])
print("listed:", chief.get(RECORDS).content.decode().count("field-event_type"))
print("searched:", chief.get(RECORDS, {"q": "1"}).content.decode().count("field-event_type"))
page = f"{RECORDS}{ids[0]}/change/"
print("payload:", "secret" in chief.get(page).content.decode(), "secret" in viewer.get(page).content.decode())
with connection.cursor() as cursor:  # as an older version stored it
    cursor.execute("update partbox.parked set last_error = last_error || ' password=KEPT-BACK'")
shown = chief.get(page).content.decode() + chief.get(DEAD).content.decode()
shown += chief.get(f"{DEAD}{ids[0]}/change/").content.decode()
print("secrets:", "KEPT-BACK" in shown, "north" in shown, "password=***" in shown)
print("guess of headers:", viewer.get(RECORDS, {"headers__shop": "north"}).status_code)
guess = {"payload__secret__lt": "1"}
print("filtered:", *(Record.objects.filter(**each).count() for each in (
    {"payload__secret": 1}, {"payload__secret__gte": 1}, {"payload": {"secret": 2}},
    {"payload__contains": {"secret": 2}}, {"payload__has_key": "secret"}, {"payload__isnull": True},
    {"headers__isnull": True}, {"payload__a__b__0": 1},
)))
print("guess:", chief.get(RECORDS, guess).status_code, viewer.get(RECORDS, guess).status_code)
print("ways:", [chief.get(RECORDS + "add/").status_code, chief.post(f"{DEAD}{ids[0]}/delete/").status_code,
                viewer.get(DEAD).status_code])
print("dead:", chief.get(DEAD).content.decode().count("no use"), chief.get(f"{DEAD}{ids[0]}/change/").status_code)
print("elsewhere:", chief.get(DEAD, {"subscription": "other"}).content.decode().count("no use"))
print("clerk:", "No action selected" in act(clerk, "discard", ids[0]), "1 record rep" in act(clerk, "replay", ids[0]))
with override_settings(PARTBOX={}):  # no outbox
    print("without:", chief.get(RECORDS).status_code, b"replay" in chief.get(f"{DEAD}?q=none").content)
print("with:", b"replay" in chief.get(f"{DEAD}?q=none").content)
print("chief:", "2 records discarded" in act(chief, "discard", *ids[1:]))
"""


def test_the_admin_shows_and_does_only_what_permissions_allow(migrated: Any, dsn: str) -> None:
    printed = migrated.run(ASK)

    said = [line for line in printed.splitlines() if line.partition(":")[0] in EXPECTED]
    assert dict(line.split(": ", 1) for line in said) == EXPECTED, printed
    with psycopg.connect(dsn) as conn:
        states = conn.execute("select state, count(*) from partbox.parked group by 1 order by 1").fetchall()
        assert states == [("discarded", 2), ("ready", 1)]
        logged = conn.execute("select change_message from django_admin_log order by id").fetchall()
        acted = conn.execute("select split_part(who, ' as ', 1), action from partbox.action order by id").fetchall()
    assert [text for (text,) in logged] == ["replayed", "discarded", "discarded"]
    assert acted == [("clerk", "dead replay"), ("chief", "dead discard"), ("chief", "dead discard")]


EXPECTED = {
    "states": "waiting dead dead dead waiting",
    "queries for each row": "0",
    "state of one": "True",
    "of two": "waiting (a); dead (b, c) no subscription",
    "columns": "record_id brief_error event_type",
    "listed": "4",
    "searched": "1",
    "payload": "True False",
    "filtered": "1 2 1 1 3 0 1 0",
    "secrets": "False True True",
    "guess of headers": "400",
    "guess": "200 400",
    "ways": "[403, 403, 403]",
    "dead": "3 200",
    "elsewhere": "0",
    "clerk": "True True",
    "without": "200 False",
    "with": "True",
    "chief": "True",
}
