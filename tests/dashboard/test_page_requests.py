"""The answers of the page's server, and the rights that they need."""

import time

import psycopg
import pytest
from live import TOKEN, Live
from waiting import eventually

from partbox.dashboard import operator_actions
from partbox.errors import SettingsError

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202egpj.exe\x00".replace("\x00", "\x9b") + "x" * 8_000


def test_the_page_has_a_strict_content_security_policy(live):
    answer = live.get("/")
    assert answer.status == 200
    policy = answer.headers["content-security-policy"]
    for rule in ("default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"):
        assert rule in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert b"<style" not in answer.body
    assert b"style=" not in answer.body
    assert b"http://" not in answer.body.replace(b"http://www.w3.org", b"")
    assert answer.body.count(b"<script") == 1


@pytest.mark.parametrize("name", ["main.js", "page.css", "icon.svg", "map.js"])
def test_the_files_of_the_page_are_served_with_their_content_types(live, name):
    kinds = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
    answer = live.get(f"/{name}")
    assert (answer.status, answer.headers["x-content-type-options"]) == (200, "nosniff")
    assert answer.headers["content-type"].startswith(kinds[name.rpartition(".")[2]])


@pytest.mark.parametrize("path", ["/../settings.py", "/static/main.js", "/__init__.py", "/api/nothing"])
def test_any_other_path_is_not_found(live, path):
    assert live.get(path).status == 404


def test_the_first_frame_of_a_stream_has_the_history_and_later_frames_leave_it_out(live, plant):
    plant.publish("7")
    plant.park("8", "retrying", blocks=True)
    first, second = live.frames(2)
    shown = first["subscription"]
    assert (first["schema"], first["error"], shown["name"]) == ("partbox", None, "default")
    assert {len(shown[name]) for name in ("owners", "assignees", "epochs", "pendings", "lags", "claimed")} == {256}
    assert set(shown["owners"]) == {-1}
    assert (shown["blocked_keys"], shown["parked"]) == (1, {"retrying": 1})
    assert "no-workers" in [trouble["name"] for trouble in first["troubles"]]
    assert (first["may"], len(first["history"])) == (["look"], 1)
    assert "history" not in second
    assert second["at"] >= first["at"]  # the same where a look takes long: its answer lasts longer then


def test_a_request_for_an_unknown_subscription_gets_no_data_of_another_one(live):
    (frame,) = live.frames(1, query="?subscription=audit")
    assert frame["subscription"] is None
    assert [each["name"] for each in frame["subscriptions"]] == ["default"]


def test_the_database_is_not_queried_while_nobody_watches(live, conn):
    live.frames(1)
    looked = "select query_start from pg_stat_activity where application_name = 'partbox glance'"

    def rests() -> bool:
        before = conn.execute(looked).fetchone()
        time.sleep(1.5)  # longer than between two looks
        return before is not None and conn.execute(looked).fetchone() == before

    assert eventually(rests)


def test_a_viewer_with_the_token_may_act_and_sees_which_actions_are_allowed(live):
    (frame,) = live.frames(1, {"authorization": f"Bearer {TOKEN}"})
    may = ["look", "replay", "discard", "retry", "skip", "pause", "resume", "limit"]
    assert (frame["may"], frame["unlock"]) == (may, True)
    assert live.post("/api/unlock").plain == {"unlocked": True}


ACTIONS = ["dead/replay", "dead/discard", "dead/replay-all", "dead/discard-all", "blocked/retry", "blocked/skip"]
ACTIONS += ["subscription/pause", "subscription/resume", "limit/set", "limit/reset", "unlock"]


