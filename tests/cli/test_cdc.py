"""`partbox cdc debezium`: the configuration of a connector, and the SQL that prepares its database."""

import json
import re
from pathlib import Path

import psycopg
import pytest
from servers import execute

from partbox import Outbox
from partbox.cdc import Connector, ServerAddress, TopicRoute, connect, default_name, properties
from partbox.db.operator import cdc
from partbox.errors import SettingsError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cdc.md"
COLUMNS = "select column_name from information_schema.columns where table_schema = %s and table_name = 'record'"


@pytest.fixture
def role(server):
    """The name of a role that is dropped afterwards with all that it was granted in the server's databases."""
    yield "debezium_of_a_test"
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        conn.execute("drop role if exists debezium_of_a_test")


@pytest.fixture
def prepared(partbox, dsn, role):
    """Runs the SQL that the command prints; what it granted is taken back."""

    def prepare(*options: str) -> None:
        printed = partbox("cdc", "debezium", "--sql", "--dsn", dsn, "--role", role, *options)
        assert printed.code == 0
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute(printed.out.encode())

    yield prepare
    with psycopg.connect(dsn, autocommit=True) as conn:
        if conn.execute("select from pg_roles where rolname = %s", [role]).fetchone() is not None:
            conn.execute(f"drop owned by {role}")


def config(partbox, dsn, *options) -> dict[str, str]:
    printed = partbox("cdc", "debezium", "--dsn", dsn, *options)
    assert printed.code == 0, printed
    return json.loads(printed.out)["config"]


def test_every_column_that_the_configuration_names_is_one_of_the_log(partbox, dsn, conn):
    options = config(partbox, dsn)
    there = {name for (name,) in conn.execute(COLUMNS, ["partbox"])}
    router = {name.removeprefix("transforms.outbox."): value for name, value in options.items()}
    fields = {value for name, value in router.items() if name.startswith("table.field.event.")}
    placed = {each.split(":")[0] for each in router["table.fields.additional.placement"].split(",")}
    included = options["column.include.list"]
    assert {"event_id", "aggregate_id", "event_type", "payload"} == fields
    assert "event_type:header:eventType" in router["table.fields.additional.placement"]
    assert fields | placed | {router["route.by.field"]} <= there
    assert {name for name in there if re.fullmatch(included, f"partbox.record.{name}")} == fields | placed


def test_the_sql_statements_of_the_configuration_run_on_the_log(partbox, dsn, conn):
    options = config(partbox, dsn)
    for place in ("7", "8"):
        with conn.transaction():
            Outbox(dsn).publish(conn, "Placed", place, aggregate_id=place)
    with conn.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        rows = cursor.execute(options["snapshot.select.statement.overrides.partbox.record"]).fetchall()
    assert [(row["partition"], row["id"]) for row in rows] == sorted((row["partition"], row["id"]) for row in rows)
    assert {row["aggregate_id"] for row in rows} == {"7", "8"}
    conn.execute(options["heartbeat.action.query"])
    assert f"'{options['message.prefix.exclude.list']}'" in options["heartbeat.action.query"]


def test_the_connector_its_slot_and_its_publication_share_one_name(partbox, dsn, conn, prepared):
    database = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
    for options, name in (((), f"{database}_partbox"), (("--name", "orders_out"), "orders_out")):
        found = json.loads(partbox("cdc", "debezium", "--dsn", dsn, *options).out)
        named = ("slot.name", "publication.name", "topic.prefix")
        assert {found["name"], *(found["config"][each] for each in named)} == {name}
        prepared(*options)
        assert conn.execute("select from pg_publication where pubname = %s", [name]).fetchone() is not None


def test_each_missing_prerequisite_is_reported_on_a_line_of_its_own(partbox, dsn, conn, server, prepared, role):
    database = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
    name = f"{database}_partbox"

    def notes(*options: str) -> list[str]:
        ran = partbox("cdc", "debezium", "--dsn", dsn, "--role", role, *options)
        assert (ran.code, json.loads(ran.out)["name"]) == (0, name)
        assert all(line.startswith("partbox: ") for line in ran.err.splitlines())
        return [line.removeprefix("partbox: ") for line in ran.err.splitlines()]

    password, socket, level, publication = notes()
    assert f"the password of role {role!r} is not printed: ${{env:DEBEZIUM_PASSWORD}}" in password
    assert "Debezium connects by TCP" in socket
    assert level.startswith("wal_level is 'replica', with which no connector starts: `alter system set wal_level = lo")
    command = f"`partbox cdc debezium --sql --name {name} --role {role}`"
    assert publication.startswith(f"publication '{name}' is not there")
    assert command in publication
    execute(dsn, "create publication {} for table partbox.record", name)
    assert "does not publish inserts into the log by its root table" in notes()[-1]
    execute(dsn, "drop publication {}", name)
    prepared()
    assert notes()[3:] == []
    assert "a pooler passes no replication" in notes("--pooler")[2]


def test_only_the_sql_is_printed_and_it_can_run_again_when_the_role_exists(partbox, dsn, conn, prepared, role):
    ran = partbox("cdc", "debezium", "--sql", "--dsn", dsn, "--role", role)
    assert ran.out.startswith("-- purpose: ")
    assert ran.err.count("\n") == 1
    prepared()
    prepared("--name", "another")
    with pytest.raises(psycopg.errors.DuplicateObject):
        prepared("--name", "another")
    conn.execute("rollback")
    replicates, logs_in = conn.execute(
        "select rolreplication, rolcanlogin from pg_roles where rolname = %s", [role]
    ).fetchone()
    assert (replicates, logs_in) == (True, True)
    assert conn.execute("select has_table_privilege(%s, 'partbox.record', 'select')", [role]).fetchone() == (True,)
    assert conn.execute("select has_table_privilege(%s, 'partbox.parked', 'select')", [role]).fetchone() == (False,)


