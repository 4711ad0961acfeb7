"""Remedies that errors and log lines propose: followed as they are named, and the state after it judged."""

import re
import shlex
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from waiting import eventually

from partbox import Outbox
from partbox.errors import PartboxError


def named(error: object, place: int = -1) -> list[str]:
    """The arguments of a command of ours that an error proposes."""
    return shlex.split(re.findall("`partbox ([^`]*)`", str(error))[place])


def test_a_publisher_without_an_outbox_names_the_init_that_makes_it(partbox, empty_dsn):
    outbox = Outbox(empty_dsn)
    with pytest.raises(PartboxError) as refused, psycopg.connect(empty_dsn) as conn:
        outbox.publish(conn, "T", 1)
    assert partbox(*named(refused.value), "--dsn", empty_dsn).code == 0
    with psycopg.connect(empty_dsn) as conn:
        assert outbox.publish(conn, "T", 1) is not None


@pytest.mark.parametrize("place", [0, 1])
def test_a_consumer_without_an_inbox_names_the_inits_that_make_one(partbox, empty_dsn, place):
    inbox = Outbox(empty_dsn).inbox
    with pytest.raises(PartboxError) as refused, psycopg.connect(empty_dsn) as conn:
        inbox.first_time(conn, uuid4(), "billing")
    assert partbox(*named(refused.value, place), "--dsn", empty_dsn).code == 0
    with psycopg.connect(empty_dsn) as conn:
        assert inbox.first_time(conn, uuid4(), "billing")


def test_a_worker_of_a_subscription_that_is_missing_names_the_command_that_makes_it(partbox, dsn, conn):
    outbox, came = Outbox(dsn), []
    outbox.on("T", subscription="audit log")(lambda event: came.append(event.payload))
    with pytest.raises(PartboxError) as refused, outbox.worker(subscription="audit log"):
        pass
    assert partbox(*named(refused.value), "--dsn", dsn).code == 0
    with outbox.worker(subscription="audit log"):
        with conn.transaction():
            outbox.publish(conn, "T", 1)
        eventually(lambda: came == [1])


def test_init_for_a_missing_role_names_the_statement_that_creates_it(partbox, dsn, conn):
    asked = ("init", "--worker-role", "Night shift", "--dsn", dsn)
    statement = re.findall("`([^`]*)`", partbox(*asked).error)[0]
    conn.execute(f'{statement} "Night shift"')
    try:
        assert partbox(*asked).code == 0
        assert conn.execute("select has_table_privilege('Night shift', 'partbox.record', 'select')").fetchone() == (
            True,
        )
    finally:
        conn.execute('drop owned by "Night shift"; drop role "Night shift"')


def test_a_database_of_another_encoding_names_the_statement_that_makes_a_fit_one(partbox, dsn, conn):
    name = conninfo_to_dict(dsn)["dbname"]
    conn.execute(f"create database {name}_latin encoding 'LATIN1' locale 'C' template template0")
    try:
        error = partbox("init", "--dsn", make_conninfo(dsn, dbname=f"{name}_latin")).error
        conn.execute(re.findall("`([^`]*)`", error)[0].replace("...", f"{name}_utf"))
        assert partbox("init", "--dsn", make_conninfo(dsn, dbname=f"{name}_utf")).code == 0
    finally:
        for made in ("latin", "utf"):
            conn.execute(f"drop database if exists {name}_{made} with (force)")


def test_a_schema_with_subscriptions_becomes_writer_only_after_the_drop_that_is_named(partbox, dsn):
    asked = ("init", "--writer-only", "--dsn", dsn)
    drop = named(partbox(*asked).error)
    assert partbox(*(word.replace("NAME", "default") for word in drop), "--yes", "--dsn", dsn).code == 0
    assert partbox(*asked).code == 0
