"""`outbox.records.find`: records by what they are, or by what befell them, and what became of each."""

import pytest
from observing import subscribe
from psycopg.types.json import Json

from partbox.db.inspect import log_search
from partbox.errors import PartboxError, SchemaError


def ids(found) -> list[int]:
    return [each.record_id for each in found.records]


def record_id(plant, event_id) -> int:
    ((id,),) = plant.conn.execute("select id from partbox.record where event_id = %s", [event_id]).fetchall()
    return id


def test_one_word_finds_a_record_by_any_of_its_names(plant, outbox):
    event_id = plant.publish("order-7", idempotency_key="paid-7", tenant_id="acme", payload={"card": "sesame"})
    plant.publish("order-8")
    id = record_id(plant, event_id)
    words = {"order-7": "aggregate id", event_id: "event id", "paid-7": "idempotency key", id: "record id"}
    for word, meant in words.items():
        found = outbox.records.find(word)
        assert (found.meant, ids(found)) == (meant, [id])
    (record,) = found.records
    assert (record.event_id, record.event_type, record.aggregate_id) == (event_id, "Placed", "order-7")
    assert (record.tenant_id, record.idempotency_key, record.size) == ("acme", "paid-7", 17)
    (standing,) = record.standings
    assert (standing.subscription, standing.state, standing.ahead) == ("default", "waiting", 0)
    assert standing.why.startswith("no process owns partition")


def test_finding_a_number_that_is_an_aggregate_id_says_that_it_is_a_record_id_too(plant, outbox):
    first = record_id(plant, plant.publish("8"))
    plant.publish(str(first))
    found = outbox.records.find(first)
    assert (found.meant, [each.aggregate_id for each in found.records]) == ("aggregate id", [str(first)])
    assert found.others == ("record id",)
    assert ids(outbox.records.find(record=first)) == [first]


def test_a_uuid_may_be_an_aggregate_id(plant, outbox):
    customer = "0f8fad5b-d9cb-469f-a165-70867728950e"
    plant.publish(customer)
    assert outbox.records.find(customer).meant == "aggregate id"
    assert outbox.records.find("0f8fad5b-d9cb-469f-a165-70867728950f").records == ()


def test_an_event_without_an_aggregate_id_is_found_by_an_event_id_that_holds_no_time(plant, outbox):
    event_id = plant.publish(None, event_id="0f8fad5b-d9cb-469f-a165-70867728950e")
    assert [each.event_id for each in outbox.records.find(event_id).records] == [event_id]


def test_filters_narrow_what_is_found(plant, outbox):
    plant.publish("1", event_type="Paid", tenant_id="acme")
    plant.publish("1", event_type="Sent", tenant_id="acme", aggregate_type="Parcel")
    plant.publish("2", event_type="Paid", tenant_id="other")

    def types(*what, **query):
        return [(each.event_type, each.tenant_id) for each in outbox.records.find(*what, **query).records]

    assert types() == [("Paid", "other"), ("Sent", "acme"), ("Paid", "acme")]
    assert types("1") == [("Sent", "acme"), ("Paid", "acme")]
    assert types(event_type="Paid") == [("Paid", "other"), ("Paid", "acme")]
    assert types(tenant="acme", aggregate_type="Parcel") == [("Sent", "acme")]
    assert types("1", until="1h") == types(since="2099-01-01T00:00Z") == []
    assert len(types(since="1h")) == 3


def test_a_result_that_is_cut_off_says_where_the_search_continues(plant, outbox):
    for _ in range(5):
        plant.publish("1")
    found = outbox.records.find("1", limit=2)
    walked = ids(found)
    while found.before is not None:
        assert found.read_since is not None
        found = outbox.records.find("1", limit=2, before=found.before)
        walked += ids(found)
    assert len(walked) == 5
    assert walked == sorted(walked, reverse=True)
    assert found.read_since is None


def test_payloads_come_only_when_they_are_asked_for(plant, outbox):
    plant.publish("1", payload={"card": "sesame"})
    assert "sesame" not in repr(outbox.records.find("1"))
    (record,) = outbox.records.find("1", payload=True).records
    assert record.payload == '{"card":"sesame"}'
    assert "sesame" not in repr(record)


WRONG = {
    "limit": (0, 201, True),
    "ended": ("dea", ""),
    "record": ("x", -1, 0),
    "event": ("4711", 5),
    "before": ("x", 0),
    "since": ("yesterday",),
    "tenant": ("a\0b",),
    "aggregate": ("a\0b", True),
}


