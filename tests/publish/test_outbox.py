"""The façade and the public names."""

import inspect
from typing import Any

import psycopg
import pytest
from reading import delivered

import partbox
from partbox import Outbox, errors
from partbox.errors import PublishError, RegistrationError, SettingsError


def test_the_public_names_are_exactly_those_listed_here() -> None:
    assert sorted(partbox.__all__) == [
        "Dead", "DeliveredEvent", "Done", "DownstreamUnavailable", "Event", "Exponential", "Fixed", "Ignore",
        "Jittered", "NewerVersionError", "Outbox", "PartboxError", "PayloadError", "PublishError", "RecoverableError",
        "RegistrationError", "RetryAfter", "RetryAfterError", "SchemaError", "SettingsError", "UnrecoverableError",
        "UnroutableError", "__version__", "event", "partition_of", "supplied",
    ]  # fmt: skip
    assert all(hasattr(partbox, name) for name in partbox.__all__)


def test_every_error_is_public_and_has_the_base_class_that_it_should_have() -> None:
    tree = {
        partbox.PartboxError: (
            partbox.PublishError, partbox.SchemaError, partbox.SettingsError, partbox.RegistrationError,
            partbox.RecoverableError, partbox.UnrecoverableError,
        ),
        partbox.RecoverableError: (partbox.RetryAfterError, partbox.DownstreamUnavailable),
        partbox.UnrecoverableError: (partbox.PayloadError, partbox.UnroutableError),
    }  # fmt: skip
    assert all(child.__bases__ == (parent,) for parent, children in tree.items() for child in children)
    own = {each.__name__ for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, Exception)}
    assert own <= set(partbox.__all__)


def test_the_version_is_that_of_the_package() -> None:
    assert partbox.__version__.count(".") == 2


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(SettingsError, match="max_payloat"):
        Outbox(max_payloat=1)


def test_keywords_are_settings(dsn: str, conn: psycopg.Connection[Any]) -> None:
    outbox = Outbox(dsn, max_payload=3)
    assert (outbox.settings.schema_name, outbox.settings.max_payload, outbox.dsn) == ("partbox", 3, dsn)
    with conn.transaction(), pytest.raises(PublishError, match="max_payload = 3"):
        outbox.publish(conn, "T", "four")


def test_the_dsn_may_come_from_the_environment(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARTBOX_DSN", dsn)
    outbox = Outbox()
    with outbox.transaction() as tx:
        outbox.publish(tx, "T", 1)
        assert [event.payload for event in delivered(tx)] == [1]


def test_without_a_dsn_the_error_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PARTBOX_DSN", raising=False)
    outbox = Outbox()
    with pytest.raises(SettingsError, match="PARTBOX_DSN"), outbox.transaction():
        pass


def test_on_and_register_fill_the_registry() -> None:
    outbox = Outbox()

    @outbox.on("OrderPlaced", aggregate_type="Order")
    def confirm(event: object) -> None:
        del event

    class Audit:
        event_type = "*"

        def handle(self, event: object) -> None:
            del event

    outbox.register(Audit())
    routes = outbox.handlers.build_routes("default", outbox.settings)
    placed, other = routes["OrderPlaced", "Order"], routes["OrderPlaced", "Cart"]
    assert placed is not None
    assert other is not None
    assert (placed.call, other.event_type) == (confirm, "*")
    with pytest.raises(RegistrationError, match="OrderPlaced"):
        outbox.register(confirm, "OrderPlaced", "Order")
