"""A password and a payload are for the database and the handler: nobody else ever sees them."""

import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import psutil
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict
from waiting import eventually

from partbox import Outbox
from partbox.cli import main
from partbox.cli.shell.arguments import hide_secret
from partbox.dashboard.operator_actions import OperatorActions
from partbox.dashboard.record_views import RecordViews

PASSWORD = "s3same-0pen"
PAYLOAD = "4711-card-number"

APPLICATION = """
import logging

from partbox import Dead, Outbox

logging.getLogger().setLevel(logging.DEBUG)
for name in ("partbox", "psycopg", "psycopg.pool", "asyncio"):
    logging.getLogger(name).setLevel(logging.DEBUG)
outbox = Outbox()
outbox.on("Placed")(lambda event: None)
outbox.on("Incurable")(lambda event: Dead("no cure"))

@outbox.on("Failing", retry="fixed:0.1")
def failing(event):
    raise RuntimeError("cannot reach " + event.headers["where"])
"""


def forms(dsn: str, folder: Path) -> dict[str, tuple[list[str], dict[str, str]]]:
    """The arguments and the environment of each way to give a password."""
    parts = conninfo_to_dict(dsn)
    host, name = quote(str(parts["host"]), safe=""), parts["dbname"]
    url = f"postgresql://postgres:{PASSWORD}@/{name}?host={host}&port=5432"
    service = folder / "services"
    service.write_text(f"[shop]\nhost={parts['host']}\ndbname={name}\nuser=postgres\npassword={PASSWORD}\n")
    return {
        "url": (["--dsn", url], {}),
        "url=": ([f"--dsn={url}"], {}),
        "pairs": (["--dsn", f"{dsn} password={PASSWORD}"], {}),
        "query": (["--dsn", f"postgresql:///{name}?host={host}&port=5432&user=postgres&password={PASSWORD}"], {}),
        "variable": ([], {"PARTBOX_DSN": url}),
        "PGPASSWORD": ([], {"PARTBOX_DSN": dsn, "PGPASSWORD": PASSWORD}),
        "service": ([], {"PARTBOX_DSN": "service=shop", "PGSERVICEFILE": str(service)}),
    }


