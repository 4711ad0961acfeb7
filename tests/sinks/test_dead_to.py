"""Dead events that are sent somewhere by `--dead-to`."""

import json
import os
import signal
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from forked_commands import shared
from waiting import eventually

from partbox import Dead, Outbox
from partbox.errors import SettingsError
from partbox.sinks.dead import build_dead_sender

TOO_MUCH = ("file:dead.jsonl?x=1", "file:x#y", "stdout:?x=1", "stdout:x", "https://h/x#y")


@pytest.mark.parametrize(
    "url", ["", "dead.jsonl", "file:", "ftp://there/x", "http://", "redis://:secret@there", *TOO_MUCH]
)
def test_a_wrong_dead_letter_url_is_refused_in_one_line_without_its_secrets(url):
    with pytest.raises(SettingsError, match=r"is not a target for dead events: use file:PATH") as refused:
        build_dead_sender(url)
    assert "\n" not in str(refused.value)
    assert "secret" not in str(refused.value)


SHOP = """
from partbox import Dead, Outbox
outbox = Outbox()
outbox.register(lambda event: Dead("not wanted"), "Placed")
"""


KEYS = [None, "order 7", "Größe\n7", None]


@pytest.fixture
def deadly(dsn, conn):
    outbox = Outbox(dsn)
    outbox.register(lambda event: Dead("not wanted"), "Placed")
    with conn.transaction():
        for number, key in enumerate(KEYS[:3]):
            fields = {"aggregate_id": "k", "tenant_id": "t", "idempotency_key": key}
            outbox.publish(conn, "Placed", {"number": number, "text": "a\nb"}, **fields)
        outbox.publish(conn, "Placed", b"\x00\xff", content_type="application/octet-stream", aggregate_id="k")
    return outbox


@pytest.fixture
def node(deadly, dsn, tmp_path):
    """Starts a node of one process whose dead events go to a place."""
    (tmp_path / "shop.py").write_text(SHOP)
    nodes = []

    def start(place: str, *flags: str):
        command = ("partbox", "worker", "shop:outbox", "--dsn", dsn, "--processes", "1", "--dead-to", place, *flags)
        nodes.append(shared().start_into(tmp_path / "log", *command, cwd=tmp_path, env=dict(os.environ)))
        return nodes[-1]

    yield start
    for each in nodes:
        each.send_signal(signal.SIGTERM)
        assert each.wait() == 0, (tmp_path / "log").read_text()


def test_every_dead_event_becomes_a_line_of_the_dead_letter_file(node, conn, tmp_path):
    place = tmp_path / "dead.jsonl"
    assert node(f"file:{place}", "--until-empty").wait() == 0
    found = {line["record_id"]: line for line in map(json.loads, place.read_text().splitlines())}
    assert [line.get("payload") for _, line in sorted(found.items())] == [
        {"number": 0, "text": "a\nb"},
        {"number": 1, "text": "a\nb"},
        {"number": 2, "text": "a\nb"},
        None,
    ]
    assert [line["idempotency_key"] for _, line in sorted(found.items())] == KEYS
    assert {line["error"] for line in found.values()} == {"not wanted"}
    assert {(line["aggregate_id"], line["tenant_id"]) for line in found.values()} == {("k", "t"), ("k", None)}
    assert found[max(found)]["payload_base64"] == "AP8="
    told = conn.execute("select count(*) from partbox.parked where state = 'dead' and due_at is null").fetchone()
    assert told == (4,)


def test_a_dead_letter_has_the_attempts_of_its_record_and_0_if_no_handler_was_called(node, deadly, conn, tmp_path):
    with conn.transaction():
        deadly.publish(conn, "Unknown", {})
    assert node("file:letters", "--until-empty").wait() == 0
    letters = [json.loads(line) for line in (tmp_path / "letters").read_text().splitlines()]
    stored = dict(conn.execute("select record_id, attempts from partbox.parked").fetchall())
    assert {each["record_id"]: each["attempts"] for each in letters} == stored
    assert {each["event_type"]: each["attempts"] for each in letters} == {"Placed": 1, "Unknown": 0}


def test_a_dead_letter_that_its_endpoint_refuses_is_sent_again(node, conn):
    taken, answers, keys = [], [503, 500], {}

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = answers.pop() if answers else 204
            document = json.loads(body)
            keys.setdefault(document["record_id"], set()).add(self.headers["Idempotency-Key"])
            if status == 204:
                taken.append(document["record_id"])
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_):
            pass

    endpoint = HTTPServer(("127.0.0.1", 0), Endpoint)
    thread = threading.Thread(target=endpoint.serve_forever)
    thread.start()
    try:
        node(f"http://127.0.0.1:{endpoint.server_port}/dead")
        eventually(lambda: not answers and len(taken) == 2)
        eventually(lambda: owed(conn) == 2)
        with conn.transaction():  # as if the pause were over
            conn.execute("select from partbox.partition order by partition for no key update")
            conn.execute("update partbox.parked set due_at = clock_timestamp() where due_at is not null")
            conn.execute("update partbox.partition set parked_version = parked_version + 1")
        eventually(lambda: owed(conn) == 0)
    finally:
        endpoint.shutdown()
        thread.join()
        endpoint.server_close()
    records = conn.execute("select id, event_id::text from partbox.record order by id").fetchall()
    assert sorted(taken) == [id for id, _ in records]
    own = [event_id if key != "order 7" else key for (_, event_id), key in zip(records, KEYS, strict=True)]
    assert [keys[id] for id, _ in records] == [{each} for each in own]  # the same however often it is sent


def owed(conn) -> int:
    """Dead events that the place has not taken yet."""
    return conn.execute("select count(*) from partbox.parked where due_at is not null").fetchone()[0]


def test_without_a_dead_letter_hook_no_dead_event_stays_due(deadly, conn):
    assert deadly.drain()
    conn.execute("update partbox.parked set due_at = clock_timestamp()")
    assert deadly.drain()
    assert conn.execute("select count(*) from partbox.parked where due_at is null").fetchone() == (4,)