@pytest.mark.parametrize("action", ACTIONS)
def test_an_action_without_the_token_or_from_another_site_is_refused_and_changes_nothing(live, plant, conn, action):
    dead, blocking = plant.park("a"), plant.park("b", "retrying", blocks=True, due=3_600)
    before = (plant.states(), plant.versions(), plant.row(blocking))
    body = {"records": [dead, blocking]}
    for token in (None, "", "a-token-of-this-tesT", TOKEN + "x"):
        answer = live.post(f"/api/{action}", token=token, **body)
        assert (answer.status, "token" in answer.plain["error"]) == (401, True)
    for headers in (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://["},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        assert live.post(f"/api/{action}", headers=headers, **body).status == 403
    assert live.post(f"/api/{action}", headers={"host": "evil.example:9465"}, token=None, **body).status == 403
    assert live.get(f"/api/{action}", {"authorization": f"Bearer {TOKEN}"}).status in (400, 405)
    form = {"content-type": "text/plain"}
    assert live.post(f"/api/{action}", headers=form, **body).status == 400
    assert (plant.states(), plant.versions()) == before[:2]
    assert conn.execute("select paused_at from partbox.subscription").fetchone() == (None,)


@pytest.mark.parametrize("host", ["127.0.0.1:1", "localhost:8080", "[::1]:1", "LOCALHOST"])
def test_requests_to_any_name_of_the_local_host_may_read(live, host):
    assert live.get("/api/dead", {"host": host}).status == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "[::"])
def test_requests_to_a_foreign_host_name_that_resolves_to_this_machine_are_refused(live, host):
    for path in ("/events", "/api/dead", "/api/blocked", "/api/records/1"):
        assert live.get(path, {"host": host}).status == 403


def test_requests_through_a_local_proxy_need_the_token_for_everything(live, plant):
    record = plant.park("a")
    proxied = {"host": "partbox.example"}
    for path in ("/events", "/api/dead", "/api/blocked", f"/api/records/{record}"):
        for wrong in ({}, {"authorization": f"Bearer {TOKEN}x"}):
            answer = live.get(path, proxied | wrong)
            assert (answer.status, "token" in answer.plain["error"]) == (403, True)
    held = {"authorization": f"Bearer {TOKEN}"} | proxied
    assert live.get("/api/dead", held).plain["count"] == 1
    assert "replay" in live.frames(1, held)[0]["may"]
    own = proxied | {"origin": "https://partbox.example", "sec-fetch-site": "same-origin"}
    assert live.post("/api/dead/replay", headers=own, records=[record]).plain["done"] == 1
    assert live.post("/api/dead/replay", headers=own | {"origin": "https://evil.example"}).status == 403


def test_a_page_served_on_a_public_address_needs_the_token_for_all_but_the_empty_page(dsn):
    live = Live(dsn, host="0.0.0.0")
    try:
        held = {"authorization": f"Bearer {TOKEN}", "host": "partbox.example:9465"}
        for path in ("/events", "/api/dead", "/api/blocked", "/api/records/1"):
            assert live.get(path, {"host": "partbox.example:9465"}).status == 401
        assert live.get("/", {"host": "partbox.example:9465"}).status == 200
        assert live.get("/api/dead", held).status == 200
    finally:
        live.close()


def test_where_there_is_no_token_nobody_acts(dsn):
    live = Live(dsn, token=None)
    try:
        for token in (None, "", "None", TOKEN):
            answer = live.post("/api/subscription/pause", token=token)
            assert (answer.status, "PARTBOX_HTTP_TOKEN" in answer.plain["error"]) == (403, True)
        assert live.get("/api/dead").status == 200
        assert live.frames(1)[0]["unlock"] is False
    finally:
        live.close()


@pytest.mark.parametrize("token", ["short", "with spaces in it, and long", "", "ümlautümlautümlaut"])
def test_a_token_that_is_weak_or_cannot_be_sent_in_a_header_is_refused(dsn, token):
    with pytest.raises(SettingsError, match="http_token"):
        Live(dsn, token=token)


def test_dead_records_come_in_pages_and_by_filters(live, plant):
    records = [plant.park(str(number)) for number in range(51)]
    other = plant.park("x", event_type="Paid")
    first = live.get("/api/dead").plain
    assert [each["record"] for each in first["records"]] == records[:50]
    assert (first["count"], first["next"]) == (52, records[49])
    second = live.get("/api/dead", after=first["next"]).plain
    assert ([each["record"] for each in second["records"]], second["next"]) == ([records[50], other], None)
    assert [each["record"] for each in live.get("/api/dead", event_type="Paid").plain["records"]] == [other]
    assert live.get("/api/dead", older_than="1h").plain["count"] == 0


