"""The programs in README and docs are run as a reader would run them.

Each command is a process that is forked from one with partbox in it, a worker has one process; with `--soak` the
installed commands are run, and workers of two processes.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import django_runs
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from partbox.cli.commands.relay import choose_targets
from partbox.settings import load

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(document: str) -> list[str]:
    return BLOCK.findall((ROOT / document).read_text(encoding="utf-8"))


def test_the_program_of_the_readme_publishes_and_delivers(reader):
    (program,) = blocks("README.md")
    (reader.folder / "shop.py").write_text(program)

    reader("partbox", "init")
    reader("python", "shop.py")
    printed = reader("partbox", "worker", "shop:outbox", *reader.worker)

    assert "order 1 is confirmed: 42" in printed


def test_the_program_of_the_readme_is_about_twenty_lines(reader):
    program = blocks("README.md")[0]
    lines = [line for line in program.splitlines() if line.strip() and not line.startswith("#")]
    assert len(lines) <= 20


def test_the_program_of_the_page_on_handlers_ends_as_the_page_says(reader):
    (reader.folder / "app.py").write_text("\n".join(blocks("docs/handlers.md")))

    reader("partbox", "init")
    reader("python", "app.py")
    printed = reader("partbox", "worker", "app:outbox", *reader.worker)

    for line in (
        "order 1 is confirmed at attempt 1: 0 USD",
        "order 2 is confirmed at attempt 1: 3 EUR",  # by the upcast
        "order 1 is booked at https://carrier.example.org",
        "order 1 is recorded in 1 table",
        "dead: OrderPlaced of 0: a negative total",
        "OrderPaid of 1: 'amount'",
        "indexed 1 rows",
        "OrderCounted of 1: done",
        "UnroutableError: no handler for event type 'Unknown'",
    ):
        assert line in printed


def test_the_program_of_the_page_on_publishing_publishes_what_the_page_says(reader):
    (reader.folder / "app.py").write_text("\n".join(blocks("docs/publishing.md")))

    reader("partbox", "init")
    printed = reader("python", "app.py")
    printed += reader("partbox", "worker", "app:outbox", *reader.worker)

    assert printed.count("OrderPlaced order-7 42") == 1
    assert "OrderShipped {'order_id': 7, 'shop': 'paris'}" in printed
    assert "CartForgotten {'cart': 1}" in printed
    assert "committed: ['OrderPlaced']" in printed
    assert "welcome ada@example.org, 10% off" in printed
    assert "text/csv [['total', '42']]" in printed
    assert "order 7 is billed 42" in printed


def test_the_program_of_the_page_on_operations_does_what_the_page_says(reader):
    (reader.folder / "app.py").write_text("\n".join(blocks("docs/operations.md")))

    reader("partbox", "init")
    printed = reader("python", "app.py")

    assert printed.count("audit: OrderPlaced {'total': 42}") == 2
    assert "0 replayed" in printed
    assert "\nnothing\n" in printed  # is what a purge would do
    assert "balance: (58,)" in printed


def test_the_program_of_the_page_on_monitoring_shows_the_state_of_the_outbox(reader):
    (reader.folder / "look.py").write_text("\n".join(blocks("docs/monitoring.md")))

    reader("partbox", "init")
    printed = reader("python", "look.py")

    assert "{'pending': 0, 'completed': 0, 'retrying': 0," in printed
    assert "0 processes, 256 partitions unowned" in printed


FIRST = re.compile(r"^# (\w+\.py)$", re.MULTILINE)


@pytest.mark.thorough
def test_the_programs_of_the_page_on_integrations_publish_by_every_library(reader, empty_dsn):
    parts = conninfo_to_dict(empty_dsn)
    reader.environment |= {"PGHOST": parts["host"], "PGUSER": parts["user"], "PGDATABASE": parts["dbname"]}
    programs = {FIRST.search(block)[1]: block for block in blocks("docs/integrations.md")}

    reader("partbox", "init")
    printed = ""
    for name, program in programs.items():
        (reader.folder / name).write_text(program)
        printed += reader("python", name)

    for line in (
        "committed: ['OrderPlaced']",
        "committed, asynchronously: ['OrderPlaced']",
        "committed by Django: ['OrderPlaced']",
        "committed by asyncpg: ['OrderPlaced']",
        "by dishka: OrderConfirmed of 7, closed: False",
        "published by an adapter",
        "left to publish: []",
    ):
        assert line in printed
    with psycopg.connect(empty_dsn) as conn:
        counted = conn.execute("select event_type, count(*) from partbox.record group by 1 order by 1").fetchall()
    assert counted == [
        ("Allocated", 1),
        ("BasketFilled", 1),
        ("OrderConfirmed", 1),
        ("OrderCounted", 1_000),
        ("OrderPlaced", 5),
        ("OutOfStock", 1),
    ]


@pytest.mark.thorough
def test_the_page_on_evolving_events_says_what_the_commands_print(reader):
    first, second = (dict(zip(("domain.py", "shop.py"), pair, strict=True)) for pair in _pairs("docs/evolving.md"))
    promised = re.findall(r"^(?:OrderPlaced\.|all fits|1 ).*$", (ROOT / "docs/evolving.md").read_text(), re.MULTILINE)

    def put(files: dict[str, str], old: str = "", new: str = "") -> None:
        for name, program in files.items():
            (reader.folder / name).write_text(program.replace(old, new))

    check = ("partbox", "events", "check", "shop:outbox", "--against", "schemas")
    publish = "from shop import OrderPlaced, outbox\nwith outbox.transaction() as conn:\n    outbox.publish(conn, "
    reader("partbox", "init")
    put(first)
    printed = reader("partbox", "events", "shop:outbox", "--json-schema", "schemas") + reader(*check)
    (reader.folder / "place.py").write_text(f"{publish}OrderPlaced(order_id=1, total=42))")
    reader("python", "place.py")
    put(first, "total", "amount")
    printed += reader(*check, code=1)
    put(second)
    upcasted = reader(*check) + reader("partbox", "worker", "shop:outbox", *reader.worker)

    assert printed.splitlines() == promised
    assert "OrderPlaced has version 2 instead of 1, with an upcast: breaks nothing" in upcasted
    assert "order 1 over 42 EUR" in upcasted
    recipes = re.findall(r"^(?:- run:| +entry:).*", (ROOT / "docs/evolving.md").read_text(), re.MULTILINE)
    commands = [each for recipe in recipes for each in re.findall(r"partbox events [^&'\n]+", recipe)]
    assert len(commands) == 5
    for command in commands:
        reader(*command.replace("../main/", "").split())


def _pairs(document: str) -> list[list[str]]:
    found = blocks(document)
    return [found[:2], found[2:]]


STARTED = """
from django.core.management import call_command

