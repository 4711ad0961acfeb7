"""Each command of docs/import.md that takes a table is run on a table of the shape that it is for."""

import json
import re
import shlex
from pathlib import Path

import pytest

from partbox import Outbox
from partbox.cli import main

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "import.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```console\n\$ (partbox import --table .*?)^```", re.MULTILINE | re.DOTALL)
COMMANDS = {shlex.split(text)[3]: shlex.split(text.replace("\\\n", " ")) for text in BLOCK.findall(PAGE)}

HAND_WRITTEN = """
create table outbox (id bigserial primary key, kind text, order_id integer, body text, status text, tries integer,
                     last_error text, created_at timestamptz default now());
insert into outbox (kind, order_id, body, status, tries, last_error)
values ('OrderPlaced', 7, '{"total": 42}', 'new', 0, null), ('OrderPlaced', 8, '{}', 'failed', 9, 'no card'),
       ('OrderPlaced', 6, '{}', 'sent', 1, null)
"""
DEBEZIUM = """
create table outboxevent (id uuid primary key, aggregatetype varchar(255) not null, aggregateid varchar(255) not null,
                          type varchar(255) not null, payload jsonb, created_at timestamptz not null);
insert into outboxevent values (gen_random_uuid(), 'Order', '7', 'OrderPlaced', '{"total": 42}', '2026-02-01Z'),
                               (gen_random_uuid(), 'Order', '6', 'OrderPlaced', '{"total": 1}', '2026-01-01Z')
"""
PROCRASTINATE = """
create type procrastinate_job_status as enum
    ('todo', 'doing', 'succeeded', 'failed', 'cancelled', 'aborting', 'aborted');
create table procrastinate_jobs (id bigserial primary key, queue_name varchar(128) not null,
    task_name varchar(128) not null, priority integer not null default 0, lock text, queueing_lock text,
    args jsonb not null default '{}', status procrastinate_job_status not null default 'todo',
    scheduled_at timestamptz, attempts integer not null default 0);
insert into procrastinate_jobs (queue_name, task_name, lock, args, status, scheduled_at, attempts)
values ('default', 'OrderPlaced', '7', '{"total": 42}', 'todo', null, 0),
       ('default', 'OrderPlaced', null, '{}', 'failed', '2026-01-01Z', 3),
       ('default', 'OrderPlaced', null, '{}', 'succeeded', null, 1)
"""
NAMASTACK = """
create table outbox_record (id varchar(255) primary key, status varchar(20) not null, record_key varchar(255) not null,
    record_type varchar(255) not null, payload text not null, context text, created_at timestamptz not null,
    completed_at timestamptz, failure_count integer not null, failure_reason varchar(1000),
    next_retry_at timestamptz not null, partition_no integer not null, handler_id varchar(1000) not null);
insert into outbox_record
select gen_random_uuid()::text, status, '7', 'OrderPlaced', '{"total": 42}', '{"tenant": "x"}', now(), null, tries,
       error, now(), 5, handler
  from (values ('NEW', 0, null, 'orderHandler'), ('FAILED', 3, 'no card', 'orderHandler'),
               ('COMPLETED', 0, null, 'orderHandler'), ('NEW', 0, null, 'mailHandler'))
       as v (status, tries, error, handler)
"""
CELERY = """
create table orders (id serial primary key, total integer, placed_at timestamptz, confirmed_at timestamptz);
insert into orders (id, total, placed_at, confirmed_at)
values (7, 42, now() - interval '2 days', null), (8, 1, now() - interval '2 days', now()), (9, 1, now(), null)
"""
TABLES = {
    "public.outbox": (HAND_WRITTEN, 1, 1),
    "public.outboxevent": (DEBEZIUM, 1, 0),
    "public.procrastinate_jobs": (PROCRASTINATE, 1, 1),
    "public.outbox_record": (NAMASTACK, 1, 1),
    "public.orders": (CELERY, 1, 0),
}


def test_every_command_of_the_page_has_a_table_to_import():
    assert COMMANDS.keys() == TABLES.keys()


@pytest.mark.parametrize("table", TABLES)
def test_each_recipe_imports_a_table_of_the_shape_that_it_is_for(table, dsn, conn, monkeypatch, capsys):
    shape, pending, dead = TABLES[table]
    conn.execute(shape)
    monkeypatch.setenv("PARTBOX_DSN", dsn)
    command = [word for word in COMMANDS[table] if word != "--dry-run"]

    for expected in ((pending, dead), (0, 0)):
        with pytest.raises(SystemExit) as exit:
            main([*command[1:], "--json"])
        assert exit.value.code == 0
        done = json.loads(capsys.readouterr().out)
        assert (done["pending"], done["dead"], done["nothing_left"]) == (*expected, True)

    outbox, seen = Outbox(dsn), []
    outbox.on("OrderPlaced")(seen.append)
    assert outbox.drain()
    (event,) = seen
    assert (event.aggregate_id, event.payload["total"]) == ("7", 42)
    assert outbox.dead.count() == dead


def test_the_clean_up_of_the_page_is_sql_that_runs(dsn, conn):
    (statement,) = re.findall(r"`(delete from partbox\.imported [^`]+)`", PAGE)
    conn.execute("insert into partbox.imported values ('public.outbox', '1'), ('public.other', '1')")
    assert conn.execute(statement).rowcount == 1