def test_dead_records_are_grouped_by_type_and_error_and_one_group_can_be_replayed(live, plant):
    alike = [plant.park(name, error=f"ValueError: no order {number}") for number, name in enumerate("abc", 4711)]
    others = [plant.park("d", error="ValueError: no customer 4711"), plant.park("e", event_type="Paid")]
    told = live.get("/api/dead-groups").plain
    assert (told["count"], told["more"], [each["records"] for each in told["groups"]]) == (5, False, [3, 1, 1])
    first = told["groups"][0]
    assert first["newest"] == live.get("/api/dead").plain["records"][2]
    in_it = live.get("/api/dead", group=first["group"]).plain
    assert ([each["record"] for each in in_it["records"]], in_it["count"]) == (alike, 3)
    assert live.get("/api/dead-groups", event_type="Paid").plain["count"] == 1
    lines = live.post("/api/dead/replay-all", filters={"group": first["group"]}).lines
    assert lines[-1] == {"finished": 3}
    assert plant.states() == dict.fromkeys(alike, "ready") | dict.fromkeys(others, "dead")


def test_the_answer_says_when_there_are_more_groups_of_dead_records_than_it_shows(live, plant, monkeypatch):
    monkeypatch.setattr(operator_actions, "MOST_GROUPS", 2)
    for event_type in ("Placed", "Paid", "Shipped"):
        plant.park("a", event_type=event_type)
    told = live.get("/api/dead-groups").plain
    assert (len(told["groups"]), told["more"], told["count"]) == (2, True, 3)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/api/dead?group=x", "group 'x' must be the number of a group"),
        ("/api/dead?after=x", "after 'x' must be a whole number"),
        ("/api/dead?older_than=soon", "older_than 'soon'"),
        ("/api/dead?subscription=audit", "'audit' does not exist"),
        ("/api/records/4711", "record 4711 is not in the log"),
        ("/api/records/first", "record 'first' must be a whole number"),
        ("/api/records/9223372036854775808", "record 9223372036854775808 is not a record id"),
        ("/api/records/0", "record 0 is not a record id"),
        ("/api/find?ended=lost", "'lost' is no ending"),
        ("/api/find?find=7&before=x", "before 'x' must be a whole number"),
        ("/api/find?since=soon", "since"),
        ("/api/actions?subscription=audit", "'audit' does not exist"),
        pytest.param(f"/api/records/{'9' * 5_000}", "must be a whole number", id="a record of many digits"),
        ("/api/blocked?limit=-1", "limit '-1'"),
    ],
)
def test_invalid_queries_are_answered_with_one_line(live, path, said):
    answer = live.get(path)
    assert (answer.status, said in answer.plain["error"], "\n" in answer.plain["error"]) == (400, True, False)


@pytest.mark.parametrize("body", [b"", b"no", b"[]", b'{"records": ["1"]}', b'{"records": [0]}', b'{"sql": "drop"}'])
def test_an_invalid_request_body_is_refused(live, plant, body):
    record = plant.park("a")
    headers = {"content-type": "application/json", "authorization": f"Bearer {TOKEN}"}
    assert live.ask("POST", "/api/dead/replay", headers, body).status == 400
    assert live.ask("POST", "/api/dead/replay", headers, b" " * 70_000).status == 400
    assert plant.states() == {record: "dead"}


@pytest.mark.parametrize("verb", ["replay", "discard"])
@pytest.mark.parametrize(
    ("filters", "said"),
    [
        ({"event": "Placed"}, "'event' is not one of event_type, aggregate_type, aggregate_id, older_than"),
        ({"event_type": "Placed", "tenant": "7"}, "'tenant' is not one of"),
        ({"event_type": ""}, "event_type '' is empty"),
    ],
    ids=["unknown", "unknown beside a known one", "empty"],
)
def test_an_invalid_filter_of_an_action_is_refused_and_nothing_is_changed(live, plant, verb, filters, said):
    record = plant.park("a")
    answer = live.post(f"/api/dead/{verb}-all", filters=filters)
    assert (answer.status, said in answer.plain["error"], "\n" in answer.plain["error"]) == (400, True, False)
    assert plant.states() == {record: "dead"}