@pytest.mark.parametrize("name", WRONG)
def test_senseless_values_of_a_filter_are_refused_by_its_name(outbox, name):
    for value in WRONG[name]:
        with pytest.raises(PartboxError, match=name):
            pytest.fail(f"{value!r} is taken: {outbox.records.find(**{name: value})}")


def test_naming_a_record_in_more_than_one_way_is_refused(outbox):
    with pytest.raises(PartboxError, match="key and what"):
        outbox.records.find("7", key="8")
    with pytest.raises(PartboxError, match="leave out the id or key"):
        outbox.records.find("7", ended="dead")
    with pytest.raises(SchemaError, match="'audit' does not exist"):
        outbox.records.find("7", subscription="audit")
    with pytest.raises(TypeError, match="colour"):
        outbox.records.find(colour="red")


def test_each_subscription_has_its_own_standing(plant, outbox, conn):
    subscribe(conn, "audit")
    first = plant.park("1", "retrying", blocks=True, attempts=2, due=60)
    second = plant.park("1", "held", blocks=True, error=None, attempts=0)
    dead = plant.park("2", "dead")
    waiting = record_id(plant, plant.publish("1"))
    outbox.subscriptions.pause("audit")
    found = {
        each.record_id: {one.subscription: one for one in each.standings} for each in outbox.records.find().records
    }
    assert {id: each["audit"].state for id, each in found.items()} == dict.fromkeys(found, "delivered") | {
        waiting: "waiting"
    }
    assert found[waiting]["audit"].why == "the subscription is paused"
    told = {id: (each["default"].state, each["default"].behind, each["default"].attempts) for id, each in found.items()}
    assert told == {
        first: ("retrying", None, 2),
        second: ("held", first, 0),
        dead: ("dead", None, 10),
        waiting: ("waiting", first, 0),
    }
    assert found[first]["default"].error == "ValueError: boom"
    assert found[first]["default"].due_at is not None


def aged(conn, count: int) -> None:
    """So many records, a second apart, the last one published an hour ago; each event id says when."""
    conn.execute(
        """insert into partbox.record (partition, event_id, event_type, aggregate_type, aggregate_id, created_at)
           select n %% 256, (lpad(to_hex((extract(epoch from moment) * 1000)::bigint), 12, '0') || '7'
                             || substr(md5(n::text), 1, 3) || '8' || substr(md5(n::text), 4, 15))::uuid,
                  'Placed', 'Order', 'o' || n, moment
             from generate_series(1, %(n)s) n
            cross join lateral (select now() - (3600 + %(n)s - n) * interval '1 s' as moment) m""",
        {"n": count},
    )
    # As they would be by their aggregate ids.
    conn.execute("update partbox.record set partition = partbox.partition_of(aggregate_id)")


def event_of(conn, record: int):
    ((event_id,),) = conn.execute("select event_id from partbox.record where id = %s", [record]).fetchall()
    return event_id


def test_an_event_is_found_around_its_moment_in_a_long_log(conn, outbox, monkeypatch):
    monkeypatch.setattr(log_search, "FEW_STEPS", (10,))
    aged(conn, 5_000)
    for record in (1, 77, 2_500, 4_999, 5_000):
        event_id = event_of(conn, record)
        assert ids(outbox.records.find(event_id)) == [record]
    conn.execute(
        "insert into partbox.idempotency select 'paid', event_id, created_at from partbox.record where id = 99"
    )
    assert ids(outbox.records.find(key="paid")) == [99]
    since, until = (conn.execute("select created_at from partbox.record where id = %s", (id,)) for id in (4_901, 4_903))
    assert ids(outbox.records.find(since=since.fetchone()[0], until=until.fetchone()[0])) == [4_902, 4_901]


def test_a_search_proceeds_step_by_step_up_to_its_bound(conn, outbox, monkeypatch):
    monkeypatch.setattr(log_search, "READ_STEPS", (10, 20, 70))
    aged(conn, 300)
    found = outbox.records.find(aggregate="o45", event_type="Placed")
    assert ids(found) == [45]
    assert ids(outbox.records.find(event_type="Placed", aggregate_type="Order", limit=100))[-1] == 201
    far = outbox.records.find(event_type="Nothing")
    assert (far.records, far.before) == ((), 201)
    assert far.read_since == conn.execute("select created_at from partbox.record where id = 201").fetchone()[0]


