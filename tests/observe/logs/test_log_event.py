"""What a log line may meet: no worker ends of it."""

import json
import logging
from threading import Thread

import pytest
from psycopg.errors import DiskFull, OutOfMemory

from partbox.observe.logs import database
from partbox.observe.logs.formats import JsonLines, TextLines
from partbox.observe.logs.log_event import FULL_DISK, LONGEST, log_event
from partbox.observe.logs.table import LOG_EVENTS

log = logging.getLogger("partbox.test")


@pytest.fixture
def factory():
    """A record factory of an application that has taken every name that a log event has."""
    names = {field for event in LOG_EVENTS.values() for field in event.fields} | {"event"}
    before = logging.getLogRecordFactory()

    def make(*arguments, **keywords):
        record = before(*arguments, **keywords)
        for name in names:
            setattr(record, name, "the application's")
        return record

    logging.setLogRecordFactory(make)
    yield
    logging.setLogRecordFactory(before)


@pytest.mark.parametrize("name", sorted(LOG_EVENTS))
def test_a_record_factory_that_has_the_same_names_costs_the_fields_and_not_the_line(factory, caplog, name):
    caplog.set_level(logging.DEBUG)
    fields = dict.fromkeys(LOG_EVENTS[name].fields, 1)
    log_event(log, name, "said %s", "all the same", **fields)
    assert "said all the same" in caplog.text


def test_a_filter_that_fails_harms_nobody(caplog):
    def fails(record):
        raise RuntimeError("broken filter")

    log.addFilter(fails)
    try:
        log_event(log, sorted(LOG_EVENTS)[0], "said")
    finally:
        log.removeFilter(fails)


def test_an_error_whose_class_cannot_be_read_is_still_logged(caplog):
    class SilentError(Exception):
        @property
        def __class__(self):
            raise ValueError("do not ask")

    log_event(log, "dead_letter_failed", "said", delay=1, trace=SilentError("refused"))
    assert "said" in caplog.text


@pytest.fixture
def formatted():
    """What a handler of ours writes of each line, as text and as JSON, formatted where it is logged."""
    made = []

    class Keeping(logging.Handler):
        def emit(self, record):
            made.append((TextLines().format(record), json.loads(JsonLines().format(record))))

    handler, root = Keeping(), logging.getLogger()
    root.addHandler(handler)
    yield made
    root.removeHandler(handler)


def test_each_line_of_a_node_with_several_databases_names_its_database(formatted):
    with database.log_for_database("orders"):
        log_event(log, "crash", "it crashed")
        logging.getLogger("shop").warning("an application's line")
    log_event(log, "crash", "it crashed")
    (ours, ours_json), (theirs, theirs_json), (without, without_json) = formatted
    assert "] orders: it crashed" in ours
    assert "] orders: an application's line" in theirs
    assert ours_json["database"] == theirs_json["database"] == "orders"
    assert without.endswith("]: it crashed")
    assert "database" not in without_json


def test_the_log_record_has_the_database_name_for_other_formatters(caplog):
    with database.log_for_database("orders"):
        log_event(log, "crash", "it crashed")
    assert caplog.records[0].database == "orders"


def test_a_worker_process_has_one_database_in_all_its_threads(formatted, monkeypatch):
    monkeypatch.setattr(database, "_process_database", "")
    database.set_log_database("billing")
    thread = Thread(target=log_event, args=(log, "crash", "it crashed"))
    thread.start()
    thread.join()
    assert formatted[0][1]["database"] == "billing"


def test_a_flood_of_one_database_holds_back_no_line_of_another(caplog):
    for name in ("orders", "billing"):
        with database.log_for_database(name):
            for _ in range(12):
                log_event(log, "loop_error", "saving failed", loop="saver")
    said = [record.database for record in caplog.records if record.levelno == logging.ERROR]
    assert said == ["orders"] * 10 + ["billing"] * 10


def test_a_full_disk_is_told_with_the_remedy_first_however_long_the_error_is(caplog):
    error = DiskFull("no space left\n" + "statement " * LONGEST)
    log_event(log, "loop_error", "saving failed: %s", error, loop="saver")
    log_event(log, "loop_error", "reading failed: %s", OutOfMemory("out of memory"), loop="poller")
    full, other = (line.getMessage() for line in caplog.records)
    assert full.startswith(f"saving failed: {FULL_DISK}no space left statement")
    assert len(full) < LONGEST + 100
    assert other == "reading failed: out of memory"