call_command("startproject", "mysite", ".")
call_command("startapp", "shop")
"""
MIGRATED = """
import os, django

os.environ["DJANGO_SETTINGS_MODULE"] = "mysite.settings"
django.setup()
from django.core.management import call_command

call_command("makemigrations", "shop")
call_command("migrate")
"""
NAMED = re.compile(r"^# ([\w/]+\.py)", re.MULTILINE)


@pytest.mark.thorough
def test_the_project_of_the_page_on_django_gets_from_startproject_to_a_delivered_event(reader, empty_dsn):
    parts = conninfo_to_dict(empty_dsn)
    reader.environment |= {"PGHOST": parts["host"], "PGUSER": parts["user"], "PGDATABASE": parts["dbname"]}
    del reader.environment["PARTBOX_DSN"]
    manage = str(reader.folder / "manage.py")  # a fork does not know the folder in which it would have begun

    (reader.folder / "start.py").write_text(STARTED)  # two commands of the page in one process
    reader("python", "start.py")
    for block in blocks("docs/django.md"):
        with (reader.folder / NAMED.search(block)[1]).open("a") as file:
            file.write(block)
    (reader.folder / "migrate.py").write_text(MIGRATED)
    reader("python", "migrate.py")
    reader("python", manage, "test", "--noinput")
    reader("python", "place.py")
    printed = reader("python", manage, "partbox_worker", *reader.worker)

    assert "order 1 is confirmed: {'total': 42}" in printed
    assert "receipt of order 1" in printed
    assert reader("python", "fill.py") == "left to publish: []\n"
    with psycopg.connect(empty_dsn) as conn:
        counted = conn.execute("select count(*) from partbox.record where event_type = 'BasketFilled'").fetchone()
    assert counted == (2,)


TRACED = """
outbox.on("OrderPlaced")(print)
with outbox.transaction() as tx:
    outbox.publish(tx, "OrderPlaced", 1)
outbox.drain()
"""


def test_the_program_of_the_page_on_tracing_prints_spans_with_what_the_page_says_to_install(reader):
    (program,) = blocks("docs/tracing.md")
    (reader.folder / "app.py").write_text(program + TRACED)

    reader("partbox", "init")
    printed = reader("python", "app.py")

    assert {"publish OrderPlaced", "handle OrderPlaced", "poll"} <= set(re.findall(r'"name": "(.*)"', printed))
    (install,) = re.findall(r"^pip install (.*)$", (ROOT / "docs/tracing.md").read_text(encoding="utf-8"), re.MULTILINE)
    beside_the_api = {
        f"opentelemetry-{part}" for part in re.findall(r"^from opentelemetry\.(\w+)", program, re.MULTILINE)
    }
    assert {"'partbox[otel]'", *beside_the_api} == set(install.split())


REPORTED = """
from partbox import UnrecoverableError
from sentry_sdk.transport import Transport

