"""Every command with wrong inputs: each is one line that says what to do, an exit code, and no traceback.

A command without three wrong inputs in the table fails here too.
"""

import contextlib
import io
import sys
from collections import Counter
from typing import Any, NamedTuple

import psycopg
import pytest

from partbox.cli import command as whole
from partbox.cli import main

AWAY = "postgresql://shop:s3cret@127.0.0.1:1/shop"
CHECK = "check --dsn or PARTBOX_DSN, and that the server runs"
READ = "the DSN cannot be read"
LENGTH = 'give seconds, or a text such as "250ms"'
THERE = "there is 'default'"
INIT = "run `partbox init --schema nowhere`"

SHOP = """
from partbox import Outbox

outbox = Outbox()


@outbox.on("OrderPlaced")
def confirm(event): ...
"""

WRONG: list[tuple[str, int, str]] = [
    # The command line itself.
    ("statsu", 2, "did you mean `partbox status`?"),
    ("replay", 2, "did you mean `partbox dead replay` or `partbox subscription replay`?"),
    ("xyzzy", 2, "`partbox --help` lists the commands"),
    ("--verson", 2, "did you mean --version?"),
    ("dead lst", 2, "did you mean `partbox dead list`?"),
    ("status --dsn dbname=a --dsn dbname=b", 2, "--dsn was given more than once: this command works on one database"),
    ("dead list --dsn=dbname=a --dsn dbname=b", 2, "--dsn was given more than once"),
    # Start here.
    ("init --shcema orders", 2, "did you mean --schema?"),
    ("init --writer-only --inbox-only", 1, "give one of them"),
    ("init --schema pg_mine", 1, 'does not begin with "pg_"'),
    ("init --publisher-role nobody_here", 1, "nobody_here"),
    ("init --inbox-only --worker-role me", 1, "grant"),
    ("init --dsn embedded:/proc/x", 1, "such as embedded:./db"),
    (f"init --dsn {AWAY}", 1, CHECK),
    ("init --dsn nonsense", 1, READ),
    ("demo --rate 0", 2, "for example `partbox demo --seconds 30`"),
    ("demo --processes 99", 2, "for example `partbox demo"),
    ("demo --seconds soon", 2, "--seconds 'soon' "),
    ("demo --no-choas", 2, "did you mean --no-chaos?"),
    # Run.
    ("worker", 2, "needs MODULE:OUTBOX: for example `partbox worker shop:outbox"),
    ("worker shop", 1, "such as shop:outbox"),
    ("worker shop:outbx", 1, "did you mean shop:outbox?"),
    ("worker shop.py:outbox", 1, "write shop:outbox"),
    ("worker nowhere:outbox", 1, "run the command in the folder that holds nowhere"),
    ("worker shop:outbox --processes 0", 2, "--processes '0' "),
    ("worker shop:outbox --processes many", 2, "--processes 'many' "),
    ("worker shop:outbox --processes 1000", 1, "from 1 to 256"),
    ("worker shop:outbox --concurency 4", 2, "did you mean --concurrency?"),
    ("worker shop:outbox --lease soon", 1, LENGTH),
    ("worker shop:outbox --lease 1s", 1, "lower heartbeat or raise lease"),
    ("worker shop:outbox --log-format xml", 1, "'text' or 'json'"),
    ("worker shop:outbox --http everywhere", 1, "such as 127.0.0.1:9464"),
    ("worker shop:outbox --dead-to kafka:", 1, "use file:PATH"),
    ("worker shop:outbox --subscription audti", 1, "there are handlers of 'default'"),
    ("worker shop:outbox --schema nowhere", 1, INIT),
    ("worker shop:outbox --dsn", 2, "--dsn needs a value"),
    ("relay", 2, "give --to, for example `partbox relay --to stdout:`, or [[partbox.relay]] in partbox.toml"),
    ("relay --topic orders", 2, "--topic goes with --to, which is missing"),
    ('relay --relay [{"to":"kafka://a"},{"to":"nats://b"}]', 1, "targets 1 and 2 have the type '*'"),
    ('relay --relay [{"to":"ftp://u:s3cret@there"}]', 1, "target 1 of relay (from --relay): 'ftp://u:***@there' is no"),
    ('relay --relay [{"to":"stdout:","topic":"{key}"}]', 1, "target 1 of relay (from --relay): topic '{key}' names"),
    ('relay --relay [{"to":"https://h","secret":"s3cret"}]', 1, "whsec_ and the base64 of 24 to 64 bytes"),
    ("relay --to https://h --webhook-secret s3cret", 1, "whsec_ and the base64 of 24 to 64 bytes"),
    ("relay --to kafka://u:s3cret@h", 1, "?sasl.username="),
    ("relay --to ftp://there", 1, "use kafka://"),
    ("relay --to kafka://", 1, "write kafka://HOST:9092"),
    ("relay --to file:/no/such/folder/events", 1, "No such file or directory"),
    ("relay --to stdout: --topic {key}", 1, "there are {aggregate_type}"),
    ("relay --to stdout: --from tomorrow", 1, "is no time"),
    (f"worker shop:outbox --dsn {AWAY}", 1, CHECK),
    ("cdc debezum", 2, "did you mean `partbox cdc debezium`?"),
    ("cdc debezium --format xml", 2, "for example `partbox cdc debezium --sql | psql shop`"),
    ("cdc debezium --topic {tenant_id}", 1, "the fields are {aggregate_type} and {event_type}"),
    ("cdc debezium --topic {event_type}-{aggregate_type}", 1, "router takes one"),
    ("cdc debezium --topic a/b", 1, "must consist of letters a to z, digits"),
    ("cdc debezium --name Shop", 1, "must have 1 to 63 letters a to z"),
    ("cdc debezium --role a$b", 1, "none of them $"),
    ("cdc debezium --schema nowhere", 1, INIT),
    (f"cdc debezium --dsn {AWAY}", 1, CHECK),
    # Look.
    ("status --every soon", 1, LENGTH),
    ("status --every 0", 1, "at least 100ms"),
    ("status --subscription defualt", 1, "did you mean 'default'?"),
    ("status --schema nowhere", 1, INIT),
    ("status --schema partbx", 1, "which has 'partbox' (did you mean it?)"),
    (f"status --dsn {AWAY}", 1, CHECK),
    (f"status --watch --dsn {AWAY}", 1, CHECK),
    ("status everything", 2, "`partbox status --help`"),
    ("segments --schema nowhere", 1, INIT),
    (f"segments --dsn {AWAY}", 1, CHECK),
    ("segments everything", 2, "`partbox segments --help`"),
    ("find --record seven", 1, "--record 'seven' is no record id, such as 42"),
    ("find --event 4711", 1, "--event '4711' is no event id: event ids are UUIDs"),
    ("find --ended ded", 1, "--ended 'ded' is no ending: did you mean 'dead'?"),
    ("find --since soon", 1, "--since 'soon' is no time"),
    ("find --type=", 1, "--type is empty: name it"),
    ("find --limit 0", 1, "--limit 0 must be a whole number above 0"),
    ("find --limit 201", 1, "limit 201 is too much: give at most 200"),
    ("find 7 --key 8", 1, "give one of them alone to search by"),
    ("find 7 8", 2, "`partbox find --help`"),
    ("find --failed-between 1h", 2, "--failed-between"),
    ("find --failed-between 2h 1h --since 1h", 2, "leave out --since"),
    ("find --subscription audit", 1, THERE),
    ("find --schema nowhere", 1, INIT),
    (f"find --dsn {AWAY}", 1, CHECK),
    ("actions --action replya", 1, "--action 'replya' is none: did you mean 'replay'?"),
    ("actions --subscription audit", 1, THERE),
    ("actions --since soon", 1, "--since 'soon' is no time"),
    ("actions --limit 0", 1, "--limit 0 must be a whole number above 0"),
    ("actions --schema nowhere", 1, INIT),
    (f"actions --dsn {AWAY}", 1, CHECK),
    ("top", 1, "`partbox status --watch`"),
    ("top --every soon", 1, LENGTH),
    ("top --evry 1s", 2, "did you mean --every?"),
    ("dashboard --http everywhere", 1, "such as 127.0.0.1:9464"),
    ("dashboard --http-token short", 1, "16 or more"),
    ("dashboard --schema nowhere", 1, INIT),
    (f"dashboard --dsn {AWAY}", 1, CHECK),
    ("config --window many", 1, "use a whole number"),
    ("config --window_bytes 1", 2, "did you mean --window-bytes?"),
    ("config --retry often", 1, "exponential:0.2:60:2"),
    ("config --metrics-prefix 9", 1, "such as shop_outbox"),
    ("config nowhere:outbox", 1, "run the command in the folder that holds nowhere"),
    ("grafana exprot", 2, "did you mean `partbox grafana export`?"),
    ("grafana export", 2, "needs DIR: for example `partbox grafana export grafana`"),
    ("grafana export /proc/grafana", 1, "name a folder that you may write to"),
    ("grafana export shop.py", 1, "cannot write shop.py"),
    ("grafana export there --froce", 2, "did you mean --force?"),
    # Mend.
    ("doctor --transactions-over soon", 1, LENGTH),
    ("doctor --heartbeat 5s", 1, "lower heartbeat or raise lease"),
    ("doctor --strct", 2, "did you mean --strict?"),
    ("dead list --limit 0", 1, "--limit 0 must be a whole number above 0"),
    ("dead list --limit many", 2, "--limit 'many' "),
    ("dead list --older-than soon", 1, f"--older-than 'soon' is no length of time: {LENGTH}"),
    ("dead list --type=", 1, "--type is empty: name it"),
    ("dead list --aggregate-type=", 1, "--aggregate-type is empty: name it"),
    ("dead list --subscription audit", 1, THERE),
    ("dead show", 2, "needs ID: for example `partbox dead show 4711"),
    ("dead show no", 1, "such as 42"),
    ("dead show 4711", 1, "`partbox dead list` shows"),
    ("dead count --older-than -1", 1, LENGTH),
    ("dead count --schema nowhere", 1, INIT),
    (f"dead count --dsn {AWAY}", 1, CHECK),
    ("dead replay", 1, "`partbox dead replay 42`"),
    ("dead replay 42 --all", 1, "leave out --all"),
    ("dead replay 42", 1, "`partbox dead list` shows"),
    ("dead discard", 1, "`partbox dead discard 42`"),
    ("dead discard no", 1, "such as 42"),
    ("dead discard 42 --subscription audit", 1, THERE),
    ("blocked list --limit 0", 1, "--limit 0 must be a whole number above 0"),
    ("blocked list --subscription audit", 1, THERE),
    (f"blocked list --dsn {AWAY}", 1, CHECK),
    ("blocked retry Order", 2, "needs AGGREGATE_ID: for example `partbox blocked retry Order 7`"),
    ("blocked retry Order 7", 1, "`partbox blocked list`"),
    ("blocked retry Order 7 --schema nowhere", 1, INIT),
    ("blocked skip Order", 2, "for example `partbox blocked skip Order 7"),
    ("blocked skip Order 7", 1, "`partbox blocked list`"),
    ("blocked skip Order 7 --subscription audit", 1, THERE),
    # Operate.
    ("migrate --schema nowhere", 1, INIT),
    ("migrate --schema partbx", 1, "which has 'partbox' (did you mean it?)"),
    ("migrate --sql --schema pg_mine", 1, 'does not begin with "pg_"'),
    (f"migrate --dsn {AWAY}", 1, CHECK),
    ("purge --every soon", 1, LENGTH),
    ("purge --every 0", 1, "must be more than 0"),
    ("purge --every 1h --dry-run", 1, "leave --every out"),
    ("purge --schema nowhere", 1, INIT),
    ("purge --archive s3://", 1, "names no bucket: write s3://BUCKET/PREFIX"),
    ("purge --archive nonsense://x", 1, "nonsense:// is unknown: name a directory, or s3://BUCKET/PREFIX"),
    ("purge --archive file://host/x", 1, "write file:///srv/archive"),
    ("purge --archive gs://bucket", 1, "the library for gs:// is missing: pip install gcsfs"),
    ("purge --archive /x --no-archive", 1, "--no-archive goes without --archive"),
    ("purge --no-archive --dry-run", 1, "--no-archive goes without --dry-run"),
    ("import", 2, "needs --table or --archive"),
    ("import --table orders --archive /x", 1, "keep one"),
    ("import --archive /x --map payload=*", 1, "--map is for a table: leave it out"),
    ("import --table orders --since 2026-01-01", 1, "--since is for an archive: leave it out"),
    ("import --archive /x --since soon", 1, "'soon' is no time: write it in ISO 8601"),
    ("import --archive /nowhere/at/all", 1, "No such file or directory: create it, or name another place"),
    ("import --archive /proc/self/fd", 1, "holds no file record-*.jsonl.zst"),
    ("import --archive /nowhere.jsonl.zst", 1, "/nowhere.jsonl.zst': No such file or directory"),
    ("import --table orders --map event_type=kind", 1, "no column is mapped to payload: give --map payload=COLUMN"),
    ("import --table orders --map payload=*", 1, "no column is mapped to event_type: give --map event_type=COLUMN"),
    ("import --table nowhere --map event_type=kind --map payload=*", 1, "table 'nowhere' does not exist"),
    ("import --table orders --map kind=kind", 1, "'kind' is not a field of an event: there are event_type, payload"),
    ("rebase --timeout soon", 1, f"--timeout 'soon' is no length of time: {LENGTH}"),
    ("rebase --schema nowhere", 1, INIT),
    ("rebase --yes", 1, "--force"),
    (f"rebase --dsn {AWAY}", 1, CHECK),
    ("subscription create", 2, "needs NAME: for example `partbox subscription create audit`"),
    ("subscription create default", 1, "choose another name"),
    ("subscription create audit --from soon", 1, "--from 'soon' is no time: write it in ISO 8601"),
    ("subscription create audit --from 2999-01-01T00:00Z", 1, "--from 2999"),
    ("subscription list --json --schema nowhere", 1, INIT),
    (f"subscription list --dsn {AWAY}", 1, CHECK),
    ("subscription list default", 2, "`partbox subscription list --help`"),
    ("subscription pause", 2, "needs NAME: for example"),
    ("subscription pause audit", 1, THERE),
    (f"subscription pause default --dsn {AWAY}", 1, CHECK),
    ("subscription resume", 2, "needs NAME: for example"),
    ("subscription resume audit", 1, THERE),
    ("subscription resume default --schema nowhere", 1, INIT),
    ("subscription replay default", 2, "needs --from: for example"),
    ("subscription replay default --from soon", 1, "--from 'soon' is no time: write it in ISO 8601"),
    ("subscription replay default --from 0 --yes", 1, "--from 0 is no record id"),
    (
        "subscription replay default --from 1 --yes --timeout soon",
        1,
        f"--timeout 'soon' is no length of time: {LENGTH}",
    ),
    ("subscription replay default --from 1", 1, "repeat the command with --yes"),
    ("cancel", 1, "by its id or by its idempotency key: give one of them"),
    ("cancel 7", 1, "'7' is a str and no UUID"),
    ("cancel --key k", 1, "`partbox find k` tells what became of it"),
    ("cancel --key k --schema nowhere", 1, INIT),
    ("limit list --subscription audit", 1, THERE),
    ("limit list --schema nowhere", 1, INIT),
    ("limit list shop.confirm", 2, "`partbox limit list --help`"),
    ("limit set", 1, "HANDLER is missing: give a handler, a handler and a value, an event type, or a tenant"),
    ("limit set shop.confirm", 1, "--rate is missing, and so is at_once: give one of them"),
    ("limit set shop.confirm --rate 100", 1, "--rate '100' is not a rate: write it like"),
    ("limit set shop.confirm --at-once 0", 1, "--at-once '0' must be a whole number from 1"),
    ("limit set shop.confrim --rate 1/s --app shop:outbox", 1, "did you mean 'shop.confirm'?"),
    ("limit set shop.confirm --rate 1/s --app nowhere:outbox", 1, "in the folder that holds nowhere"),
    ("limit reset", 1, "HANDLER is missing: give a handler, a handler and a value"),
    ("limit reset shop.confirm --subscription audit", 1, THERE),
    ("limit reset shop.confirm --schema nowhere", 1, INIT),
    ("subscription drop", 2, "needs NAME: for example"),
    ("subscription drop default", 1, "repeat the command with --yes"),
    ("subscription drop audit --yes", 1, THERE),
    # Develop.
    ("handlers", 2, "for example `partbox handlers shop:outbox`"),
    ("handlers shop:outbx", 1, "did you mean shop:outbox?"),
    ("handlers shop:outbox --subscription defautl", 1, "did you mean 'default'?"),
    ("handlers shop:outbox --subscription audit", 1, "register one, @outbox.on(…, subscription='audit')"),
    ("handlers shop:outbox --subscription audit --json", 1, "shop:outbox has some for 'default'"),
    ("events list", 2, "for example `partbox events shop:outbox`"),
    ("events list shop:outbx", 1, "did you mean shop:outbox?"),
    ("events list shop", 1, "such as shop:outbox"),
    ("events shop:outbox --jsn", 2, "did you mean --json?"),
    ("events check shop:outbox", 2, "events check needs --against: for example"),
    ("events check shop:outbox --against nowhere", 1, "`partbox events MODULE:OUTBOX --json-schema nowhere`"),
    ("events check shop:outbx --against .", 1, "did you mean shop:outbox?"),
    ("metrics --metrics-prefix 9", 1, "such as shop_outbox"),
    ("metrics --jsn", 2, "did you mean --json?"),
    ("metrics all", 2, "`partbox metrics --help`"),
    ("bench --quik", 2, "did you mean --quick?"),
    ("bench --only drain-curser", 2, "did you mean drain-cursor?"),
    ("bench --plot bench.txt", 1, "name a file such as bench.svg or bench.png"),
    ("bench --dsn nonsense", 1, "postgresql://"),
    ("chaos", 2, "give either --dsn DSN or --embedded"),
    ("chaos --embedded --faults everything", 2, "there are all, none, kill-process"),
    ("chaos --embedded --nodes 99", 2, "for example `partbox chaos --embedded --seconds 60`"),
    ("chaos --embedded --schema pg_mine", 2, 'does not begin with "pg_"'),
]


