"""Calls about dead records that are refused, with the reason, before anything changes."""

from datetime import timedelta
from uuid import UUID, uuid4

import psycopg
import pytest
from planted_records import Planter

from partbox import Outbox
from partbox.errors import PartboxError, SchemaError


@pytest.fixture
def plant(conn) -> Planter:
    return Planter(conn)


@pytest.fixture
def outbox(dsn) -> Outbox:
    return Outbox(dsn)


def test_a_record_that_is_not_dead_is_refused_with_what_it_is(plant, outbox):
    waiting = plant.park("a", "retrying", blocks=True, due=60)
    for act in (outbox.dead.show, outbox.dead.replay, outbox.dead.discard):
        with pytest.raises(PartboxError, match=f"no dead record {waiting} in .*; it is retrying .*`partbox dead list`"):
            act(waiting)
        with pytest.raises(PartboxError, match=r"no dead record 4711 in .*'default': `partbox dead list`"):
            act(4711)
        with pytest.raises(PartboxError, match=r"no dead record of event .*`partbox dead list`"):
            act(uuid4())
    assert (plant.states(), plant.versions()) == ({waiting: "retrying"}, {})


def test_an_event_id_of_several_dead_records_is_refused_and_names_them(plant, outbox):
    event = UUID(int=5)
    ids = [plant.park(str(number), event_id=UUID(int=5 + number)) for number in range(2)]
    plant.conn.execute("update partbox.record set event_id = %s", [event])
    with pytest.raises(PartboxError, match=f"several dead records: name one by its record id: {ids[0]}, {ids[1]}"):
        outbox.dead.replay(event)


NO_IDS = [0, -1, 1 << 63, True, "x", "", "1.5", "99999999999999999999", 1.5, None, "\0", "٣"]


def test_a_value_that_is_no_id_is_refused(outbox):
    for id in NO_IDS:
        for act in (outbox.dead.show, outbox.dead.replay, outbox.dead.discard):
            with pytest.raises(PartboxError, match="is neither a record id, such as 42, nor an event id, a UUID"):
                pytest.fail(f"{id!r} is taken: {act(id)}")


WRONG_FILTERS = [
    ({"older_than": "yesterday"}, "older_than 'yesterday' is no length of time: give seconds"),
    ({"older_than": -1}, "older_than -1 is no length"),
    ({"older_than": timedelta(-1)}, "is no length of time"),
    ({"event_type": ""}, "event_type is empty"),
    ({"event_type": 5}, "not a str"),
    ({"aggregate_id": "a\0"}, "NUL"),
    ({"aggregate_type": "\ud800"}, "surrogate"),
]


def test_wrong_filters_are_refused_before_anything_is_done(plant, outbox):
    record = plant.park("a")
    for wrong, why in WRONG_FILTERS:
        for act in (outbox.dead.list, outbox.dead.count, outbox.dead.replay_all, outbox.dead.discard_all):
            with pytest.raises(PartboxError, match=why):
                act(**wrong)
        assert plant.states() == {record: "dead"}, wrong


WRONG_LIMITS = [0, -1, True, 1.5, "10", 1 << 63]


def test_a_wrong_limit_is_refused(outbox):
    for limit in WRONG_LIMITS:
        with pytest.raises(PartboxError, match="must be a whole number above 0"):
            pytest.fail(f"{limit!r} is taken: {outbox.dead.list(limit=limit)}")


def test_a_count_that_cannot_be_made_is_an_error_and_never_zero(outbox, empty_dsn):
    with pytest.raises(SchemaError, match=r"'audit' does not exist .*: there is 'default'"):
        outbox.dead.count(subscription="audit")
    with pytest.raises(SchemaError, match="run `partbox init`"):
        Outbox(empty_dsn).dead.count()
    with pytest.raises(psycopg.OperationalError):
        Outbox("postgresql://127.0.0.1:1/nowhere").dead.count()


@pytest.mark.parametrize("group", ["", "x", "1.5", "9" * 30, 1 << 63, True, "--1"])
def test_a_value_that_is_no_group_number_is_refused(outbox, group):
    with pytest.raises(PartboxError, match="must be the number of a group of dead records"):
        outbox.dead.list(group=group)