@pytest.mark.parametrize("verb", ["replay", "discard"])
def test_an_action_on_all_records_that_also_names_records_is_refused(live, plant, verb):
    record, other = plant.park("a"), plant.park("b")
    answer = live.post(f"/api/dead/{verb}-all", records=[record])
    assert (answer.status, plant.states()) == (400, {record: "dead", other: "dead"})


def test_the_answer_says_when_there_are_more_blocked_aggregates_than_it_shows(live, plant, monkeypatch):
    monkeypatch.setattr(operator_actions, "MOST_KEYS", 3)
    records = [plant.park(name, "retrying", blocks=True) for name in "abcd"]
    shown = live.get("/api/blocked", limit=10).plain
    assert (len(shown["keys"]), shown["more"]) == (3, True)
    plant.conn.execute("delete from partbox.parked where record_id = %s", [records[0]])
    eventually(lambda: live.get("/api/blocked", limit=10).plain["more"] is False)


def test_hostile_texts_are_shortened_and_escaped_in_lists_and_whole_in_a_single_record(live, plant):
    record = plant.park(HOSTILE, error=f"{HOSTILE[:3_000]}\nsecond line", payload={"card": "4711-SECRET"})
    blocking = plant.park(HOSTILE, "retrying", blocks=True, error=HOSTILE[:3_000])
    answer = live.get("/api/dead")
    (shown,) = answer.plain["records"]
    assert len(answer.body) < 2_000
    assert shown["aggregate_id"].startswith(r"<script>alert(1)</script>\x1b[31m\u202egpj.exe\x9bxxx")
    assert shown["aggregate_id"].endswith("…")
    whole = live.get(f"/api/records/{record}")
    assert len(whole.plain["aggregate_id"]) > 8_000
    assert "\u202e" not in whole.plain["aggregate_id"]
    (standing,) = whole.plain["standings"]
    assert standing["error"].endswith("\nsecond line")
    assert [each["record"] for each in live.get("/api/blocked").plain["keys"]] == [blocking]
    for body in (answer.body, whole.body):
        assert b"4711-SECRET" not in body


def standing(live, record):
    (found,) = live.get(f"/api/records/{record}").plain["standings"]
    return found


def test_one_dead_record_shows_where_it_failed_line_by_line_and_without_passwords(live, plant):
    record = plant.park("a", trace='File "shop.py", line 7\n    connect("postgresql://shop:hunter2@db")\x1b[31m')
    assert "traceback" not in live.get("/api/dead").plain["records"][0]
    (first, second) = standing(live, record)["traceback"].split("\n")
    assert first == 'File "shop.py", line 7'
    assert "hunter2" not in second
    assert second.endswith(r"\x1b[31m")
    assert standing(live, plant.park("b"))["traceback"] is None


def test_a_password_in_an_error_is_not_shown(live, plant):
    secret = "OperationalError: postgresql://shop:hunter2@db/shop refused"
    record = plant.park("a", error=secret, trace=f'File "shop.py", line 7, in ship\n{secret}')
    whole = live.get(f"/api/records/{record}")
    for answer in (live.get("/api/dead"), live.get("/api/dead-groups"), whole):
        assert (b"shop:***@db" in answer.body, b"hunter2" in answer.body) == (True, False)
    assert standing(live, record)["traceback"].startswith('File "shop.py", line 7, in ship\n')


def test_records_are_replayed_and_discarded_and_those_that_cannot_be_are_named(live, plant):
    one, two, three = plant.park("a"), plant.park("b"), plant.park("c")
    answer = live.post("/api/dead/replay", records=[one, 999]).plain
    assert (answer["done"], [each["record"] for each in answer["failed"]]) == (1, [999])
    assert live.post("/api/dead/discard", records=[two]).plain == {"done": 1, "failed": []}
    assert plant.states() == {one: "ready", two: "discarded", three: "dead"}