class Ran(NamedTuple):
    code: int
    out: str
    err: str


def run(*typed: str) -> Ran:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as exit:
        main(typed)
    return Ran(int(exit.value.code or 0), out.getvalue(), err.getvalue())


def faults(typed: str, code: int, remedy: str) -> str | None:
    """What is wrong about how it ended; None if nothing is."""
    ran = run(*typed.split())
    sys.modules.pop("shop", None)  # with the options of that command line
    one_line = ran.err.startswith("partbox: ") and ran.err.count("\n") == 1 and ran.err.endswith("\n")
    if (ran.code, ran.out) == (code, "") and one_line and remedy in ran.err and "s3cret" not in ran.err:
        return None
    return f"`partbox {typed}` must end with {code} and say {remedy!r} in one line, and was: {ran}"


def commands(group: Any, path: str = "") -> list[str]:
    found = []
    for name, command in group.commands.items():
        at = f"{path} {name}".strip()
        found += commands(command, at) if hasattr(command, "commands") else [at]
    return found


@pytest.fixture
def shop(here, dsn, monkeypatch):
    """A folder with an application, and its database."""
    (here / "shop.py").write_text(SHOP)
    monkeypatch.setenv("PARTBOX_DSN", dsn)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    path = list(sys.path)
    yield
    sys.path[:] = path