@pytest.mark.parametrize(("most", "before"), [(40, 261), (25, 281), (12, 291)])
def test_a_search_that_takes_too_long_ends_with_what_it_has_read_or_with_half_of_its_first_step(
    conn, outbox, monkeypatch, most, before
):
    monkeypatch.setattr(log_search, "READ_STEPS", (40, 70))
    aged(conn, 300)
    read = log_search.fetch_rows

    def read_slowly(conn, name, *schema, **values):
        if name == "find_in_log" and values["before"] - values["low"] > most:
            conn.execute("set local statement_timeout = '1ms'")
            conn.execute("select pg_sleep(1)")
        return read(conn, name, *schema, **values)

    monkeypatch.setattr(log_search, "fetch_rows", read_slowly)
    found = outbox.records.find(before=301, event_type="Nothing")
    assert (found.records, found.before) == ((), before)
    assert found.read_since is not None


def test_a_search_for_ignored_events_that_takes_too_long_reads_half_as_many(conn, outbox, monkeypatch):
    aged(conn, 300)
    conn.execute(
        "insert into partbox.handled_types (instance_id, subscription, types)"
        " values (gen_random_uuid(), 'default', '[[\"Other\", null]]')"
    )
    monkeypatch.setattr(log_search, "MAX_IGNORED_SCAN", 200)
    read = log_search.fetch_rows

    def read_slowly(conn, name, *schema, **values):
        if name == "find_befallen" and values["most_read"] > 60:
            conn.execute("set local statement_timeout = '1ms'")
            conn.execute("select pg_sleep(1)")
        return read(conn, name, *schema, **values)

    monkeypatch.setattr(log_search, "fetch_rows", read_slowly)
    found = outbox.records.find(ended="ignored", since="90d")
    assert (found.records, found.before) == ((), 251)


def test_an_event_that_is_not_found_near_its_moment_says_that_not_all_was_read(conn, outbox, monkeypatch):
    monkeypatch.setattr(log_search, "FEW_STEPS", (10,))
    aged(conn, 1_000)
    event_id = event_of(conn, 500)
    conn.execute("delete from partbox.record where id = 500")
    found = outbox.records.find(event=event_id)
    assert (found.records, found.before) == ((), None)
    assert found.read_since is not None


def test_the_process_that_runs_a_found_record_is_named(plant, outbox, conn):
    record = record_id(plant, plant.publish("a"))
    running = [{"record_id": record, "handler": "shop.place", "since": 1}, {"more": 3}]
    conn.execute(
        "with made as (insert into partbox.instance (subscription, node, hostname, pid, version, lease, running)"
        " values ('default', 'web-1', 'web-1', 4711, '1', '6 s', %s) returning instance_id)"
        " update partbox.partition set owner = instance_id from made",
        [Json(running)],
    )
    (standing,) = outbox.records.find(record=record).records[0].standings
    assert (standing.state, standing.process, standing.why) == ("running", "4711 on web-1", None)
    (standing,) = outbox.records.find(record=record_id(plant, plant.publish("b"))).records[0].standings
    assert (standing.state, standing.process) == ("waiting", "4711 on web-1")


def test_a_record_that_a_subscription_was_never_to_deliver_is_not_shown_as_delivered(plant, outbox):
    before = record_id(plant, plant.publish("a"))
    outbox.subscriptions.create("audit", start="now")
    outbox.subscriptions.create("sent", start="now", types=["Sent"])
    after = record_id(plant, plant.publish("a"))
    plant.consume()
    told = {
        record.record_id: {each.subscription: each.state for each in record.standings}
        for record in outbox.records.find().records
    }
    assert told == {
        before: {"audit": "passed", "default": "delivered", "sent": "unwanted"},
        after: {"audit": "delivered", "default": "delivered", "sent": "unwanted"},
    }


def test_the_operator_who_skipped_a_head_is_named_in_its_history(plant, outbox):
    head = plant.park("a", "retrying", blocks=True, due=60)
    held = plant.park("a", "held", blocks=True, error=None)
    with outbox.acting_as("alice"):
        outbox.blocked.skip("Order", "a", "customer is gone")
    first, second = outbox.records.find("a").records
    assert (first.record_id, first.standings[0].behind) == (held, None)
    (entry,) = second.standings[0].history
    assert (second.record_id, entry.outcome, entry.error) == (head, "skipped", "customer is gone")
    assert entry.who is not None
    assert entry.who.startswith("alice")
