"""A shop whose handlers have `transactional="django"`, and the begin of each program that is run in it."""

HANDLERS = '''

import os

from django.contrib.auth.models import Group
from django.db import IntegrityError, connection, connections, transaction

SAID = []

def groups():
    """As others see them."""
    import psycopg

    with psycopg.connect(connection.settings_dict["OTHER"]) as other:
        return [name for (name,) in other.execute("select name from auth_group order by id")]

@outbox.on("Count", transactional="django", max_attempts=2, retry="fixed:0.01")
def count(event):
    name = f"{event.aggregate_id}-{event.payload['number']}"
    Group.objects.create(name=name)
    transaction.on_commit(lambda: SAID.append((name, name in groups())))
    event.payload.get("then") and globals()[event.payload["then"]](event, name)

def fail_once(event, name):
    if event.attempt == 1:
        raise ValueError("no")

def repeat_the_name(event, name):
    Group.objects.create(name=name)

def swallow(event, name):
    try:
        Group.objects.create(name=name)
    except IntegrityError:
        pass

def undo_a_part(event, name):
    try:
        with transaction.atomic():
            transaction.on_commit(lambda: SAID.append(("undone", True)))
            Group.objects.create(name=name)
    except IntegrityError:
        Group.objects.create(name=f"{name}, once more")

def fail_in_a_hook(event, name):
    transaction.on_commit(lambda: 1 / 0)
    transaction.on_commit(lambda: SAID.append(("behind", True)))

def publish(event, name):
    outbox.publish(connection, "Echo", {"name": name}, aggregate_type="Key", aggregate_id="e")
    if event.attempt == 1:
        raise ValueError("no")

def commit(event, name):
    connection.commit()

def roll_back(event, name):
    connection.rollback()

def set_autocommit(event, name):
    transaction.set_autocommit(True)

def close(event, name):
    connection.close()

def say_commit(event, name):
    with connection.cursor() as cursor:
        cursor.execute("rollback")

def write_elsewhere(event, name):
    Group.objects.using("other").create(name=f"{name}, elsewhere")

def read_elsewhere(event, name):
    list(Group.objects.using("other").all())

@outbox.on("Echo")
def echo(event):
    SAID.append(("echo", event.payload["name"]))
'''

BEGIN = """
from django.db import connection, connections, transaction
from shop import outbox as shop
from shop.outbox import SAID, groups, outbox
import time

def publish(key, *numbers, **more):
    with transaction.atomic():
        for number in numbers:
            outbox.publish(connection, "Count", {"number": number, **more}, aggregate_type="Key", aggregate_id=key)

def work(until):
    with outbox.worker():
        end = time.monotonic() + 60
        while not until() and time.monotonic() < end:
            time.sleep(0.01)  # between two looks: a program has no signal of what the worker does
        assert until(), (SAID, groups(), dead())

def dead():
    return [each.error for each in outbox.dead.list()]

def done():
    return outbox.stats.cluster("default").pending == 0
"""