def test_every_wrong_input_is_one_line_with_the_remedy(shop):
    wrong = [said for row in WRONG if (said := faults(*row)) is not None]
    assert not wrong, "\n".join(wrong)


def test_every_command_has_three_wrong_inputs_in_the_table():
    all_commands = commands(whole())
    tried = Counter(command for typed, *_ in WRONG for command in all_commands if f"{typed} ".startswith(f"{command} "))
    assert {command: tried[command] for command in all_commands if tried[command] < 3} == {}


def test_init_names_foreign_objects_in_the_schema_and_leaves_them_alone(shop, conn):
    for name, statement in [
        ("tables", "create table tables.record (id int)"),
        ("views", "create view views.parked as select 1"),
        ("functions", "create function functions.partition_of(text) returns text language sql as 'select 1::text'"),
    ]:
        conn.execute(psycopg.sql.SQL("create schema {}").format(psycopg.sql.Identifier(name)))
        conn.execute(statement.encode())
        said = run("init", "--schema", name)
        assert (said.code, said.err.count("\n")) == (1, 1)
        assert f"schema '{name}' holds an object that partbox did not make (" in said.err
        assert "choose another name by --schema, or move the object elsewhere; nothing was changed" in said.err
        made = conn.execute("select count(*) from pg_class where relnamespace = %s::regnamespace", [name]).fetchone()
        assert made == (0 if name == "functions" else 1,)


def test_a_database_error_is_reported_with_a_hint_to_run_doctor(shop, conn):
    conn.execute("drop table partbox.parked cascade")
    said = run("dead", "count")
    assert "(SQLSTATE 42P01): `partbox doctor` looks for the cause" in said.err
