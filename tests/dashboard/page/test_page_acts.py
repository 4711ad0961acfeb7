"""Actions on the page, in a real browser, on a database where records were planted."""

import json
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest
from held import Held
from waiting import eventually

from partbox import Dead, Outbox
from partbox.db.delivery.limits import LimitReport, WaitingValue, note_limits


def test_dead_records_are_replayed_at_once_and_discarded_after_a_question_alone_or_together(live, plant, tab):
    one, two, *chosen = [plant.park(name) for name in "abcde"]
    others = dict.fromkeys(chosen, "dead")
    seen = tab(live.with_token)
    seen.waits_for(f"#dead tr[data-record='{one}']")
    seen.button("Replay", f"#dead tr[data-record='{one}']").click()
    eventually(lambda: plant.states() == {one: "ready", two: "dead"} | others)
    seen.waits_for("#toast", "replayed 1 record")
    seen.button("Discard …", f"#dead tr[data-record='{two}']").click()
    seen.waits_for("#ask h2", f"Discard record {two}?")
    seen.button("Cancel", "#ask").click()
    assert plant.states() == {one: "ready", two: "dead"} | others
    seen.button("Discard …", f"#dead tr[data-record='{two}']").click()
    seen.button("Discard", "#ask").click()
    eventually(lambda: plant.states() == {one: "ready", two: "discarded"} | others)
    seen.waits_until_gone(f"#dead tr[data-record='{two}']")

    for record in chosen[:2]:
        seen.waits_for(f"#dead tr[data-record='{record}'] input").check()
    seen.button("Replay 2").click()
    ready = dict.fromkeys([one, *chosen[:2]], "ready") | {two: "discarded"}
    eventually(lambda: plant.states() == ready | {chosen[2]: "dead"})
    seen.waits_until_gone(f"#dead tr[data-record='{chosen[0]}']")
    seen.page.get_by_label("Choose all dead records of this page").check()
    seen.button("Discard 1 …").click()
    seen.button("Discard", "#ask").click()
    eventually(lambda: plant.states() == ready | {chosen[2]: "discarded"})
    seen.waits_for("#dead", "No record is dead")


def _pressed(seen, button):
    """Press a button once all that moves it has been drawn; returns its place."""
    seen.waits_for("#doctor", "looked for")
    seen.waits_for("#lags li")
    button.hover()
    seen.page.mouse.down()
    assert button.evaluate("element => element.matches(':active')"), "something else was pressed"
    return button.bounding_box()


def _parked_and_heard(seen, plant, aggregate_id):
    """A record that has just died, once the page was told of it."""
    with seen.page.expect_response(lambda answer: "/api/dead-groups" in answer.url) as answer:
        record = plant.park(aggregate_id, event_type="Paid")
    answer.value.finished()
    return record


def test_a_mouse_press_is_not_lost_when_a_new_record_appears_above_the_button(live, plant, tab):
    record = plant.park("a")
    seen = tab(live.with_token)
    replay = seen.button("Replay", f"#dead tr[data-record='{record}']")
    place = _pressed(seen, replay)
    newer = _parked_and_heard(seen, plant, "b")
    assert replay.bounding_box() == place
    seen.page.mouse.up()
    eventually(lambda: plant.states() == {record: "ready", newer: "dead"})
    seen.waits_for(f"#dead tr[data-record='{newer}']")


@pytest.mark.thorough
def test_a_mouse_press_is_not_lost_when_a_problem_appears_above_the_button(live, plant, tab):
    plant.publish("7")
    seen = tab(live.address)
    table = seen.button("Table")
    place = _pressed(seen, table)
    plant.conn.execute("update partbox.subscription set paused_at = now()")
    _parked_and_heard(seen, plant, "a")
    assert table.bounding_box() == place
    seen.page.mouse.up()
    seen.waits_for("#table-side tbody tr")
    seen.waits_for("[data-trouble=paused]")


@pytest.mark.thorough
def test_choosing_all_chooses_what_the_page_shows_by_then(live, plant, tab):
    first = plant.park("a")
    seen = tab(live.with_token)
    seen.waits_for(f"#dead tr[data-record='{first}']")
    second = plant.park("b")
    seen.waits_for(f"#dead tr[data-record='{second}']")
    seen.page.get_by_label("Choose all dead records of this page").check()
    seen.button("Replay 2").click()
    eventually(lambda: plant.states() == {first: "ready", second: "ready"})


