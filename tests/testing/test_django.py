"""Test cases of Django, as its own test runner runs them."""

import os
import subprocess
import sys

from psycopg.conninfo import conninfo_to_dict

PROGRAM = """
import os, sys, unittest
import django
from django.conf import settings

settings.configure(
    DATABASES={"default": {
        "ENGINE": "django.db.backends.postgresql", "NAME": "postgres", "USER": "postgres",
        "HOST": os.environ["DB_HOST"], "PORT": os.environ["DB_PORT"], "TEST": {"NAME": os.environ["DB_NAME"]},
    }},
    INSTALLED_APPS=[],
    USE_TZ=True,
)
django.setup()

from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase
from django.test.utils import get_runner

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

runner = get_runner(settings)(verbosity=1, interactive=False)
suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
old = runner.setup_databases()
try:
    result = runner.run_suite(suite)
finally:
    runner.teardown_databases(old)
sys.exit(not result.wasSuccessful())
"""


def test_both_kinds_of_test_cases_have_a_kit(server, tmp_path):
    place = conninfo_to_dict(server.dsn)
    environment = {**os.environ, "DB_HOST": str(place["host"]), "DB_PORT": str(place["port"]), "DB_NAME": "of_django"}
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ended = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Ran 4 tests" in ended.stderr
