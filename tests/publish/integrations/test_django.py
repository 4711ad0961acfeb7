"""Django's own traps: test cases, requests, manual transactions, other databases."""

import sys
import types
import unittest
from collections.abc import Iterator
from typing import Any
from unittest import mock

import psycopg
import pytest
from kits import configure_django, install_django
from reading import count

from partbox import Event, Outbox
from partbox.errors import PublishError

EVENT = Event("OrderPlaced", {"id": 42})
MANY = [Event("T", n) for n in range(20)]


@pytest.fixture
def outbox(dsn: str) -> Outbox:
    return Outbox(dsn)


@pytest.fixture
def connection(dsn: str) -> Iterator[Any]:
    connections = install_django(dsn)
    yield connections["default"]
    connections.close_all()


def test_an_after_rollback_hook_is_refused_naming_the_transaction_that_reports_rollbacks(
    outbox: Outbox, connection: Any, conn: psycopg.Connection[Any]
) -> None:
    from django.db import transaction

    outbox.after_rollback(lambda events: None)
    message = r"Django reports only commits.* leave out after_rollback hooks, or .*outbox.transaction\(\)"
    with transaction.atomic(), pytest.raises(PublishError, match=message):
        outbox.publish(connection, EVENT)
    assert count(conn) == 0


def test_a_transaction_managed_by_hand_takes_events_but_no_hooks(
    outbox: Outbox, connection: Any, conn: psycopg.Connection[Any]
) -> None:
    connection.set_autocommit(False)
    outbox.publish(connection, EVENT)
    connection.rollback()
    outbox.publish_many(connection, MANY)
    connection.commit()
    outbox.after_commit(lambda events: None)
    with pytest.raises(PublishError, match=r"cannot report .* only in `transaction.atomic\(\)`"):
        outbox.publish(connection, EVENT)
    connection.rollback()
    connection.set_autocommit(True)
    assert count(conn) == 20


def test_each_alias_is_a_database_of_its_own(outbox: Outbox, connection: Any, conn: psycopg.Connection[Any]) -> None:
    from django.db import connections, transaction

    with transaction.atomic(using="other"):
        with pytest.raises(PublishError, match=r"there is no transaction.* `with transaction.atomic\(\):`"):
            outbox.publish(connection, EVENT)
        outbox.publish(connections["other"], EVENT)
    with pytest.raises(PublishError, match=r"ConnectionHandler has no transaction to publish in: .*connections\["):
        outbox.publish(connections, EVENT)
    assert count(conn) == 1


def test_a_database_that_is_not_postgresql_is_refused(outbox: Outbox) -> None:
    configure_django()
    from django.db.utils import ConnectionHandler

    handler = ConnectionHandler({"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
    with pytest.raises(PublishError, match="database 'default' is sqlite: publish on a PostgreSQL connection"):
        outbox.publish(handler["default"], EVENT)
    handler.close_all()


def test_an_atomic_block_that_must_be_rolled_back_takes_no_events(
    outbox: Outbox, connection: Any, conn: psycopg.Connection[Any]
) -> None:
    from django.db import transaction

    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(PublishError, match="the transaction has failed: roll back"):
            outbox.publish(connection, EVENT)
    with transaction.atomic():
        connection.connection.close()
        with pytest.raises(PublishError, match="the connection is closed or broken"):
            outbox.publish(connection, EVENT)
        transaction.set_rollback(True)
    assert count(conn) == 0


def test_an_error_in_a_hook_ends_neither_the_commit_nor_the_callbacks_of_others(
    outbox: Outbox, connection: Any, conn: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    from django.db import transaction

    seen: list[str] = []

    @outbox.after_commit
    def fail(events: list[Event]) -> None:
        raise LookupError("hook trouble")

    with transaction.atomic():
        outbox.publish(connection, EVENT)
        transaction.on_commit(lambda: seen.append("another's"))
    assert seen == ["another's"]
    assert "hook trouble" in caplog.text
    assert count(conn) == 1


def test_a_django_test_case_captures_the_hooks_and_its_events_are_gone_afterwards(
    outbox: Outbox, connection: Any, conn: psycopg.Connection[Any]
) -> None:
    from django.db import connection as proxy
    from django.db import transaction
    from django.test import TestCase

    committed: list[int] = []
    outbox.after_commit(lambda events: committed.append(len(events)))

    class Shop(TestCase):
        def test_without(self) -> None:
            with transaction.atomic():
                outbox.publish(proxy, EVENT)
            assert committed == []

        def test_with(self) -> None:
            with self.captureOnCommitCallbacks(execute=True), transaction.atomic():
                outbox.publish_many(proxy, MANY)
            assert committed == [20]

    for name in ("test_without", "test_with"):
        result = unittest.TestResult()
        unittest.TestSuite([Shop(name)]).run(result)
        assert (result.testsRun, result.errors, result.failures) == (1, [], [])
    assert committed == [20]
    assert count(conn) == 0


def test_atomic_requests_are_transactions(outbox: Outbox, connection: Any, conn: psycopg.Connection[Any]) -> None:
    from django.db import connection as proxy
    from django.db import connections
    from django.http import HttpResponse
    from django.test import Client, override_settings
    from django.urls import path

    def placed(request: Any) -> HttpResponse:
        outbox.publish(proxy, "OrderPlaced", dict(request.GET.items()))
        if "fail" in request.GET:
            raise LookupError("later in the view")
        return HttpResponse("placed")

    urls: Any = types.ModuleType("urls_of_the_test")
    urls.urlpatterns = [path("placed", placed)]
    committed: list[Any] = []
    outbox.after_commit(lambda events: committed.append(events[0].payload))
    with (
        mock.patch.dict(sys.modules, {"urls_of_the_test": urls}),
        mock.patch.dict(connections.settings["default"], ATOMIC_REQUESTS=True),
        override_settings(ROOT_URLCONF="urls_of_the_test", ALLOWED_HOSTS=["*"], MIDDLEWARE=[]),
    ):
        client = Client()
        assert client.get("/placed?n=1").content == b"placed"
        with pytest.raises(LookupError, match="later in the view"):
            client.get("/placed?fail=1")
    assert committed == [{"n": "1"}]
    assert count(conn) == 1


def test_events_before_and_after_a_savepoint_that_failed_are_published(
    outbox: Outbox, connection: Any, conn: psycopg.Connection[Any]
) -> None:
    from django.db import DataError, transaction

    with transaction.atomic():
        outbox.publish(connection, EVENT)
        with pytest.raises(DataError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("select 1 / 0")
        outbox.publish(connection, EVENT)
    assert count(conn) == 2
