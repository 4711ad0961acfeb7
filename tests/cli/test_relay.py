"""`partbox relay`: the log to a broker, here to standard output and a file."""

import json
import os

import pytest
from planting import Planter

from partbox import Outbox


@pytest.fixture
def run(forks, dsn, tmp_path):
    """Runs a command: its exit code, and what it prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PARTBOX_")}

    def run(*arguments: str) -> tuple[int, str, str]:
        process = forks.start("partbox", *arguments, cwd=tmp_path, env={**environment, "PARTBOX_DSN": dsn})
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


def test_the_topic_and_the_start_are_what_was_asked_for(run, dsn, conn, published, tmp_path):
    place = tmp_path / "events.jsonl"
    options = ("--to", f"file:{place}", "--topic", "Shop.{event_type}", "--subscription", "copy", "--processes", "1")
    assert run("relay", *options, "--from", "now", "--until-empty")[0] == 0
    assert place.read_text() == ""
    Planter(conn).publish("9", event_type="Paid")
    assert run("relay", *options, "--until-empty")[0] == 0
    (line,) = map(json.loads, place.read_text().splitlines())
    assert (line["topic"], line["subject"]) == ("Shop.paid", "9")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--to", "ftp://there"), "is no place to send events to: use kafka://"),
        (("--to", "kafka://"), "names no servers: write kafka://HOST:9092"),
        (("--to", "file:/no/such/folder/x"), "cannot be written to /no/such/folder/x: No such file or directory"),
        (("--to", "stdout:", "--topic", "{key}"), "names {key}: there are {aggregate_type}"),
        (("--to", "stdout:", "--from", "tomorrow"), "'tomorrow' is no time"),
        ((), "--to"),
    ],
)
def test_what_is_typed_wrongly_is_one_line_and_changes_nothing(run, dsn, options, said):
    code, out, err = run("relay", *options, "--until-empty")
    assert (code != 0, out, err.count("\n")) == (True, "", 1)
    assert said in err
    assert {each.name for each in Outbox(dsn).subscriptions.list()} == {"default"}