def test_the_connector_starts_with_the_existing_log_or_with_new_events_only(partbox, dsn):
    whole, later = config(partbox, dsn), config(partbox, dsn, "--from", "now")
    assert (whole["snapshot.mode"], later["snapshot.mode"]) == ("initial", "no_data")
    assert whole.items() - later.items() == {
        (name, value) for name, value in whole.items() if name.startswith("snapshot.")
    }


def test_a_writer_only_outbox_in_another_schema_gets_a_configuration_with_its_own_names(partbox, empty_dsn):
    assert partbox("init", "--writer-only", "--dsn", empty_dsn, "--schema", "shop-1").code == 0
    options = config(partbox, empty_dsn, "--schema", "shop-1")
    assert options["table.include.list"] == r"shop-1\.record"
    assert options["snapshot.select.statement.overrides"] == "shop-1.record"
    assert '"shop-1".record' in options["snapshot.select.statement.overrides.shop-1.record"]
    assert options["slot.name"].endswith("_shop_1")


def test_the_names_of_two_long_schemas_stay_apart() -> None:
    names = {default_name("shop", f"{'s' * 60}{each}") for each in "ab"}
    assert len(names) == 2
    assert {len(name) for name in names} == {63}


def test_a_schema_that_debezium_cannot_name_and_an_inbox_only_schema_are_refused(partbox, empty_dsn):
    for schema, options, said in (
        ("Orders & more", ("--writer-only",), "has characters that Debezium's lists of tables do not take"),
        ("inbox", ("--inbox-only",), "holds nothing but an inbox"),
    ):
        assert partbox("init", "--dsn", empty_dsn, "--schema", schema, *options).code == 0
        assert said in partbox("cdc", "debezium", "--dsn", empty_dsn, "--schema", schema).error


def test_no_password_is_printed(partbox, dsn):
    for options in ((), ("--format", "properties"), ("--sql",)):
        ran = partbox("cdc", "debezium", "--dsn", f"{dsn} password=s3cret", *options)
        assert ran.code == 0
        assert "s3cret" not in ran.out + ran.err


def test_the_properties_format_holds_the_same_options_as_the_json_document(partbox, dsn):
    ran = partbox("cdc", "debezium", "--dsn", dsn, "--format", "properties")
    lines = dict(line.replace("\\\\", "\\").split("=", 1) for line in ran.out.splitlines())
    document = json.loads(partbox("cdc", "debezium", "--dsn", dsn).out)
    assert document["config"].pop("database.password") == "${env:DEBEZIUM_PASSWORD}"
    assert lines == {"name": document["name"], **document["config"]}
    assert "the program that runs the engine sets database.password" in ran.err


def test_a_value_of_properties_is_ascii_and_one_line():
    assert properties("n", {"k": " a\\b\nü😀"}) == "name=n\nk=\\ a\\\\b\\n\\u00fc\\ud83d\\ude00\n"


def test_a_topic_template_may_contain_at_most_one_field():
    for template, field, replacement in (
        ("{aggregate_type}-events", "aggregate_type", "${routedByValue}-events"),
        ("shop.{event_type}", "event_type", "shop.${routedByValue}"),
        ("everything", "aggregate_type", "everything"),
    ):
        assert TopicRoute(template).options() == {"route.by.field": field, "route.topic.replacement": replacement}
    for wrong in ("", "{", "{}", "{aggregate_id}", "{event_type!r}", "{event_type:>9}", "a b", "a$1", "a\\", "{{x}}"):
        with pytest.raises(SettingsError):
            TopicRoute(wrong)


def connector(**given) -> Connector:
    made = {
        "name": "shop_partbox",
        "schema": "partbox",
        "role": "debezium",
        "address": ServerAddress("db.example.org", 5433, "shop", "verify-full"),
        "route": TopicRoute("{aggregate_type}-events"),
        "whole": True,
        "snapshot": cdc.connector_statement("snapshot", "partbox"),
        "heartbeat": cdc.connector_statement("heartbeat", "partbox"),
    }
    return Connector(**made | given)


def test_the_connector_address_comes_from_the_dsn_without_its_user_and_password():
    options = connector().options()
    place = {name: value for name, value in options.items() if name.startswith("database.")}
    assert place == {
        "database.hostname": "db.example.org",
        "database.port": "5433",
        "database.user": "debezium",
        "database.dbname": "shop",
        "database.sslmode": "verify-full",
    }
    assert "database.sslmode" not in connector(address=ServerAddress("db", 5432, "shop")).options()


def test_the_page_shows_what_the_command_prints():
    page = PAGE.read_text(encoding="utf-8")
    (document,) = re.findall(r"^```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (statements,) = re.findall(r"^```sql\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    made = connector(address=ServerAddress("db.example.org", 5432, "shop"))
    assert json.loads(document) == connect(made.name, made.options())

    def spoken(text: str) -> list[str]:
        return [line for line in text.splitlines() if line.strip() and not line.startswith("--")]

    assert spoken(statements) == spoken(cdc.setup_script("partbox", role="debezium", publication="shop_partbox"))
