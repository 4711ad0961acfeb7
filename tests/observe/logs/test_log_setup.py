"""Logging as commands set it up, in all processes of a node; the setup of an application stays."""

import json
import logging
import os
from typing import Any

import pytest
from logged import CANARY, publish, root_logger

from partbox import Outbox
from partbox.observe.logs.formats import JsonLines
from partbox.observe.logs.setup import configure_logging

APPLICATION = """
import os
import signal

from partbox import Outbox

outbox = Outbox()


@outbox.on("Counted")
def handle(event):
    if event.payload["n"] == 13 and not os.path.exists("crashed"):
        open("crashed", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    if event.payload["n"] == 7:
        raise ValueError("no such customer")
"""


def test_all_processes_of_a_node_log_json_and_the_consequences_of_a_crash_are_logged(dsn, tmp_path, forks):
    (tmp_path / "json_shop.py").write_text(APPLICATION)
    publish(Outbox(dsn), *range(20))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PARTBOX_")}
    settings = {"PARTBOX_MAX_ATTEMPTS": "2", "PARTBOX_RETRY": "fixed:10ms", "PARTBOX_NODE": "north"}
    flags = ["--dsn", dsn, "--processes", "2", "--until-empty", "--log-format", "json"]
    process = forks.start("partbox", "worker", "json_shop:outbox", *flags, cwd=tmp_path, env=environment | settings)
    _, lines = process.communicate()
    assert process.returncode == 0, lines

    said = [json.loads(line) for line in lines.splitlines()]
    by_name: dict[str, list[dict[str, Any]]] = {}
    for line in said:
        by_name.setdefault(line["event"].removeprefix("partbox."), []).append(line)
    assert by_name["node_started"][0]["node"] == by_name["node_stopped"][0]["node"] == "north"
    assert len({line["pid"] for line in by_name["worker_started"]}) == 3  # two, and one in the place of the dead
    (crash,) = by_name["crash"]
    assert (crash["level"], crash["exit_code"], crash["subscription"]) == ("ERROR", -9, "default")
    assert crash["worker_pid"] in {line["pid"] for line in by_name["worker_started"]}
    assert [line["level"] for line in by_name["buried"]] == ["WARNING"]
    assert sum(line["partitions"] for line in by_name["takeover"]) == by_name["buried"][0]["partitions"]
    (dead,) = by_name["dead"]
    assert (dead["level"], dead["attempts"]) == ("ERROR", 2)
    assert "ValueError: no such customer" in dead["trace"]
    assert CANARY not in lines


def test_the_level_reaches_the_worker_processes_and_the_flag_beats_the_environment(dsn, tmp_path, forks):
    (tmp_path / "level_shop.py").write_text(APPLICATION.replace("== 13", "is None"))
    publish(Outbox(dsn), 7)
    settings = {"PARTBOX_MAX_ATTEMPTS": "2", "PARTBOX_RETRY": "fixed:10ms", "PARTBOX_LOG_LEVEL": "error"}
    flags = ["--dsn", dsn, "--processes", "1", "--until-empty", "--log-format", "json", "--log-level", "DEBUG"]
    process = forks.start("partbox", "worker", "level_shop:outbox", *flags, cwd=tmp_path, env=plain() | settings)
    _, lines = process.communicate()
    assert process.returncode == 0, lines
    by_name = {line["event"]: line for line in map(json.loads, lines.splitlines())}
    started, failure, dead = (by_name[f"partbox.{name}"] for name in ("node_started", "failure", "dead"))
    assert (started["level"], failure["level"], dead["level"]) == ("INFO", "DEBUG", "ERROR")
    assert started["pid"] != failure["pid"] == dead["pid"]
    assert 'raise ValueError("no such customer")' in failure["trace"]


def plain() -> dict[str, str]:
    """The environment without settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PARTBOX_")}


def test_worker_processes_log_from_the_level_that_is_set_else_from_that_of_their_parent():
    def of_job(**settings: Any) -> int:
        return Outbox("postgresql://nowhere", **settings).supervisor(processes=1)._job.log_level

    with root_logger() as root:
        root.setLevel(logging.CRITICAL)
        assert of_job() == logging.CRITICAL
        assert of_job(log_level="Warning") == logging.WARNING
        assert of_job(log_level="info") == logging.INFO


@pytest.mark.parametrize(
    ("option", "value", "choices"),
    [("format", "xml", "'text' or 'json'"), ("level", "all", "'debug', 'info', 'warning' or 'error'")],
)
def test_a_wrong_format_or_level_is_refused_in_one_line(tmp_path, forks, option, value, choices):
    process = forks.start("partbox", "worker", "shop:outbox", f"--log-{option}", value, cwd=tmp_path)
    _, said = process.communicate()
    assert process.returncode == 1
    assert said == f"partbox: setting log_{option} = {value} (from --log-{option}) is invalid: use {choices}\n"


def test_logging_is_set_up_once_and_may_change_its_format():
    with root_logger() as root:
        configure_logging("text")
        configure_logging("json")

    (handler,) = root.handlers
    assert isinstance(handler.formatter, JsonLines)
    assert root.level == logging.INFO


def test_a_second_set_up_changes_the_level_only_where_it_names_one():
    with root_logger() as root:
        configure_logging("text", logging.DEBUG)
        configure_logging("text")
        assert root.level == logging.DEBUG
        configure_logging("text", logging.ERROR)
        assert root.level == logging.ERROR


def test_an_application_that_has_set_up_logging_keeps_its_own():
    own = logging.NullHandler()
    with root_logger() as root:
        root.addHandler(own)
        configure_logging("json", logging.DEBUG)

    assert root.handlers == [own]
    assert own.formatter is None
    assert root.level == logging.WARNING
