"""Webhooks: signatures as Standard Webhooks has them, and what each answer means."""

import base64
import logging
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from broker_hook import Hook
from standardwebhooks import Webhook
from waiting import eventually

from partbox import Outbox, SettingsError
from partbox.sinks.webhook import WebhookSink, _retry_after

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()


@pytest.fixture
def hook(tmp_path):
    hook = Hook(tmp_path)
    hook.start()
    yield hook
    hook.kill()


@pytest.fixture
def outbox(dsn, hook):
    outbox = Outbox(dsn, retry="fixed:0.05")
    outbox.register(WebhookSink(hook.url, secret=SECRET), "*", max_attempts=None)
    return outbox


def publish(outbox, conn, *payloads: object) -> None:
    with conn.transaction():
        for payload in payloads:
            outbox.publish(conn, "Placed", payload, aggregate_type="Order", aggregate_id="1")


def test_the_signature_is_that_of_standard_webhooks(outbox, conn, hook):
    publish(outbox, conn, {"text": "ü"})
    assert outbox.drain()
    ((headers, body),) = hook.taken
    assert Webhook(SECRET).verify(body, headers) == {"text": "ü"}


def test_the_url_is_not_logged_with_each_request(outbox, conn, hook, caplog):
    caplog.set_level(logging.INFO)
    publish(outbox, conn, 1)
    assert outbox.drain()
    assert hook.url not in caplog.text


@pytest.mark.parametrize("status", [400, 404, 410, 422])
def test_an_event_that_a_webhook_refuses_permanently_is_dead_with_the_answer(outbox, conn, hook, status):
    hook.answers["1"] = Hook.Answer(status)
    publish(outbox, conn, 1, 2)
    assert outbox.drain()
    assert [body for _, body in hook.taken] == [b"2"]
    (dead,) = outbox.dead.list()
    assert f"HTTP {status}" in dead.error


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503])
def test_an_event_that_a_webhook_refuses_for_now_is_sent_again_before_later_ones(outbox, conn, hook, status):
    hook.answers["1"] = Hook.Answer(status, times=2)
    publish(outbox, conn, 1, 2)
    with outbox.worker():
        eventually(lambda: len(hook.taken) == 2)
    assert [body for _, body in hook.taken] == [b"1", b"2"]
    assert outbox.dead.list() == []


@pytest.mark.parametrize(("status", "is_outage"), [(429, False), (500, False), (502, True), (503, True), (504, True)])
def test_gateway_errors_for_many_events_are_an_outage(outbox, conn, hook, caplog, status, is_outage):
    with conn.transaction():
        for number in range(12):
            hook.answers[str(number)] = Hook.Answer(status, times=100)
            outbox.publish(conn, "Placed", number, aggregate_type="Order", aggregate_id=str(number))
    with outbox.worker():
        failed = "select count(*) from partbox.parked where last_error is not null"
        eventually(lambda: conn.execute(failed).fetchone()[0] == 12)
        assert ("is open: its events are deferred" in caplog.text) is is_outage
    assert outbox.dead.list() == []


def test_the_header_retry_after_sets_the_time_of_the_retry(outbox, conn, hook):
    hook.answers["1"] = Hook.Answer(429, {"Retry-After": "3000"})
    publish(outbox, conn, 1)
    assert not outbox.drain()
    (due,) = conn.execute("select extract(epoch from due_at - now()) from partbox.parked").fetchone()
    assert 2_900 < due <= 3_000


@pytest.mark.parametrize(
    ("text", "seconds"), [(None, None), ("soon", None), ("7", 7.0), ("999999", 3_600.0), ("-1", None)]
)
def test_a_retry_after_may_be_a_number_of_seconds(text, seconds):
    assert _retry_after(text) == seconds


def test_a_retry_after_may_be_a_date():
    soon = _retry_after(format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True))
    past = _retry_after("Sun, 06 Nov 1994 08:49:37 GMT")
    assert soon is not None
    assert 90 < soon <= 100
    assert past == 0.0


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_c2hvcnQ=", "not base64!"])
def test_an_invalid_webhook_secret_is_refused_without_being_shown(secret):
    with pytest.raises(SettingsError, match="must be whsec_ and the base64 of 24 to 64 bytes") as refused:
        WebhookSink("https://example.org", secret=secret)
    assert secret.removeprefix("whsec_") == "" or secret not in str(refused.value)
