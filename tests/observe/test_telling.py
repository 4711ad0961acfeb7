"""What a log line may meet: no worker ends of it."""

import logging

import pytest

from partbox.observe.log_events import LOG_EVENTS
from partbox.observe.telling import tell

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
    tell(log, name, "said %s", "all the same", **fields)
    assert "said all the same" in caplog.text


def test_a_filter_that_fails_harms_nobody(caplog):
    def fails(record):
        raise RuntimeError("broken filter")

    log.addFilter(fails)
    try:
        tell(log, sorted(LOG_EVENTS)[0], "said")
    finally:
        log.removeFilter(fails)
