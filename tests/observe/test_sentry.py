"""Reports to Sentry, as a transport in memory sees them."""

import importlib
import json
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
import sentry_sdk
from parcels import pack, unpack
from sentry_sdk.scope import Scope
from sentry_sdk.transport import Transport

from partbox import Dead, Event, Outbox, RetryAfter, UnrecoverableError
from partbox.observe import sentry
from partbox.observe.sentry import Sentry

CANARY = "canary-7731"
"""Words that no report may say: they are in payloads, tenants and headers."""


class Kept(Transport):
    """Keeps what would be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.reports: list[Any] = []

    def capture_envelope(self, envelope: Any) -> None:
        if (report := envelope.get_event()) is not None:
            self.reports.append(report)


@pytest.fixture
def start():
    """Starts Sentry without what it does to the interpreter; nothing of it is left for other tests."""
    made: list[Kept] = []

    def start(**options: Any) -> Kept:
        made.append(Kept())
        usual = {"default_integrations": False, "auto_enabling_integrations": False, "traces_sample_rate": 1.0}
        sentry_sdk.init("http://key@127.0.0.1:9/1", transport=made[-1], **usual | options)
        return made[-1]

    yield start
    Scope.get_global_scope().set_client(None)


@pytest.fixture
def shop(dsn, start):
    """An outbox that reports, and its reports."""
    outbox = Outbox(dsn)
    outbox.observe(Sentry())
    return outbox, start(attach_stacktrace=True).reports


def publish(outbox: Outbox, *events: Event) -> None:
    with psycopg.connect(outbox.dsn) as conn:
        outbox.publish_many(conn, events)


def order(number: int, event_type: str = "OrderPlaced", **fields: Any) -> Event:
    return Event(event_type, {"n": number, "secret": CANARY}, aggregate_id=f"customer-{number}", **fields)


def frames(report: dict[str, Any]) -> list[dict[str, Any]]:
    stacks = [*report.get("exception", {}).get("values", ()), *report.get("threads", {}).get("values", ())]
    return [frame for stack in stacks for frame in stack.get("stacktrace", {}).get("frames", ())]


def test_events_that_die_of_the_same_cause_are_one_issue_that_says_where_to_find_them(shop):
    outbox, reports = shop

    @outbox.on("*", name="confirm", max_attempts=1)
    def confirm(event):
        raise KeyError("stock") if event.event_type == "OrderPaid" else ValueError(f"no {event.payload['n']}")

    publish(outbox, order(1), order(2), order(3, "OrderPaid"), order(4, "OrderLost"))
    assert outbox.drain()

    causes = [tuple(report["fingerprint"]) for report in reports]
    assert sorted(causes) == [
        ("partbox", "default", "OrderLost", "ValueError"),
        ("partbox", "default", "OrderPaid", "KeyError"),
        ("partbox", "default", "OrderPlaced", "ValueError"),
        ("partbox", "default", "OrderPlaced", "ValueError"),
    ]
    report = next(each for each in reports if each["exception"]["values"][0]["value"] == "no 1")
    assert (report["level"], report["transaction"]) == ("error", "confirm")
    assert report["tags"] == {
        "partbox.subscription": "default",
        "partbox.event_type": "OrderPlaced",
        "partbox.handler": "confirm",
        "partbox.state": "dead",
    }
    with psycopg.connect(outbox.dsn) as conn:
        row = conn.execute("select id, event_id::text, partition from partbox.record order by id limit 1").fetchone()
    about = report["contexts"]["partbox"]
    assert (about["record_id"], about["event_id"], about["partition"]) == row
    assert (about["attempt"], about["aggregate_type"], about["held_back"]) == (1, "__GLOBAL__", 0)
    assert "confirm" in [frame["function"] for frame in frames(report)]


def test_no_report_contains_a_payload_or_an_identity(shop):
    outbox, reports = shop

    @dataclass
    class Order:
        n: str

    @outbox.on("OrderPlaced", max_attempts=1)
    def confirm(event):
        payload, raw = event.payload, event.raw
        sentry_sdk.add_breadcrumb(message=f"working on {payload}")
        try:
            event.payload_as(Order)
        except Exception as error:
            error.add_note(f"{raw!r}")
            raise ValueError(f"cannot confirm\nDETAIL: {payload}") from error

    publish(outbox, order(1, tenant_id=CANARY, headers={"whose": CANARY}))
    assert outbox.drain()

    (report,) = reports
    assert len(report["exception"]["values"]) > 1
    assert report["exception"]["values"][-1]["value"] == "cannot confirm"
    assert {"confirm", "payload_as"} <= {frame["function"] for frame in frames(report)}
    assert not [frame for frame in frames(report) if "vars" in frame]
    assert CANARY not in json.dumps(report, default=str)
    assert "customer-1" not in json.dumps(report, default=str)


def test_a_report_of_the_application_has_no_local_variables_when_its_stack_includes_partbox(shop):
    outbox, reports = shop

    def own():
        theirs = "of the application"
        raise LookupError(theirs)

    @outbox.on("OrderPlaced")
    def confirm(event):
        try:
            event.payload_as(int)
        except Exception as error:
            sentry_sdk.capture_exception(error)
        sentry_sdk.capture_message("a stack is attached to this")
        try:
            own()
        except LookupError as error:
            sentry_sdk.capture_exception(error)

    publish(outbox, order(1))
    assert outbox.drain()

    through, attached, beside = reports
    for report in (through, attached):
        assert any(frame["module"].startswith("partbox.") for frame in frames(report))
        assert not [frame for frame in frames(report) if "vars" in frame]
    assert "theirs" in frames(beside)[-1]["vars"]


def test_attempts_that_fail_are_warnings_and_can_be_left_out(dsn, start):
    levels = []
    for retries in (True, False):
        outbox, reports = Outbox(dsn), start().reports
        outbox.observe(Sentry(retries=retries))

        @outbox.on("OrderPlaced", max_attempts=2, retry="fixed:10ms")
        def confirm(event):
            raise ValueError("no")

        @outbox.on("OrderEarly")
        def later(event, asked=[]):  # noqa: B006
            asked.append(event)
            return RetryAfter(0.01) if len(asked) == 1 else None

        publish(outbox, order(1), order(2, "OrderEarly"))
        with outbox.worker() as worker:
            while "error" not in [report["level"] for report in reports]:
                worker.wait_until_empty(1)
        levels.append([report["level"] for report in reports])
    assert levels == [["warning", "error"], ["error"]]


def test_a_failure_that_a_handler_returns_is_reported_too(shop):
    outbox, reports = shop
    outbox.on("OrderLost", name="lost")(lambda event: Dead("nobody wants it"))

    @outbox.on_batch("OrderListed", name="listed", max_attempts=1)
    def listed(events):
        payload = events[0].payload
        try:
            raise OSError(f"full\n{payload}")
        except OSError as error:  # its stack does not go through partbox
            return [error] * len(events)

    publish(outbox, order(1, "OrderLost"), order(2, "OrderListed"))
    assert outbox.drain()

    said = {report["fingerprint"][-1]: report["exception"]["values"][-1]["value"] for report in reports}
    assert said == {"dead": "nobody wants it", "OSError": "full"}
    assert CANARY not in json.dumps(reports, default=str)


@pytest.mark.parametrize("header", ["sentry-trace", "traceparent"])
def test_a_report_belongs_to_the_trace_of_the_publish(shop, header):
    outbox, reports = shop

    @outbox.on("OrderPlaced", max_attempts=1)
    def confirm(event):
        raise UnrecoverableError("no")

    with sentry_sdk.start_transaction(name="checkout") as checkout:
        if header == "sentry-trace":
            publish(outbox, order(1))
        else:  # of OpenTelemetry, by a publisher without Sentry
            given = {header: f"00-{checkout.trace_id}-{checkout.span_id}-01"}
            publish(Outbox(outbox.dsn), order(1, headers=given))
    assert outbox.drain()

    (trace,) = (report["contexts"]["trace"] for report in reports if "exception" in report)
    assert (trace["trace_id"], trace["parent_span_id"]) == (checkout.trace_id, checkout.span_id)
    assert trace["span_id"] != checkout.span_id


def test_headers_that_partbox_did_not_write_only_cost_the_trace(shop):
    outbox, reports = shop
    outbox.on("Foreign")(lambda event: Dead("no"))
    with psycopg.connect(outbox.dsn) as conn:
        for headers in ('["no", "object"]', '{"sentry-trace": "nonsense"}', '{"traceparent": 4}'):
            conn.execute(
                "insert into partbox.record (partition, event_id, event_type, payload, headers)"
                " values (1, gen_random_uuid(), 'Foreign', '{}', %s)",
                [headers],
            )
    assert outbox.drain()
    assert [report["fingerprint"][-1] for report in reports] == ["dead"] * 3


def test_a_flood_of_one_cause_is_ten_reports_and_then_one_that_counts_the_others(shop, monkeypatch):
    outbox, reports = shop
    now = [100.0]
    monkeypatch.setattr(sentry, "time", SimpleNamespace(monotonic=lambda: now[0]))
    outbox.on("OrderPlaced")(lambda event: Dead("no"))
    publish(outbox, *map(order, range(30)))
    assert outbox.drain()
    assert len(reports) == 10
    now[0] += 10
    publish(outbox, order(30))
    assert outbox.drain()
    assert [report["contexts"]["partbox"]["held_back"] for report in reports] == [0] * 10 + [20]


def test_without_a_client_nothing_is_reported_and_no_header_is_written(dsn):
    outbox = Outbox(dsn)
    outbox.observe(Sentry())
    outbox.on("OrderPlaced")(lambda event: Dead("no"))
    publish(outbox, order(1))
    assert outbox.drain()
    with psycopg.connect(dsn) as conn:
        assert conn.execute("select headers from partbox.record").fetchall() == [(None,)]


def test_in_a_process_without_a_client_the_observer_calls_the_given_function_to_make_one(start):
    made: list[str] = []
    travelled = pack(Sentry(lambda: made.append("made"), retries=False))
    assert made == ["made"]
    start()
    there = unpack(travelled)
    assert made == ["made"]
    assert there._reported_states == ("dead",)


def test_without_the_sdk_the_import_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentry_sdk", None)
    monkeypatch.delitem(sys.modules, "partbox.observe.sentry")
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'partbox\[sentry\]'"):
        importlib.import_module("partbox.observe.sentry")


SHOP = """
import json, os
import sentry_sdk
from sentry_sdk.scope import Scope
from sentry_sdk.transport import Transport
from partbox import Outbox
from partbox.observe.sentry import Sentry