class Printing(Transport):
    def capture_envelope(self, envelope):
        print(envelope.get_event()["fingerprint"])

sentry_sdk.get_client().transport = Printing()

@outbox.on("OrderPlaced")
def confirm(event):
    raise UnrecoverableError("no")

with outbox.transaction() as tx:
    outbox.publish(tx, "OrderPlaced", 1)
outbox.drain()
"""


def test_the_program_of_the_page_on_sentry_reports_a_failure(reader):
    (program,) = blocks("docs/sentry.md")
    (reader.folder / "app.py").write_text(program + REPORTED)

    reader("partbox", "init")
    printed = reader("python", "app.py")

    assert "['partbox', 'default', 'OrderPlaced', 'partbox.errors.UnrecoverableError']" in printed


def test_the_program_for_metrics_by_opentelemetry_prints_the_metrics(reader):
    (program,) = (block for block in blocks("docs/metrics.md") if "Metering" in block)
    (reader.folder / "app.py").write_text(program + TRACED)

    reader("partbox", "init")
    printed = reader("python", "app.py")

    names = set(re.findall(r'"name": "(partbox\..*)"', printed))
    assert {"partbox.published", "partbox.delivered", "partbox.lag_seconds"} <= names


@pytest.fixture
def tested(tmp_path):
    """The files of the page on testing, each named by the first line of its block."""
    page = (ROOT / "docs/testing.md").read_text(encoding="utf-8")
    for block in blocks("docs/testing.md"):
        name = block.splitlines()[0].removeprefix("# ")
        (tmp_path / name).write_text(block)
    (tmp_path / "pytest.ini").write_text(re.search(r"^```ini\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[1])
    return tmp_path


@pytest.mark.thorough
def test_the_tests_of_the_page_on_testing_pass(tested, server):
    environment = {name: value for name, value in os.environ.items() if name != "PARTBOX_TEST_BINARIES"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"]
    ended = subprocess.run(
        command,
        cwd=tested,
        env=environment | {"PARTBOX_TEST_DSN": server.dsn},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "12 passed" in ended.stdout, ended.stdout + ended.stderr


def test_the_django_test_cases_of_the_page_on_testing_pass(tested, server):
    assert "Ran 2 tests" in django_runs.run((tested / "django_cases.py").read_text(), server.dsn, tested)


def test_the_program_of_the_page_on_observers_counts_what_happens(reader):
    (reader.folder / "watch.py").write_text("\n".join(blocks("docs/observers.md")))

    reader("partbox", "init")
    printed = reader("python", "watch.py")

    assert printed == "[('confirm', 1), ('dead', 1), ('published', 2)]\n"


def test_the_page_on_observers_names_every_hook():
    from partbox.observe import Observer

    page = (ROOT / "docs/observers.md").read_text(encoding="utf-8")
    hooks = [name for name in vars(Observer) if not name.startswith("_")]
    assert hooks == [name for name in hooks if f"`{name}(" in page]


def test_the_page_on_errors_names_every_error():
    from partbox import errors

    page = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    raised = [name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, Exception)]
    assert raised == [name for name in raised if f"| `{name}" in page]


PRINTED = """
with outbox.transaction() as tx:
    outbox.publish(tx, "OrderPlaced", 1, aggregate_type="Order", aggregate_id="7")
outbox.drain()
"""


def test_the_programs_of_the_page_on_relay_register_sinks_and_send(reader):
    sinks, own = blocks("docs/relay.md")
    (reader.folder / "sinks.py").write_text(sinks)
    (reader.folder / "own.py").write_text(own + PRINTED)

    reader("partbox", "init")
    listed = reader("partbox", "handlers", "sinks:outbox", "--json")
    printed = reader("python", "own.py")

    assert {(row["event_type"], row["handler"].rpartition(".")[2]) for row in json.loads(listed)} == {
        ("OrderPlaced", "KafkaSink"),
        ("*", "WebhookSink"),
    }
    assert printed.startswith("order-events 7 b'1' ")


def test_events_can_be_sent_to_the_targets_of_the_page_on_relay(tmp_path, monkeypatch):
    (targets,) = re.findall(
        r"^```toml\n(.*?)^```", (ROOT / "docs/relay.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    (tmp_path / "partbox.toml").write_text(targets)
    monkeypatch.chdir(tmp_path)

    sent = choose_targets(load(), None, None)

    assert [target.handler for target in sent] == ["kafka", "billing", "file"]


def test_the_program_of_the_page_on_growing_has_a_handler(reader):
    (program,) = blocks("docs/growing.md")
    (reader.folder / "app.py").write_text(program)

    assert "OrderPlaced" in reader("partbox", "handlers", "app:outbox")
