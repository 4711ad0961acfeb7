"""Tracing as a part of the whole: worker processes, travelling, what is imported."""

import importlib
import json
import sys

import multiprocess
import psycopg
import pytest
from opentelemetry.sdk.trace import TracerProvider

from partbox import Event, Outbox
from partbox.errors import PartboxError
from partbox.observe.tracing import Tracing


def test_worker_processes_trace_by_the_provider_of_the_module_they_import(dsn, tmp_path, forks):
    (tmp_path / "traced_shop.py").write_text(
        """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from partbox import Outbox
from partbox.observe.tracing import Tracing

exporter = ConsoleSpanExporter(out=open("spans", "a"), formatter=lambda span: span.to_json(indent=None) + chr(10))
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(exporter))
trace.set_tracer_provider(provider)
outbox = Outbox()
outbox.observe(Tracing())
outbox.on("Counted")(lambda event: None)
"""
    )
    with psycopg.connect(dsn) as conn:
        Outbox(dsn).publish_many(conn, [Event("Counted", {}) for _ in range(5)])
    flags = ["--dsn", dsn, "--processes", "1", "--until-empty"]
    process = forks.start("partbox", "worker", "traced_shop:outbox", *flags, cwd=tmp_path)
    _, said = process.communicate()
    assert process.returncode == 0, said

    spans = [json.loads(line) for line in (tmp_path / "spans").read_text().splitlines()]
    assert [span["name"] for span in spans].count("handle Counted") == 5
    assert sum(span["attributes"].get("success.count", 0) for span in spans) == 5


def test_a_provider_cannot_be_sent_to_worker_processes_but_a_function_that_makes_one_can():
    pickler = multiprocess.reduction.ForkingPickler

    with pytest.raises(PartboxError, match="cannot be passed to worker processes: give Tracing a function"):
        pickler.dumps(Tracing(TracerProvider(shutdown_on_exit=False)))

    pickler.dumps(Tracing())
    made = pickler.loads(pickler.dumps(Tracing(_provider)))
    with made.publishing([Event("Counted", {})]) as headers:
        assert headers["traceparent"].startswith("00-")


def _provider() -> TracerProvider:
    return TracerProvider(shutdown_on_exit=False)


@pytest.mark.parametrize("module", ["tracing", "metering"])
def test_without_opentelemetry_the_import_says_what_to_install(monkeypatch, module):
    for name in [name for name in sys.modules if name.split(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    for name in ("conventions", module):
        monkeypatch.delitem(sys.modules, f"partbox.observe.{name}", raising=False)

    with pytest.raises(ModuleNotFoundError, match=r"pip install 'partbox\[otel\]'"):
        importlib.import_module(f"partbox.observe.{module}")


def test_the_core_imports_neither_opentelemetry_nor_sentry(forks, tmp_path):
    """The process that commands are forked from has imported them all."""
    (tmp_path / "look.py").write_text(
        "import sys; sys.exit(not {'partbox', 'partbox.cli', 'partbox.supervisor.child'} <= {*sys.modules}"
        " or bool({'opentelemetry', 'sentry_sdk'} & {*sys.modules}))"
    )
    process = forks.start("python", "look.py", cwd=tmp_path)
    assert (process.communicate(), process.returncode) == (("", ""), 0)