@pytest.mark.parametrize(("verb", "left"), [("replay", "ready"), ("discard", "discarded")])
def test_an_action_on_all_matching_records_reports_its_progress_line_by_line(live, plant, verb, left):
    records = [plant.park("a"), plant.park("b")]
    other = plant.park("b", event_type="Paid")
    lines = live.post(f"/api/dead/{verb}-all", filters={"event_type": "Placed"}).lines
    assert lines == [{"done": 2, "total": 2}, {"finished": 2}]
    assert plant.states() == dict.fromkeys(records, left) | {other: "dead"}


def test_a_blocked_aggregate_is_retried_or_skipped_by_its_head(live, plant):
    waiting = plant.park("a", "retrying", blocks=True, due=3_600)
    other = plant.park("b", "retrying", blocks=True, due=3_600)
    assert live.post("/api/blocked/retry", records=[waiting]).plain == {"done": 1, "failed": []}
    assert plant.row(waiting)["is_due"]
    assert live.post("/api/blocked/skip", records=[other], reason="the carrier is gone").plain["done"] == 1
    row = plant.row(other)
    assert (row["state"], row["blocks"]) == ("dead", False)
    assert "skipped: the carrier is gone" in row["last_error"]
    again = live.post("/api/blocked/skip", records=[other]).plain
    assert (again["done"], "does not block" in again["failed"][0]["why"]) == (0, True)


def test_a_subscription_is_paused_and_resumed(live, conn):
    paused = "select paused_at is not null from partbox.subscription"
    assert live.post("/api/subscription/pause").plain["done"] == 1
    assert conn.execute(paused).fetchone() == (True,)
    (frame,) = live.frames(1)
    assert [trouble["name"] for trouble in frame["troubles"] if trouble["level"] != "note"] == ["no-workers", "paused"]
    assert live.post("/api/subscription/resume").plain["done"] == 1
    assert conn.execute(paused).fetchone() == (False,)


def test_a_limit_is_set_shown_and_reset(live, conn):
    stored = "select handler, rate, at_once, changed_by from partbox.handler_limit"
    assert live.post("/api/limit/set", handler="charge", rate="90/m", at_once="5").plain == {"done": 1, "failed": []}
    assert live.post("/api/limit/set", handler="charge", rate="1.5/s").plain["done"] == 0
    who = f"the holder of the page's token as {conn.info.user}"
    assert conn.execute(stored).fetchall() == [("charge", 1.5, 5.0, who)]
    (frame,) = live.frames(1)
    (limit,) = frame["subscription"]["limits"]
    assert (limit["name"], limit["rate"], limit["at_once"], limit["waiting"]) == ("charge", "1.5/s", "5", 0)
    assert limit["change"]["changed_by"] == who
    wrong = live.post("/api/limit/set", handler="charge", rate="fast")
    assert (wrong.status, wrong.plain["error"].startswith("rate 'fast' is not a rate: write it like")) == (400, True)
    assert live.post("/api/limit/set", rate="1/s").status == 400
    assert live.post("/api/limit/reset", handler="charge").plain["done"] == 1
    assert conn.execute(stored).fetchall() == []


def test_an_unreachable_database_is_reported_without_secrets_until_it_is_back(own_server):
    live = Live(own_server.dsn)
    try:
        assert live.frames(1)[0]["error"] is None
        own_server.server.stop("immediate")
        frame = eventually(lambda: next((each for each in live.frames(2) if each["error"]), None))
        assert frame["subscription"] is not None  # as it was
        assert live.get("/api/dead").status == 503
        own_server.server.start()
        eventually(lambda: live.frames(1)[0]["error"] is None)
    finally:
        live.close()


def test_a_schema_without_subscriptions_is_shown_as_such(live, conn: psycopg.Connection):
    conn.execute("delete from partbox.partition")
    conn.execute("delete from partbox.subscription")
    (frame,) = live.frames(1)
    assert (frame["subscriptions"], frame["subscription"]) == ([], None)
