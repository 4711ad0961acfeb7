"""`partbox relay`: the log to a broker, here to standard output, files and a web server."""

import base64
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from planted_records import Planter
from standardwebhooks import Webhook

from partbox import Exponential, Jittered, Outbox
from partbox.cli.commands.relay import build_relay, choose_retry
from partbox.settings import load
from partbox.settings.relay_target import RelayTarget


@pytest.fixture
def run(forks, dsn, tmp_path):
    """Runs a command: its exit code, and what it prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PARTBOX_")}

    def run(*arguments: str) -> tuple[int, str, str]:
        secret = {name: value for name, value in os.environ.items() if name == "PARTBOX_WEBHOOK_SECRET"}
        process = forks.start("partbox", *arguments, cwd=tmp_path, env={**environment, **secret, "PARTBOX_DSN": dsn})
        out, err = process.communicate()
        return process.wait(), out, err

    return run


@pytest.fixture
def published(conn):
    for number in range(6):
        Planter(conn).publish(str(number % 2), event_type="Placed", payload={"number": number})
    return range(6)


def test_every_event_becomes_a_line_in_order_and_only_once(run, dsn, conn, published):
    code, out, err = run("relay", "--to", "stdout:", "--processes", "2", "--until-empty")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0, err
    assert sorted(line["data"]["number"] for line in lines) == [*published]
    for key in "01":
        of_key = [line["data"]["number"] for line in lines if line["partitionkey"] == key]
        assert of_key == sorted(of_key)
    assert {(line["specversion"], line["type"], line["topic"]) for line in lines} == {("1.0", "Placed", "order-events")}
    assert {each.name for each in Outbox(dsn).subscriptions.list()} == {"default", "relay"}
    again = run("relay", "--to", "stdout:", "--processes", "1", "--until-empty")
    assert again[:2] == (0, "")


def test_the_relay_uses_the_given_topic_and_starting_point(run, dsn, conn, published, tmp_path):
    place = tmp_path / "events.jsonl"
    options = ("--to", f"file:{place}", "--topic", "Shop.{event_type}", "--subscription", "copy", "--processes", "1")
    assert run("relay", *options, "--from", "now", "--until-empty")[0] == 0
    assert place.read_text() == ""
    Planter(conn).publish("9", event_type="Paid")
    assert run("relay", *options, "--until-empty")[0] == 0
    (line,) = map(json.loads, place.read_text().splitlines())
    assert (line["topic"], line["subject"]) == ("Shop.paid", "9")


@pytest.mark.parametrize(
    ("settings", "policy"),
    [
        ({}, Jittered(Exponential(0.2, 60, 2))),
        ({"max_attempts": 3}, Jittered(Exponential(0.2, 60, 2))),
        ({"retry": "exponential:0.2:600:3+jitter"}, Jittered(Exponential(0.2, 600, 3))),
    ],
)
def test_a_relay_waits_at_most_a_minute_unless_retry_is_set(settings, policy):
    handlers, _ = build_relay([RelayTarget(to="stdout:")], "relay", choose_retry(load(**settings)))
    handler = handlers.build_routes("relay", load(**settings))["Placed", "Order"]
    assert (handler.retry, handler.max_attempts) == (policy, None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "give --to, for example `partbox relay --to stdout:`"),
        (("--topic", "orders"), "--topic goes with --to, which is missing"),
        (("--to", "ftp://there"), "is not a target for events: use kafka://"),
        (("--to", "kafka://"), "names no servers: write kafka://HOST:9092"),
        (("--to", "file:/no/such/folder/x"), "cannot be written to /no/such/folder/x: No such file or directory"),
        (("--to", "stdout:", "--topic", "{key}"), "names {key}: there are {aggregate_type}"),
        (("--to", "stdout:", "--from", "tomorrow"), "'tomorrow' is no time"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line_and_change_nothing(run, dsn, options, said):
    code, out, err = run("relay", *options, "--until-empty")
    assert (code != 0, out, err.count("\n")) == (True, "", 1)
    assert said in err
    assert {each.name for each in Outbox(dsn).subscriptions.list()} == {"default"}


SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()


@pytest.fixture
def hook():
    """A web server: its address, and what is posted to it."""
    posted = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posted.append(({name.lower(): text for name, text in self.headers.items()}, body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/hook", posted
        server.shutdown()
        thread.join()


def routes(*targets: dict[str, object]) -> str:
    """A settings file with these targets."""
    return "".join(
        "[[partbox.relay]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in target.items())
        for target in targets
    )


def test_each_type_goes_to_its_target_and_others_are_passed_over(run, dsn, conn, tmp_path, hook):
    url, posted = hook
    targets = (
        {"types": ["Placed", "Paid"], "to": "file:orders.jsonl", "topic": "orders"},
        {"types": ["Sent"], "to": "file:sent.jsonl", "name": "sent"},
        {"types": ["Billed"], "to": url, "secret": SECRET},
    )
    (tmp_path / "partbox.toml").write_text(routes(*targets))
    for number, event_type in enumerate(("Placed", "Paid", "Sent", "Billed", "Unknown", "Placed")):
        Planter(conn).publish("7", event_type=event_type, payload={"number": number})
    code, out, err = run("relay", "--processes", "2", "--until-empty")
    assert (code, out) == (0, ""), err
    orders, sent = (
        [
            (line["type"], line["topic"], line["data"]["number"])
            for line in map(json.loads, file.read_text().splitlines())
        ]
        for file in (tmp_path / "orders.jsonl", tmp_path / "sent.jsonl")
    )
    assert orders == [("Placed", "orders", 0), ("Paid", "orders", 1), ("Placed", "orders", 5)]
    assert sent == [("Sent", "order-events", 2)]
    ((headers, body),) = posted
    assert Webhook(SECRET).verify(body, headers) == {"number": 3}
    assert conn.execute("select count(*) from partbox.parked").fetchone() == (0,)


def test_a_target_of_all_types_gets_those_that_no_other_has(run, dsn, conn, published, tmp_path):
    targets = {"to": "file:others.jsonl", "name": "others"}, {"types": ["Paid"], "to": "file:paid.jsonl"}
    (tmp_path / "partbox.toml").write_text(routes(*targets))
    Planter(conn).publish("7", event_type="Paid")
    assert run("relay", "--processes", "1", "--until-empty")[:2] == (0, "")
    assert len((tmp_path / "others.jsonl").read_text().splitlines()) == len(published)
    assert len((tmp_path / "paid.jsonl").read_text().splitlines()) == 1


def test_the_option_to_overrides_the_targets_in_the_settings_and_takes_every_event(run, dsn, conn, published, tmp_path):
    (tmp_path / "partbox.toml").write_text(routes({"types": ["Paid"], "to": "file:paid.jsonl"}))
    code, out, _ = run("relay", "--to", "stdout:", "--processes", "1", "--until-empty")
    assert (code, len(out.splitlines())) == (0, len(published))
    assert not (tmp_path / "paid.jsonl").exists()


def test_a_webhook_without_a_secret_of_its_own_is_signed_with_that_of_the_environment(
    run, dsn, conn, hook, monkeypatch
):
    url, posted = hook
    monkeypatch.setenv("PARTBOX_WEBHOOK_SECRET", SECRET)
    Planter(conn).publish("7", event_type="Paid", payload=1)
    typed = ("--to", f"{url}?token=s3cret", "--processes", "1", "--until-empty", "--log-level", "debug")
    code, _, err = run("relay", *typed)
    assert code == 0
    ((headers, body),) = posted
    assert Webhook(SECRET).verify(body, headers) == 1
    assert SECRET not in err
    assert "s3cret" not in err


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        (
            [{"to": "stdout:", "types": ["Paid"]}, {"to": "ftp://u:s3cret@h"}],
            "target 2 of relay (from partbox.toml): 'ftp",
        ),
        ([{"to": "stdout:"}, {"to": "file:x"}], "(from partbox.toml) is invalid: targets 1 and 2 have the type '*'"),
        ([{"to": "file:/no/such/folder/x"}], "target 1 of relay (from partbox.toml): events cannot be written to"),
        ([{"to": "stdout:", "token": "s3cret"}], "target 1 has an unknown key 'token': there are types, to"),
        ([{"to": "https://h", "secret": "s3cret"}], "the secret of a webhook must be whsec_"),
    ],
)
def test_wrong_targets_are_one_line_and_change_nothing(run, conn, tmp_path, targets, said):
    (tmp_path / "partbox.toml").write_text(routes(*targets))
    code, out, err = run("relay", "--until-empty")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert said in err
    assert "s3cret" not in err
    assert conn.execute("select name from partbox.subscription").fetchall() == [("default",)]