class File(Transport):
    def capture_envelope(self, envelope):
        if (report := envelope.get_event()) is not None:
            with open("reports", "a") as file:
                file.write(json.dumps([os.getpid(), report], default=str) + chr(10))

sentry_sdk.init("http://key@127.0.0.1:9/1", transport=File(), attach_stacktrace=True)
outbox = Outbox()
outbox.observe(Sentry())

@outbox.on("OrderPlaced", name="confirm", max_attempts=1)
def confirm(event):
    payload = event.payload
    raise ValueError("no")
"""


def test_worker_processes_report_each_failure_once_beside_all_that_sentry_does_by_itself(dsn, tmp_path, forks):
    (tmp_path / "reporting_shop.py").write_text(SHOP)
    publish(Outbox(dsn), order(1), order(2))
    flags = ["--dsn", dsn, "--processes", "1", "--until-empty"]
    process = forks.start("partbox", "worker", "reporting_shop:outbox", *flags, cwd=tmp_path)
    _, said = process.communicate()
    assert process.returncode == 0, said
    assert said.count("is dead after 1 attempt") == 2  # the lines of the log, which Sentry reports by itself

    written = (tmp_path / "reports").read_text()
    reports = [json.loads(line) for line in written.splitlines()]
    assert [report["fingerprint"] for _, report in reports] == [["partbox", "default", "OrderPlaced", "ValueError"]] * 2
    assert process.pid not in {pid for pid, _ in reports}
    assert CANARY not in written