def test_an_action_on_all_matching_records_asks_with_their_number_and_touches_no_others(live, plant, tab):
    records = [plant.park(name) for name in "ab"]
    other = plant.park("c", event_type="Paid")
    seen = tab(live.with_token)
    seen.waits_for(f"#dead tr[data-record='{other}']")
    seen.page.get_by_label("Event type").fill("Placed")
    seen.page.keyboard.press("Enter")
    seen.button("Replay all 2 …").click()
    seen.button("Replay 2", "#ask").click()
    left = dict.fromkeys(records, "ready") | {other: "dead"}
    eventually(lambda: plant.states() == left)
    seen.waits_for("#toast", "replayed 2 records")
    discarded = [plant.park(name) for name in "de"]
    seen.waits_for("[data-key=discard-all]", "Discard all 2 …")
    # Those that were counted, whatever the fields say by now. In one task: the page draws itself anew meanwhile.
    seen.page.evaluate(
        "document.querySelector('#filter-event_type').value = '';"
        "document.querySelector('[data-key=discard-all]').click()"
    )
    seen.button("Discard 2", "#ask").click()
    seen.waits_for("#toast", "discarded 2 records")
    assert plant.states() == left | dict.fromkeys(discarded, "discarded")


@pytest.mark.thorough
def test_a_filter_that_is_not_answered_yet_has_no_buttons_and_late_answers_are_dropped(live, plant, tab):
    for name in "ab":
        plant.park(name)
    other = plant.park("c", event_type="Paid")
    seen = tab(live.with_token)
    held = Held(seen.page, lambda url: "/api/dead-groups" in url and "event_type=" in url)
    seen.waits_for("[data-key=discard-all]", "Discard all 3 …")
    for event_type in ("Placed", "Paid"):
        seen.page.get_by_label("Event type").fill(event_type)
        seen.page.keyboard.press("Enter")
        seen.waits_until_gone("#dead-tools button")
    held.waits_for(2)
    held.let_go("event_type=Paid")
    seen.waits_for("[data-key=discard-all]", "Discard all 1 …")
    held.let_go("event_type=Placed")
    assert seen.text("#dead-note") == "1 match"
    assert seen.page.locator("#dead tbody tr").count() == 1
    assert seen.page.locator(f"#dead tr[data-record='{other}']").count() == 1


@pytest.mark.thorough
def test_dead_records_are_turned_over_page_by_page(live, plant, tab):
    records = [plant.park(str(number)) for number in range(51)]
    seen = tab(live.with_token)
    seen.waits_for("#dead .fold", "51 records of type Placed").click()
    seen.waits_for("#dead .pager", "page 1")
    assert seen.page.locator("#dead tr[data-record]").count() == 50
    seen.button("Newer").click()
    seen.waits_for(f"#dead tr[data-record='{records[50]}']")
    assert seen.page.locator("#dead tr[data-record]").count() == 1
    seen.button("Older").click()
    seen.waits_for(f"#dead tr[data-record='{records[0]}']")


def test_a_blocked_aggregate_is_retried_and_skipped_with_a_reason(live, plant, tab):
    head = plant.park("7", "retrying", blocks=True, due=3_600)
    plant.park("7", "held", blocks=True)
    seen = tab(live.with_token)
    row = f"#blocked tr[data-record='{head}']"
    seen.waits_for(row, "ValueError")
    assert "in 60 min" in seen.text(row)
    seen.button("Retry now", row).click()
    eventually(lambda: plant.row(head)["is_due"])
    seen.waits_for("#toast", "1 aggregate may go on now")
    seen.button("Skip …", row).click()
    seen.page.get_by_label("Reason").fill("nobody is there")
    seen.page.keyboard.press("Enter")
    assert seen.page.locator("#ask").is_hidden()  # Enter is for the dialog alone, not for the button below it too
    eventually(lambda: plant.row(head)["state"] == "dead")
    assert "skipped: nobody is there" in plant.row(head)["last_error"]


@pytest.mark.thorough
def test_show_more_never_requests_more_aggregates_than_the_page_shows(live, plant, tab):
    plant.park("7", "retrying", blocks=True)
    found = live.get("/api/blocked").plain | {"more": True}
    seen = tab(live.with_token)
    asked = []

    def answer(route):
        asked.append(int(parse_qs(urlsplit(route.request.url).query)["limit"][0]))
        route.fulfill(json=found)

    seen.page.route("**/api/blocked?**", answer)
    for limit in (150, 250, 350, 450, 500):
        with seen.page.expect_response(lambda response, limit=limit: response.url.endswith(f"&limit={limit}")):
            seen.button("Show more").click()
    seen.waits_until_gone("[data-key=more]")
    assert max(asked) == 500
    assert seen.text("#blocked-note") == "the 1 longest blocked"