FORMS = ["url", "url=", "pairs", "query", "variable", "PGPASSWORD", "service"]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command; all that it says."""

    def said(*arguments: str) -> str:
        with pytest.raises(SystemExit):
            main(arguments)
        return "".join(capsys.readouterr())

    return said


@pytest.mark.parametrize("form", FORMS)
def test_no_command_prints_a_password(dsn, tmp_path, monkeypatch, said, form):
    arguments, environment = forms(dsn, tmp_path)[form]
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for command in ("config", "config --json", "status", "doctor --json", "dead list", "init", "migrate"):
        answer = said(*command.split(), *arguments)
        assert PASSWORD not in answer, command
        assert "Traceback" not in answer, command
    assert PASSWORD not in said("status", *arguments, "--schema", "missing")


@pytest.mark.parametrize(
    "dsn", [f"postgresql://u:{PASSWORD}@127.0.0.1:1/shop", f"u:{PASSWORD}@127.0.0.1/shop"], ids=["away", "unread"]
)
def test_no_error_about_a_dsn_contains_its_password(said, dsn):
    for command in ("status", "doctor", "init", "purge"):
        assert PASSWORD not in said(command, "--dsn", dsn), command


@pytest.fixture
def node(dsn: str, tmp_path: Path) -> Iterator[tuple[psutil.Process, Path, str]]:
    """A node that has the password from its arguments and from PGPASSWORD and logs everything; its log, its page."""
    arguments, environment = forms(dsn, tmp_path)["url="]
    (tmp_path / "shop.py").write_text(APPLICATION)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PARTBOX_")}
    command = [str(Path(sys.executable).with_name("partbox")), "worker", "shop:outbox", "--processes", "1"]
    log = tmp_path / "log"
    with log.open("wb") as file:
        process = psutil.Popen(
            [*command, "--http", "127.0.0.1:0", "--log-format", "json", *arguments],
            cwd=tmp_path,
            env=kept | environment | {"PGPASSWORD": PASSWORD, "PARTBOX_HTTP_TOKEN": "a-token-of-this-test"},
            stdout=file,
            stderr=file,
        )
    try:
        yield process, log, _address(log)
    finally:
        process.terminate()
        process.wait(120)


def _address(log: Path) -> str:
    def found() -> str:
        words = [word.strip('",') for word in log.read_text().replace("\\", " ").split()]
        return next((word for word in words if word.startswith("http://127.0.0.1:")), "").rstrip("/.;,")

    return eventually(found, interval=0.05)


def test_a_node_shows_neither_password_nor_payload_anywhere(node, dsn, conn):
    process, log, address = node
    outbox, where = Outbox(dsn), f"postgresql://shop:{PASSWORD}@db/shop"
    with outbox.transaction() as tx:
        for kind in ("Placed", "Incurable", "Failing"):
            outbox.publish(tx, kind, {"card": PAYLOAD}, aggregate_id=kind, headers={"where": where, "note": PAYLOAD})
    eventually(lambda: conn.execute("select count(*) from partbox.parked").fetchone() == (2,), interval=0.05)
    conn.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and application_name like 'partbox%'"
    )
    eventually(lambda: "connection_lost" in log.read_text(), interval=0.05)

    family = [process, *process.children(recursive=True)]
    assert len(family) >= 2
    seen = {f"ps {each.pid}": " ".join([each.name(), *each.cmdline()]) for each in family}
    for path in ("", "metrics", "livez", "readyz", "healthz", "api/overview", "api/dead", "api/blocked", "missing"):
        seen[path] = _answer(f"{address}/{path}")
    seen["sessions"] = str(
        conn.execute("select application_name, query from pg_stat_activity where pid <> pg_backend_pid()").fetchall()
    )
    seen["log"] = log.read_text()
    assert len(seen["log"].splitlines()) > 5
    assert [name for name, text in seen.items() if PASSWORD in text] == []
    assert [name for name, text in seen.items() if PAYLOAD in text] == []


def _answer(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode()


ERRORS = (
    "cannot reach postgresql://app:{}@db/x",
    "password={} host=x",
    '{{"user": "ada", "password": "{}"}}',
    "password: {}",
    "{{'passwd': '{}'}}",
    "Authorization: Bearer {}",
    "GET https://api.example.org/?token={}",
)
HEADERS = {
    "password": PASSWORD,
    "authorization": f"Bearer {PASSWORD}",
    "cookie": f"sid={PASSWORD}",
    "x-api-key": PASSWORD,
}


def test_an_error_is_stored_and_shown_without_secrets_and_without_the_event(dsn, conn, monkeypatch, said):
    """The reason comes first: the type of the error and its message. Old rows, stored before, are masked when read."""
    monkeypatch.setenv("PARTBOX_DSN", dsn)
    outbox = Outbox(dsn, max_attempts=1)

    @outbox.on("Failing")
    def failing(event):
        raise ValueError(f"{event!r} of {[event, event]}: {ERRORS[event.payload].format(PASSWORD)}")

    with outbox.transaction() as tx:
        for number, _ in enumerate(ERRORS):
            outbox.publish(tx, "Failing", number, aggregate_id=str(number), headers=HEADERS)
    with outbox.worker() as worker:
        worker.wait_until_empty(30)
    stored = conn.execute(
        "select last_error from partbox.parked union all select traceback from partbox.parked"
        " union all select error from partbox.attempt"
    ).fetchall()
    assert len(stored) == 3 * len(ERRORS)
    assert not [text for (text,) in stored if PASSWORD in text or "DeliveredEvent" in text]
    assert all("ValueError: the event of [the event, the event]: " in text for (text,) in stored)

    conn.execute(
        "update partbox.parked set last_error = concat('E: password: ', %s::text), traceback = last_error", [PASSWORD]
    )
    conn.execute("update partbox.attempt set error = concat('E: token=', %s::text)", [PASSWORD])
    records = [id for (id,) in conn.execute("select id from partbox.record").fetchall()]
    for command in ("find --json", f"find --record {records[0]}", "find --ended dead", "dead list", "dead list --json",
                    f"dead show {records[0]} --json", f"dead show {records[0]}", "blocked list --json", "doctor --json",
                    "status --json"):  # fmt: skip
        answer = said(*command.split())
        assert PASSWORD not in answer, command
        assert "usage" not in answer.lower(), answer
    settings = outbox.settings
    views, acts = RecordViews(lambda: dsn, settings), OperatorActions(lambda: dsn, settings)
    shown = [
        views.show_record(records[0]),
        views.find_records(None, None, {}),
        acts.list_dead("default", {}, None),
        acts.list_dead_groups("default", {}),
    ]
    assert PASSWORD not in json.dumps([*shown, acts.list_blocked("default", 10)])
    assert dict(views.show_record(records[0])["headers"]) == dict.fromkeys(HEADERS, "***")


def test_an_error_of_postgresql_about_a_row_is_shown_without_its_payload(dsn, conn):
    """PostgreSQL quotes the row of a violated check in the detail of its error."""
    conn.execute("alter table partbox.record add check (event_type <> 'Refused')")
    outbox = Outbox(dsn)
    with pytest.raises(psycopg.errors.CheckViolation) as refused, outbox.transaction() as tx:
        outbox.publish(tx, "Refused", {"card": PAYLOAD})
    assert PAYLOAD not in json.dumps(str(refused.value).split("\n")[0])


@given(st.binary(max_size=60))
def test_a_masked_command_line_argument_keeps_its_length(argument):
    assert len(hide_secret(argument)) == len(argument)


def test_only_the_password_of_a_command_line_argument_is_masked():
    assert hide_secret(b"postgresql://u:s3same@h/d") == b"postgresql://u:***@h/d   "
    assert hide_secret(b"--dsn=host=h password=x") == b"--dsn=host=h password=*"[:22] + b"*"
    assert hide_secret(b"shop:outbox") == b"shop:outbox"
    assert hide_secret(b"nats://token@h", b"--to") == b"nats://***@h  "
    assert hide_secret(b"--to=https://h/?t=abcd") == b"--to=https://h/?t=*** "
    assert hide_secret(b"whsec_abcdef", b"--webhook-secret") == b"***         "
    assert hide_secret(b"--http-token=abcdef") == b"--http-token=***   "
