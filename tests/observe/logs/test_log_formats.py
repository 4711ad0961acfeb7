"""The two formats of log lines: whatever is said, a line can be read, is one line, and holds no password."""

import json
import logging
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logged import publish
from run_size import examples
from waiting import eventually

from partbox.observe.logs.formats import LONGEST, JsonLines, TextLines
from partbox.observe.logs.log_event import log_event
from partbox.settings import load
from partbox.supervisor.purging import Purging

PASSWORD = "s3cr3t"

log = logging.getLogger("partbox.worker")


def test_a_password_in_an_error_is_masked_in_its_line_and_in_its_trace(lines):
    def dsn() -> str:
        raise RuntimeError(f"cannot reach postgresql://shop:{PASSWORD}@db/shop")

    purging = Purging(load(dsn="host=nowhere", purge_interval=0.01), dsn)
    with purging:
        line = eventually(lambda: lines.of("purge_failed"))[0]
    assert "postgresql://shop:***@db/shop" in line.getMessage()

    try:
        dsn()
    except RuntimeError as error:
        log_event(log, "worker_failed", "the worker ends: %s", error, trace=error, subscription="default")
    record = lines.one("worker_failed")
    for made in (JsonLines(), TextLines()):
        text = made.format(record)
        assert "shop:***@db" in text
        assert "RuntimeError" in text
        assert PASSWORD not in text


def record(text: str, *arguments: object, error: BaseException | None = None, **extra: object) -> logging.LogRecord:
    info = (type(error), error, error.__traceback__) if error is not None else None
    made = logging.LogRecord("shop", logging.ERROR, __file__, 1, text, arguments, info)
    vars(made).update(extra)
    return made


def test_a_log_record_of_the_application_has_the_same_json_format_with_its_own_fields():
    line = json.loads(JsonLines().format(record("order %d", 7, order=7, place=Path("/shop"))))

    time = line.pop("time")
    assert time.endswith("Z")
    assert line == {
        "level": "ERROR", "logger": "shop", "pid": os.getpid(), "event": None, "message": "order 7",
        "order": 7, "place": "/shop",
    }  # fmt: skip


texts = st.text(max_size=10) | st.text(st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp"]), max_size=10)
fields = st.one_of(texts, st.integers(), st.none(), st.dictionaries(st.integers(), texts, max_size=2))


@settings(deadline=None, max_examples=examples(50))  # no assertion about time
@given(texts, texts, fields, st.sampled_from([1, 1_000]))
def test_a_json_line_is_one_readable_line_whatever_the_message(message, trouble, field, times):
    made = JsonLines().format(record("%s", message * times, error=ValueError(trouble * times), field=field))

    assert made.isprintable()
    assert len(made.encode()) <= LONGEST
    assert set(json.loads(made)) >= {"time", "level", "logger", "event", "message", "trace", "field"}


def test_a_text_that_is_too_long_keeps_its_beginning_and_its_end():
    made = JsonLines().format(record("short", error=ValueError("x" * 20_000 + " the end")))

    line = json.loads(made)
    assert len(made.encode()) <= LONGEST
    assert line["trace"].startswith("ValueError: xxx")
    assert line["trace"].endswith("the end")
    assert line["message"] == "short"


def test_text_of_an_event_cannot_forge_a_log_line(outbox, deliver, lines):
    outbox.on("Counted", max_attempts=1)(lambda event: 1 / 0)
    publish(outbox, 1, key="Ann\n2026-01-31 09:00:00 ERROR partbox: all is lost\x1b[31m\u202e" + "x" * 5_000)
    deliver(outbox)

    dead = lines.one("dead")
    assert dead.getMessage().isprintable()
    assert len(dead.getMessage()) < 2_500
    assert "ZeroDivisionError" in dead.getMessage()
    first, *trace = TextLines().format(dead).splitlines()
    assert "all is lost" in first
    assert trace[0].strip().startswith("Traceback")
    assert all(line.startswith("    ") for line in trace)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"])
def test_only_log_records_start_in_the_first_column_of_a_text_log(end):
    forged = f"{end}2026-01-31 09:00:00,000 INFO partbox.supervisor[1]: node vm has stopped{end}"
    made = record("the message" + forged, error=ValueError("cannot parse x" + forged), stack_info="the stack" + forged)
    first, *others = TextLines().format(made).splitlines()
    assert "the message" in first
    assert len(others) >= 2
    assert all(line.startswith("    ") for line in others)