@pytest.mark.thorough
def test_choosing_another_subscription_clears_the_records_of_the_former_one(live, plant, tab):
    plant.outbox.subscriptions.create("audit")
    plant.park("7")
    plant.park("7", "retrying", blocks=True)
    other = plant.park("8", subscription="audit")
    seen = tab(live.with_token)
    seen.waits_for("#blocked tbody tr")
    seen.waits_for("#dead tbody input").check()
    seen.waits_for("[data-key=discard-chosen]", "Discard 1 …")
    held = Held(seen.page, lambda url: "/api/" in url and "subscription=audit" in url)
    seen.page.get_by_label("Subscription").select_option("audit")
    held.waits_for(2)
    assert seen.page.locator("#trouble tbody tr, #trouble .tools button").count() == 0
    held.let_go("audit")
    seen.button("Discard …", f"#dead tr[data-record='{other}']").click()
    seen.button("Discard", "#ask").click()
    seen.waits_for("#toast", "discarded 1 record")  # whose request passes through `held`
    assert sorted(plant.states().values()) == ["dead", "discarded", "retrying"]


def test_a_replay_on_the_page_is_delivered(live, dsn, conn, tab):
    outbox, cured, delivered = Outbox(dsn), [], []

    @outbox.on("Placed")
    def place(event):
        if not cured:
            return Dead("there is no cure")
        delivered.append(event.event_id)
        return None

    with conn.transaction():
        event = outbox.publish(conn, "Placed", {}, aggregate_id="7")
    with outbox.worker():
        seen = tab(live.with_token)
        seen.waits_for("#dead tbody tr", "there is no cure")
        cured.append(True)
        seen.button("Replay", "#dead tbody tr").click()
        eventually(lambda: delivered == [event])
        seen.waits_for("#dead", "No record is dead")
        eventually(lambda: conn.execute("select count(*) from partbox.parked").fetchone() == (0,))


def test_the_keyboard_alone_replays_a_record(live, plant, tab):
    record = plant.park("7")
    seen = tab(live.with_token)
    seen.waits_for(f"#dead tr[data-record='{record}']")
    for _ in range(40):
        seen.page.keyboard.press("Tab")
        if seen.page.evaluate("document.activeElement.dataset.key") == f"discard-{record}":
            break
    seen.page.keyboard.press("Enter")
    seen.waits_for("#ask h2", "Discard")
    assert seen.page.evaluate("document.activeElement.textContent") == "Cancel"
    seen.page.keyboard.press("Escape")
    seen.waits_until_gone("#ask")
    assert plant.states() == {record: "dead"}
    seen.page.locator(f"[data-key='replay-{record}']").focus()
    seen.page.keyboard.press("Enter")
    eventually(lambda: plant.states() == {record: "ready"})


def test_a_problem_has_the_buttons_that_apply_to_it(live, plant, tab):
    dead = plant.park("a")
    blocked = plant.park("b", "retrying", blocks=True, due=60, age=900)
    seen = tab(live.with_token)
    seen.button("Replay all …", seen.opens("dead")).click()
    seen.button("Replay 1", "#ask").click()
    eventually(lambda: plant.states()[dead] == "ready")
    assert seen.page.locator("[data-trouble=dead] button", has_text="Discard all").count() <= 1
    seen.button("Skip all …", seen.opens("blocked-key")).click()
    seen.button("Skip", "#ask").click()
    eventually(lambda: plant.states()[blocked] == "dead")


@pytest.mark.thorough
def test_the_buttons_of_a_problem_work_before_the_list_of_records_is_loaded(live, plant, tab):
    dead, held = plant.park("a"), []
    seen = tab(live.with_token)
    seen.page.route("**/api/dead-groups*", lambda route: held.append(route))
    seen.page.reload()
    seen.button("Replay all …", seen.opens("dead")).click()
    for route in held:
        route.continue_()
    seen.page.unroute("**/api/dead-groups*")
    seen.button("Replay 1", "#ask").click()
    eventually(lambda: plant.states()[dead] == "ready")


@pytest.mark.thorough
def test_a_paused_subscription_with_waiting_events_is_shown_and_resumed_from_another_one(live, plant, conn, tab):
    conn.execute("insert into partbox.subscription (name, paused_at) values ('audit', now())")
    conn.execute(
        "insert into partbox.partition (subscription, partition, snapshot, last_id, floor_id)"
        " select 'audit', number, '1:1:', 0, 0 from generate_series(0, 255) number"
    )
    plant.publish("7")
    seen = tab(live.with_token)
    seen.waits_for("[data-trouble=paused-audit]", "Subscription audit has been paused")
    seen.waits_for("[data-trouble=no-workers-audit]", "Subscription audit: No worker process runs")
    seen.button("Resume", "[data-trouble=paused-audit]").click()
    paused = "select from partbox.subscription where paused_at is not null"
    eventually(lambda: conn.execute(paused).fetchone() is None)
    seen.waits_until_gone("[data-trouble=paused-audit]")


