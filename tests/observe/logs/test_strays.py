"""Variables that look like settings: ignored, and said once."""

import logging
import os

import pytest

from partbox import Outbox
from partbox.observe.logs import setup


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    for variable in [name for name in os.environ if name.startswith("PARTBOX_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setattr(setup, "_warned_strays", set())


def said(caplog) -> list[str]:
    return [line.getMessage() for line in caplog.records if getattr(line, "event", None) == "partbox.unknown_variables"]


def test_an_outbox_warns_once_of_unknown_environment_variables_and_works(monkeypatch, caplog):
    monkeypatch.setenv("PARTBOX_PORT", "tcp://10.0.0.7:80")
    monkeypatch.setenv("PARTBOX_LEESE", "9s")
    assert Outbox().settings.lease == Outbox(schema="other").settings.lease == 6
    (line,) = said(caplog)
    assert "PARTBOX_LEESE (did you mean PARTBOX_LEASE?), PARTBOX_PORT;" in line
    assert "10.0.0.7" not in line
    assert {each.levelno for each in caplog.records} == {logging.WARNING}
    monkeypatch.setenv("PARTBOX_ZZZ", "1")
    Outbox()
    assert "PARTBOX_ZZZ" in said(caplog)[-1]


def test_a_worker_process_leaves_the_warning_of_unknown_variables_to_its_supervisor(monkeypatch, caplog):
    monkeypatch.setenv("PARTBOX_LEESE", "9s")
    assert "PARTBOX_LEESE" in setup.take_strays_text()
    Outbox()
    assert said(caplog) == []


def test_without_unknown_variables_nothing_is_logged(caplog):
    Outbox()
    assert setup.take_strays_text() is None
    assert said(caplog) == []
