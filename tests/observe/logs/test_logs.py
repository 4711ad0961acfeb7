"""What partbox logs: levels, fields, what must never be in a line, and how lines look."""

import json
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import eventually

from partbox import DownstreamUnavailable, Event, Outbox
from partbox.db.cursors import Owned
from partbox.observe import Observers
from partbox.observe.logs.formats import LONGEST, JsonLines, TextLines
from partbox.observe.logs.log_event import log_event
from partbox.observe.logs.setup import configure
from partbox.observe.observer import Observer
from partbox.settings import load
from partbox.supervisor import Purging
from partbox.worker.delivering import timeouts
from partbox.worker.owning.ownership import Ownership
from partbox.worker.owning.slot import Slot
from partbox.worker.signals import Signals
from partbox.worker.state.holdings import Holdings
from partbox.worker.state.partition import Partition

CANARY = "canary-7731"
PASSWORD = "s3cr3t"

log = logging.getLogger("partbox.worker")


class Lines:
    """The lines that were logged, by the names of what happened."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "partbox")
        self._caplog = caplog

    def of(self, name: str, level: int = logging.INFO) -> list[Any]:
        found = [record for record in self._caplog.records if getattr(record, "event", None) == f"partbox.{name}"]
        return [record for record in found if record.levelno >= level]

    def one(self, name: str) -> Any:
        (line,) = eventually(lambda: self.of(name))
        return line

    def all(self) -> str:
        """Everything, as JSON."""
        return "\n".join(JsonLines().format(record) for record in self._caplog.records)


@pytest.fixture
def lines(caplog) -> Lines:
    return Lines(caplog)


@pytest.fixture
def outbox(dsn) -> Outbox:
    return Outbox(dsn)


def publish(outbox: Outbox, *numbers: int, event_type: str = "Counted", key: str | None = None, **fields: Any) -> None:
    events = [
        Event(event_type, {"n": number, "secret": CANARY}, aggregate_type="Key", aggregate_id=key, **fields)
        for number in numbers
    ]
    with psycopg.connect(outbox.dsn) as conn:
        outbox.publish_many(conn, events)


def deliver(outbox: Outbox) -> None:
    assert outbox.drain(timeout=30)


# Events.


def test_a_failure_is_information_and_a_death_an_error_with_the_fields_to_find_it(outbox, lines):
    @outbox.on("Counted", max_attempts=2, retry="fixed:10ms")
    def fail(event):
        raise ValueError("no such customer")

    publish(outbox, 1, key="Ann")
    with outbox.worker():
        lines.one("dead")

    retrying, dead = lines.one("retrying"), lines.one("dead")
    assert (retrying.levelname, retrying.attempts, retrying.delay) == ("INFO", 1, 0.01)
    assert (dead.levelname, dead.attempts, dead.attempt) == ("ERROR", 2, 2)
    assert "is dead after 2 attempts: ValueError: no such customer" in dead.getMessage()
    assert dead.exc_info[0] is ValueError
    assert (dead.subscription, dead.event_type, dead.aggregate_type) == ("default", "Counted", "Key")
    assert "fail" in dead.handler
    with psycopg.connect(outbox.dsn) as conn:
        row = conn.execute("select id, partition, event_id::text from partbox.record").fetchone()
    assert (dead.record_id, dead.partition, dead.event_id) == row


def test_a_payload_that_cannot_be_decoded_is_an_error_of_its_own(outbox, lines, conn):
    outbox.on("Odd")(lambda event: event.payload)
    conn.execute(
        "insert into partbox.record (partition, event_id, event_type, payload_bytes, content_type)"
        " values (1, gen_random_uuid(), 'Odd', %s, 'application/x-odd')",
        [CANARY.encode()],
    )
    deliver(outbox)

    line = lines.one("decode_error")
    assert line.levelname == "ERROR"
    assert "no codec for content type 'application/x-odd': give it to Outbox(codecs=…) here too" in line.getMessage()
    assert lines.of("dead") == []
    assert CANARY not in lines.all()


def test_no_payload_header_or_tenant_is_in_any_line(outbox, lines):
    def fail(event, *_):
        raise ValueError("no")

    async def fail_async(event):
        raise ValueError("no")

    options = {"max_attempts": 2, "retry": "fixed:10ms"}
    outbox.on("Sync", **options)(fail)
    outbox.on("Async", **options)(fail_async)
    outbox.on_batch("Batch", **options)(fail)
    outbox.on("Transactional", transactional=True, **options)(fail)
    kinds = ("Sync", "Async", "Batch", "Transactional")
    for kind in kinds:
        publish(outbox, 1, 2, event_type=kind, headers={"tone": CANARY}, tenant_id=CANARY)
    with outbox.worker():
        eventually(lambda: len(lines.of("dead")) == 2 * len(kinds))

    assert sorted(line.event_type for line in lines.of("dead")) == sorted(2 * kinds)
    assert CANARY not in lines.all()


def test_a_flood_of_failures_says_ten_and_every_death(outbox, lines):
    @outbox.on("Counted", max_attempts=2, retry="fixed:10ms")
    def fail(event):
        raise ValueError("no")

    publish(outbox, *range(25), key="k")  # of one key, or the circuit would open
    with outbox.worker():
        eventually(lambda: len(lines.of("dead")) == 25)

    said = len(lines.of("retrying"))
    assert 10 <= said < 20


def test_a_line_that_comes_after_held_back_ones_counts_them(lines, monkeypatch):
    now = iter([*[0.0] * 14, 11.0])
    monkeypatch.setattr("partbox.observe.logs.log_event.time.monotonic", lambda: next(now))
    for _ in range(15):
        log_event(log, "loop_error", "saving failed: %s", "no", loop="saver")

    said = [line.getMessage() for line in lines.of("loop_error")]
    assert said == ["saving failed: no"] * 10 + ["saving failed: no (and 4 times more since this was last said)"]


# Handlers and partitions.


def test_a_circuit_says_when_it_opens_and_when_it_closes(outbox, lines):
    down = threading.Event()
    down.set()

    @outbox.on("Counted", retry="fixed:10ms")
    def handle(event):
        if down.is_set():
            raise DownstreamUnavailable("the bank is closed")

    publish(outbox, 1)
    with outbox.worker():
        opened = lines.one("circuit_open")
        down.clear()
        closed = lines.one("circuit_closed")

    assert (opened.levelname, closed.levelname) == ("WARNING", "INFO")
    assert opened.handler == closed.handler
    assert opened.subscription == "default"
    assert "its events are deferred" in opened.getMessage()


def test_a_slow_handler_is_said_once_while_it_runs(outbox, lines, monkeypatch):
    monkeypatch.setattr(timeouts, "SLOW", 0.05)
    gate = threading.Event()
    outbox.on("Counted")(lambda event: gate.wait(30) and None)

    publish(outbox, 1)
    with outbox.worker() as worker:
        line = lines.one("slow_handler")
        publish(outbox, 2)  # the poller looks again and again meanwhile
        eventually(lambda: worker._worker.dispatcher.running()[1:])
        gate.set()
        worker.wait_until_empty(30)

    assert line.levelname == "WARNING"
    assert line.seconds >= 0.05
    assert "its aggregate waits" in line.getMessage()
    assert len([each for each in lines.of("slow_handler") if each.record_id == line.record_id]) == 1


@pytest.mark.parametrize(("timeout", "seconds"), [(1000.0, 60.0), (30.0, 15.0), (0.2, 1.0)])
def test_slow_is_a_minute_or_half_the_timeout_but_never_a_moment(timeout, seconds):
    assert timeouts._long(timeout) == seconds


def test_a_brake_is_said_once_an_episode_and_when_it_is_over(dsn, lines):
    outbox = Outbox(dsn, max_parked=5)
    failing = threading.Event()
    failing.set()

    @outbox.on("Counted", retry="fixed:50ms", max_attempts=None)
    def handle(event):
        if failing.is_set():
            raise ValueError("no")

    publish(outbox, *range(12), key="k")
    with outbox.worker() as worker:
        line = lines.one("brake")
        eventually(lambda: len(lines.of("retrying")) > 3)  # several attempts, and ticks, later
        assert len(lines.of("brake")) == 1
        failing.clear()
        assert worker.wait_until_empty(30)
        released = lines.one("brake_released")

    assert (line.levelname, line.partitions, line.max_parked) == ("WARNING", 1, 5)
    assert "nothing new is delivered in 1 partition (" in line.getMessage()
    assert (released.levelname, released.partitions) == ("INFO", 1)


def test_partitions_of_a_process_that_died_are_taken_over_with_a_warning(outbox, lines, conn):
    conn.execute("update partbox.partition set suspect_until_id = 7 where partition in (3, 4, 200)")
    outbox.register(print, "Counted")

    with outbox.worker():
        line, claimed, planned = lines.one("takeover"), lines.one("claimed"), lines.one("planned")

    assert (line.levelname, line.partitions, line.subscription) == ("WARNING", 3, "default")
    assert "took over 3 partitions (3, 4, 200) of a process that died" in line.getMessage()
    assert (claimed.partitions, planned.partitions, planned.instances) == (256, 256, 1)


def ownership(dsn: str) -> Ownership:
    return Ownership(
        Holdings(),
        Slot.local(),
        load(dsn=dsn),
        "default",
        letters=False,
        signals=Signals(),
        observers=Observers(),
    )


def owned(number: int) -> Partition:
    return Partition(Owned(number, 1, "1:1:", 0, 0, 0, None), 0.0, window=10, letters=False)


def test_a_refusal_of_the_fence_is_one_error_and_one_warning_for_all_its_partitions(lines):
    partitions = [owned(number) for number in range(20)]

    ownership("host=nowhere").refused(partitions)

    refused, lost = lines.one("fence_rejection"), lines.one("lost")
    assert (refused.levelname, refused.partitions) == ("ERROR", 20)
    assert (lost.levelname, lost.partitions) == ("WARNING", 20)
    assert "(0, 1, 2, 3, 4, 5, 6, 7 and 12 more)" in refused.getMessage()
    assert "what was not saved is delivered again" in lost.getMessage()


def test_partitions_lost_while_they_are_released_are_only_information(lines):
    partition = owned(7)
    partition.drain()

    ownership("host=nowhere").lose([partition])

    assert lines.one("lost_draining").levelname == "INFO"
    assert lines.of("lost") == []


# Workers.


def test_a_worker_says_that_it_starts_and_how_it_has_ended(outbox, lines):
    outbox.on("Counted")(lambda event: None)
    with outbox.worker(concurrency=3):
        started = lines.one("worker_started")
        lines.one("claimed")

    stopped = lines.one("worker_stopped")
    assert (started.levelname, started.subscription, started.concurrency) == ("INFO", "default", 3)
    assert (stopped.levelname, stopped.released) == ("INFO", True)


def test_an_observer_that_fails_is_an_error_and_no_flood(outbox, lines):
    class Broken(Observer):
        def settled(self, event, handler, verdict):
            raise ValueError("I cannot count")

    outbox.observe(Broken())
    outbox.on("Counted")(lambda event: None)
    publish(outbox, *range(50))

    deliver(outbox)

    failures = lines.of("observer_failed")
    assert (failures[0].levelname, failures[0].hook) == ("ERROR", "settled")
    assert len(failures) < 20


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


def test_all_processes_of_a_node_log_json_and_what_a_crash_entails_can_be_read(dsn, tmp_path, forks):
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


# Formats.


def record(text: str, *arguments: object, error: BaseException | None = None, **extra: object) -> logging.LogRecord:
    info = (type(error), error, error.__traceback__) if error is not None else None
    made = logging.LogRecord("shop", logging.ERROR, __file__, 1, text, arguments, info)
    vars(made).update(extra)
    return made


def test_a_record_of_the_application_comes_in_the_same_form_with_its_own_fields():
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
def test_whatever_is_said_a_json_line_is_one_line_that_can_be_read(message, trouble, field, times):
    made = JsonLines().format(record("%s", message * times, error=ValueError(trouble * times), field=field))

    assert made.isprintable()
    assert len(made.encode()) <= LONGEST
    assert set(json.loads(made)) >= {"time", "level", "logger", "event", "message", "trace", "field"}


def test_what_is_too_long_keeps_its_beginning_and_its_end():
    made = JsonLines().format(record("short", error=ValueError("x" * 20_000 + " the end")))

    line = json.loads(made)
    assert len(made.encode()) <= LONGEST
    assert line["trace"].startswith("ValueError: xxx")
    assert line["trace"].endswith("the end")
    assert line["message"] == "short"


def test_what_an_event_says_cannot_pass_for_a_line_of_its_own(outbox, lines):
    outbox.on("Counted", max_attempts=1)(lambda event: 1 / 0)
    publish(outbox, 1, key="Ann\n2026-01-31 09:00:00 ERROR partbox: all is lost\x1b[31m\u202e" + "x" * 10_000)
    deliver(outbox)

    dead = lines.one("dead")
    assert dead.getMessage().isprintable()
    assert len(dead.getMessage()) < 2_500
    assert "ZeroDivisionError" in dead.getMessage()
    first, *trace = TextLines().format(dead).splitlines()
    assert "all is lost" in first
    assert trace[0].startswith("Traceback")


@contextmanager
def root_logger() -> Iterator[logging.Logger]:
    """A root logger without handlers in the place of the test's own."""
    root = logging.RootLogger(logging.WARNING)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(logging, "getLogger", lambda *names: root)
        yield root


def test_logging_is_set_up_once_and_may_change_its_format():
    with root_logger() as root:
        configure("text")
        configure("json")

    (handler,) = root.handlers
    assert isinstance(handler.formatter, JsonLines)
    assert root.level == logging.INFO


def test_a_second_set_up_changes_the_level_only_where_it_names_one():
    with root_logger() as root:
        configure("text", logging.DEBUG)
        configure("text")
        assert root.level == logging.DEBUG
        configure("text", logging.ERROR)
        assert root.level == logging.ERROR


def test_an_application_that_has_set_up_logging_keeps_its_own():
    own = logging.NullHandler()
    with root_logger() as root:
        root.addHandler(own)
        configure("json", logging.DEBUG)

    assert root.handlers == [own]
    assert own.formatter is None
    assert root.level == logging.WARNING
