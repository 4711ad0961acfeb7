"""Test cases of Django, as its own test runner runs them."""

import django_runs

CASES = """from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase

from partbox import Outbox, PartboxError
from partbox.testing.django import PartboxMixin

outbox = Outbox("postgresql:///production")
handled = []

@outbox.on("OrderPlaced")
def bill(event):
    handled.append(event.payload)

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

    def test_nothing_was_published_in_another_test(self):
        self.assertEqual(self.published(), [])

class Committed(PartboxMixin, TransactionTestCase):
    outbox = outbox

    def test_everything_works(self):
        place(2)
        self.assertEqual(self.kit.published().payloads, [2])
        self.drain().assert_done()
        self.assertEqual(handled.pop(), 2)

    def test_everything_works_again(self):
        self.test_everything_works()
"""


def test_both_kinds_of_test_cases_have_a_kit(server, tmp_path):
    assert "Ran 4 tests" in django_runs.run(CASES, server.dsn, tmp_path)