@pytest.mark.thorough
def test_hostile_names_in_problems_run_no_script_and_do_not_break_the_layout(live, plant, conn, tab):
    script = "<img src=x onerror=\"document.title='owned'\">'\"]<script>document.title='owned'</script>\u202egpj\u2066"
    names = ("handler", "event_type", "aggregate_type", "aggregate_id")
    run = dict.fromkeys(names, script) | {"record_id": 1, "partition": 1, "timeout": None, "since": 1}
    sent = {"sink": script, "sent": 1, "in_flight": 1, "retries": 1, "error": script * 40, "failing": 30.0}
    conn.execute("insert into partbox.subscription (name, paused_at) values (%s, now())", [script])
    conn.execute(
        "insert into partbox.partition (subscription, partition, snapshot, last_id, floor_id)"
        " select %s, number, '1:1:', 0, 0 from generate_series(0, 255) number",
        [script],
    )
    conn.execute(
        "insert into partbox.instance (subscription, node, hostname, pid, version, lease, running, sinks)"
        " values ('default', %s, %s, 7, %s, '1 day', %s, %s)",
        [*[script + "W" * 500] * 3, json.dumps([run]), json.dumps([sent])],
    )
    record = plant.park(script, event_type=script, aggregate_type=script, error=f"{script}: {script * 40}")
    plant.publish("7")  # waits in the paused one
    seen = tab(live.with_token)
    seen.waits_for(f"#dead tr[data-record='{record}']", "onerror")
    seen.waits_for("#troubles strong", "has been paused")
    seen.waits_for("#workers td", "<img")
    seen.waits_for("#running", "<img")
    seen.waits_for("#sinks", "<img")
    assert seen.page.title() != "owned"
    assert seen.page.locator("main img, body script").count() == 0
    assert "\u202e" not in seen.page.locator("main").inner_text()
    assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.fixture
def limited(conn) -> Callable[[], list[tuple[float | None, float | None]]]:
    """A process keeps a limit, by tenant, under which events wait; what operators have set for its handler."""
    insert = "insert into partbox.instance (subscription, node, hostname, pid, version, lease)"
    (id,) = conn.execute(f"{insert} values ('default', 'a', 'h', 7, '0', '1 day') returning instance_id").fetchone()
    values = (WaitingValue("acme", 1200, 75.0), WaitingValue("zoo", 3, 0.5))
    note_limits(conn, "partbox", id, [LimitReport("shop.charge", 100.0, None, "tenant_id", 1203, 75.0, values)])
    return lambda: conn.execute("select rate, at_once from partbox.handler_limit").fetchall()


def test_a_limit_is_shown_with_what_waits_and_is_changed_and_reset(live, limited, tab):
    seen = tab(live.with_token)
    row = seen.waits_for("#limits tr[data-limit='shop.charge']", "acme (1,200), zoo (3)")
    assert "1,203 events waiting for their turn" in seen.text("#limits-note")
    cells = row.locator("td").all_inner_texts()
    assert cells[:6] == ["shop.charge", "100/s", "none", "tenant_id", "1,203", "75 s"]
    assert cells[6:8] == ["acme (1,200), zoo (3)", "as declared"]
    seen.button("Change …", "#limits").click()
    seen.waits_for("#ask h2", "Limit handler shop.charge")
    seen.button("Cancel", "#ask").click()
    assert limited() == []
    seen.button("Change …", "#limits").click()
    seen.page.get_by_label("Calls that may start").fill("5/s")
    seen.page.keyboard.press("Enter")
    seen.waits_for("#toast", "limited")
    assert limited() == [(5.0, None)]  # the empty field has left the other bound as it is
    seen.waits_for("#limits tr[data-limit='shop.charge']", "5/s")
    seen.button("Reset …", "#limits").click()
    seen.button("Reset", "#ask").click()
    seen.waits_for("#toast", "reset")
    assert limited() == []


def test_an_invalid_rate_is_refused_with_the_remedy(live, limited, tab):
    seen = tab(live.with_token, expected=("400",))
    seen.button("Change …", "#limits").click()
    seen.page.get_by_label("Calls that may start").fill("fast")
    seen.button("Change", "#ask").click()
    seen.waits_for("#toast", "rate 'fast' is not a rate: write it like")
    assert limited() == []


def test_limits_have_no_buttons_for_a_viewer_without_the_right_to_change_them(live, limited, tab):
    seen = tab(live.address)
    seen.waits_for("#limits tr[data-limit='shop.charge']", "100/s")
    assert seen.page.locator("#limits button").count() == 0


def test_without_any_limit_the_page_has_no_room_for_them(live, plant, tab):
    seen = tab(live.address)
    seen.waits_for("#connection", "Live")
    assert seen.page.locator("#limits-side").is_hidden()
