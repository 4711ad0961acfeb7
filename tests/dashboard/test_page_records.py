"""Records on the page, as its server tells of them: found, in whole, and payloads only for those who may see them."""

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from live import TOKEN, Live

from partbox.dashboard.payload_tree import MOST, SHOWN, build_tree

SECRET = "4711-SECRET"
TRICKS = "<img src=x onerror=alert(1)>\u202egpj\x1b[2J"
HELD = {"authorization": f"Bearer {TOKEN}"}
TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def record(plant):
    """A dead record with a secret payload, hostile names and headers."""
    headers = {
        "x-<b>\u202e": TRICKS,
        "dsn": "postgresql://shop:hunter2@db",
        "traceparent": f"00-{TRACE}-b7ad6b7169203331-01",
    }
    payload = {"card": SECRET, "items": [1.0, 1e2, None]}
    return plant.park(f"7 {TRICKS}", error=f"ValueError: {TRICKS}", payload=payload, headers=headers)


def test_a_record_is_found_by_its_ids_its_type_and_its_outcome(live, plant, record):
    paid = plant.park("8", event_type="Paid")
    found = live.get("/api/find", find="8").plain
    assert (found["meant"], [each["record"] for each in found["records"]]) == ("aggregate id", [paid])
    assert found["records"][0]["states"] == [{"subscription": "default", "state": "dead", "attempts": 10}]
    assert live.get("/api/find", find=str(paid)).plain["meant"] == "record id"
    assert [each["record"] for each in live.get("/api/find", event_type="Paid").plain["records"]] == [paid]
    assert live.get("/api/find", find="nobody").plain["records"] == []
    live.post("/api/dead/discard", records=[paid])
    discarded = live.get("/api/find", ended="discarded", since="1h").plain["records"]
    assert [each["record"] for each in discarded] == [paid]


def test_more_than_a_page_is_found_page_by_page(live, plant):
    records = [plant.park("7") for _ in range(51)]
    first = live.get("/api/find", find="7").plain
    second = live.get("/api/find", find="7", before=first["before"]).plain
    assert [each["record"] for each in first["records"] + second["records"]] == records[::-1]


def test_one_record_tells_its_story_its_headers_and_its_trace(live, record):
    whole = live.get(f"/api/records/{record}").plain
    assert (whole["trace"], whole["partition"] is not None) == (TRACE, True)
    (standing,) = whole["standings"]
    assert (standing["state"], standing["subscription"]) == ("dead", "default")
    assert whole["timeline"][0]["text"] == "published"
    assert r"\u202egpj\x1b[2J" in dict(whole["headers"])[r"x-<b>\u202e"]
    assert dict(whole["headers"])["dsn"] == "postgresql://shop:***@db"


def test_an_invalid_traceparent_header_gives_no_trace_link(live, plant):
    hostile = plant.park("9", headers={"traceparent": f"00-{'../' * 10}xx-b7ad6b7169203331-01"})
    assert live.get(f"/api/records/{hostile}").plain["trace"] is None


def everything(live, record, headers):
    """All that the page's server says when nobody asks for a payload."""
    paths = ["/api/dead", "/api/dead-groups", "/api/blocked", "/api/lags", "/api/actions", f"/api/records/{record}"]
    paths += ["/api/find?find=7", "/api/find?ended=failed&since=1h", "/api/find", f"/api/find?find={record}"]
    answers = [live.get(path, headers) for path in paths]
    assert {each.status for each in answers} == {200}
    return b"".join(each.body for each in answers) + json.dumps(live.frames(2, headers)).encode()


def test_a_payload_is_sent_only_when_requested_with_permission(live, dsn, plant, record, caplog):
    caplog.set_level(logging.DEBUG)
    allowed = Live(dsn, http_payloads=True)
    try:
        for each, headers in ((live, {}), (live, HELD), (allowed, {}), (allowed, HELD)):
            told = everything(each, record, headers)
            assert SECRET.encode() not in told
        path = f"/api/records/{record}/payload"
        for each, headers, status in ((live, {}, 403), (live, HELD, 403), (allowed, {}, 401), (allowed, HELD, 200)):
            answer = each.get(path, headers)
            assert (answer.status, SECRET.encode() in answer.body) == (status, status == 200)
        assert allowed.get(path, HELD | {"sec-fetch-site": "cross-site"}).status == 403
        assert answer.headers["cache-control"] == "no-store"
        (frame,) = allowed.frames(1, HELD)
        assert ("payload" in frame["may"], "payload" in live.frames(1, HELD)[0]["may"]) == (True, False)
    finally:
        allowed.close()
    assert f"page: payload of record {record} shown to the holder of the page's token" in caplog.text
    assert SECRET not in caplog.text


def test_the_tree_of_a_payload_keeps_its_numbers_as_written_and_its_duplicate_keys():
    text = '{"id": 12345678901234567890, "price": 1.10, "id": [true, null, "a\\u202eb"], "e": {}}'
    assert build_tree(text) == {
        "tree": {
            "object": [
                ["id", {"number": "12345678901234567890"}],
                ["price", {"number": "1.10"}],
                ["id", {"array": [True, None, r"a\u202eb"]}],
                ["e", {"object": []}],
            ]
        },
        "whole": True,
    }
    assert build_tree(None) == {"tree": None, "whole": True}


def test_a_payload_that_is_not_json_or_too_deep_or_too_large_is_shown_by_its_beginning():
    assert build_tree(b"\x00\xff") == {"bytes": "00 ff", "whole": True}
    assert build_tree("no json\x1b") == {"text": r"no json\x1b", "whole": True}
    deep = build_tree("[" * 50_000 + "]" * 50_000)
    assert (len(deep["text"]), deep["whole"]) == (SHOWN, False)
    assert build_tree('"' + "x" * MOST + '"')["whole"] is False
    assert build_tree(bytes(SHOWN + 1))["whole"] is False


scalars = st.none() | st.booleans() | st.integers() | st.text(st.characters(min_codepoint=32, max_codepoint=126))
values = st.recursive(
    scalars, lambda each: st.lists(each) | st.dictionaries(st.sampled_from("abc"), each), max_leaves=9
)


@given(values)
def test_the_tree_of_a_payload_holds_the_same_values_as_the_payload(value):
    def back(node):
        match node:
            case {"object": members}:
                return {key: back(each) for key, each in members}
            case {"array": elements}:
                return [back(each) for each in elements]
            case {"number": number}:
                return json.loads(number)
        return node

    assert back(build_tree(json.dumps(value))["tree"]) == value


def test_actions_of_operators_are_listed_with_the_person_who_did_them(live, plant):
    one, two = plant.park("7"), plant.park("8")
    live.post("/api/dead/replay", records=[one], reason="INC-4711")
    plant.outbox.dead.discard(two)
    live.post("/api/dead/replay-all")
    live.post("/api/subscription/pause", reason=" ")
    told = live.get("/api/actions").plain
    assert [(each["action"], each["subscription"], each["count"]) for each in told] == [
        ("subscription pause", "default", 1),
        ("dead discard", "default", 1),
        ("dead replay", "default", 1),
    ]
    assert [each["reason"] for each in told] == [None, None, "INC-4711"]
    assert told[0]["who"].startswith("the holder of the page's token as ")
    assert not told[1]["who"].startswith("the holder")
    assert told[2]["on"] == f"record {one}"
    entries = live.get(f"/api/records/{one}").plain["timeline"]
    assert any("replayed by the holder of the page's token" in each["text"] for each in entries)
