"""Test cases of Django, as its own test runner runs them."""

import django_runs

CASES = """import asyncio
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase

from partbox import Outbox, PartboxError
from partbox.django.loading import FreshConnections
from partbox.testing.django import PartboxMixin

outbox = Outbox("postgresql:///production")
outbox.intercept(FreshConnections)  # as the app does, whose tests these may be
handled = []

@outbox.on("OrderPlaced")
def bill(event):
    handled.append(event.payload)

@outbox.on("Forwarded", transactional="django")
def forward(event):
    outbox.publish(connection, "OrderPlaced", event.payload)

@outbox.on("Sold", transactional="django")
def count(event):
    with connection.cursor() as cursor:
        cursor.execute("insert into sold values (%s)", [event.payload])
    transaction.on_commit(lambda: handled.append(event.payload))
    if event.payload == 13:
        raise ValueError("no")

def sold():
    with connection.cursor() as cursor:
        cursor.execute("select number from sold order by 1")
        return [number for (number,) in cursor.fetchall()]

def sell(*numbers):
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("create table if not exists sold (number int)")
        cursor.execute("truncate sold")
        for number in numbers:
            outbox.publish(connection, "Sold", number)

def place(total):
    with transaction.atomic():
        connection.ensure_connection()
        outbox.publish(connection.connection, "OrderPlaced", total, aggregate_id="7")

class InATransaction(PartboxMixin, TestCase):
    outbox = outbox

    def test_what_was_published_is_seen_and_handed_over_though_no_worker_sees_it(self):
        place(1)
        self.assertEqual(self.published("OrderPlaced", aggregate_id="7").payloads, [1])
        self.assertEqual(self.kit.published(), [])
        with self.assertRaisesRegex(PartboxError, "use a TransactionTestCase, or self.handle()"):
            self.drain()
        self.handle().assert_done()
        self.assertEqual(handled.pop(), 1)

    def test_a_handler_of_models_writes_into_the_transaction_of_the_test(self):
        sell(1, 13, 2)
        with self.captureOnCommitCallbacks(execute=True):
            self.assertEqual(self.handle("Sold").states, ["done", "retrying", "done"])
            self.assertEqual(handled, [])
        self.assertEqual((sold(), handled), ([1, 2], [1, 2]))
        handled.clear()

    def test_each_event_is_handled_once_and_those_that_handlers_publish_follow(self):
        outbox.publish(connection, "Forwarded", 3)
        self.assertEqual([each.event.event_type for each in self.handle()], ["Forwarded", "OrderPlaced"])
        self.assertEqual(handled.pop(), 3)
        place(4)
        self.assertEqual(self.handle("Forwarded"), [])
        self.assertEqual(len(self.handle().assert_done()), 1)
        self.assertEqual(handled, [4])
        handled.clear()

    def test_nothing_was_published_in_another_test(self):
        self.assertEqual(self.published(), [])

class Committed(PartboxMixin, TransactionTestCase):
    outbox = outbox

    def test_everything_works(self):
        place(2)
        self.assertEqual(self.kit.published().payloads, [2])
        self.drain().assert_done()
        self.assertEqual(handled.pop(), 2)

    def test_a_handler_of_models_commits_with_its_event(self):
        sell(1, 13, 2)
        self.assertEqual(self.drain().states, ["done", "retrying", "done"])
        self.assertEqual((sold(), handled), ([1, 2], [1, 2]))
        self.assertEqual(self.drain(), [])
        handled.clear()

    def test_a_handler_of_models_runs_in_the_thread_of_drain_async_and_leaves_no_connection_there(self):
        sell(1, 2)
        self.assertEqual(asyncio.run(self.kit.drain_async()).states, ["done", "done"])
        self.assertEqual(sold(), [1, 2])
        handled.clear()

    def test_everything_works_again(self):
        self.test_everything_works()
"""


def test_both_kinds_of_test_cases_have_a_kit(server, tmp_path):
    assert "Ran 8 tests" in django_runs.run(CASES, server.dsn, tmp_path)
