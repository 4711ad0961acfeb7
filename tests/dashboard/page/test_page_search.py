"""Search, one record and its payload, and what operators did, in a real browser."""

import pytest
from live import TOKEN, Live
from waiting import eventually

SCRIPT = "<img src=x onerror=alert(1)><script>document.title='owned'</script>"
HOSTILE = f"{SCRIPT}\u202egpj\x1b[2J"
TRACE = "0af7651916cd43dd8448eb211c80319c"
SECRET = "4711-SECRET"


@pytest.fixture
def allowed(dsn):
    """A page whose token allows payloads, with a name and traces elsewhere."""
    live = Live(dsn, http_payloads=True, trace_url="https://traces.example/t/{trace_id}?org=1", fresh=0.25)
    yield live
    live.close()


@pytest.fixture
def record(plant):
    payload = {"card": SECRET, "items": [{"sku": SCRIPT, "count": 12}] * 3, "big": 1, "none": None}
    headers = {"x-user": HOSTILE, "traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
    return plant.park("order-7", payload=payload, headers=headers, error=f"ValueError: {HOSTILE}")


def test_a_record_is_found_by_the_search_in_the_header_and_the_back_button_undoes_each_step(live, plant, record, tab):
    seen = tab(live.with_token)
    seen.waits_for("#connection", "Live")
    field = seen.page.get_by_label("Find a record")
    field.fill("order-7")
    field.press("Enter")
    row = seen.waits_for(f"#found tr[data-record='{record}']", "default dead")
    assert "by aggregate id" in seen.text("#found-note")
    row.get_by_role("button").click()
    seen.waits_for("#record h2", f"Record {record}")
    assert seen.page.url.endswith(f"?find=order-7&record={record}")
    seen.page.go_back()
    seen.waits_until_gone("#record")
    assert seen.page.locator("#found-side").is_visible()
    seen.page.go_back()
    seen.waits_until_gone("#found-side")
    seen.page.go_forward()
    seen.page.go_forward()
    seen.waits_for("#record h2", f"Record {record}")
    seen.page.keyboard.press("Escape")
    seen.page.wait_for_url("**/?find=order-7")  # the browser tells of the close when the dialog is gone already
    field.fill("nobody")
    field.press("Enter")
    seen.waits_for("#found .empty", "Nothing was found")
    seen.button("Close", "#found-side").click()
    assert seen.page.url == live.address


def test_a_shared_address_opens_a_record_with_its_story_and_a_link_to_its_trace(allowed, plant, record, tab):
    seen = tab(f"{allowed.address}?record={record}#token={TOKEN}")
    seen.waits_for("#record h2", f"Record {record}")
    story = seen.waits_for("#record .timeline").inner_text()
    assert "published" in story
    link = seen.waits_for("#record a")
    assert link.get_attribute("href") == f"https://traces.example/t/{TRACE}?org=1"
    assert link.get_attribute("rel") == "noopener noreferrer"
    seen.button("Replay", "#record").click()
    seen.waits_for("#record [data-parked=ready]")
    assert plant.states() == {record: "ready"}
    seen.waits_for("#record .timeline li", "replayed by the holder of the page's token")
    seen.button("Close", "#record").click()
    seen.waits_for("#actions tbody tr", f"record {record}")


def test_a_payload_is_shown_as_a_tree_and_not_sent_before_it_is_requested(allowed, record, tab):
    told = []
    seen = tab(f"{allowed.address}?record={record}#token={TOKEN}")
    seen.page.on("request", lambda request: told.append(request.url))
    show = seen.waits_for("#payload button", "Show it")
    assert SECRET not in seen.page.content()
    assert not [each for each in told if "payload" in each]
    show.click()
    seen.waits_for("#payload .leaf", SECRET)
    assert seen.page.locator("#payload details[open]").count() == 1
    seen.page.locator("#payload summary", has_text="items").click()
    seen.page.locator("#payload summary", has_text="0:").click()
    seen.waits_for("#payload .leaf", SCRIPT)
    assert seen.page.locator("#payload img").count() == 0
    assert seen.page.title() != "owned"


def test_a_payload_that_is_shown_stays_while_its_record_changes(allowed, record, tab):
    seen = tab(f"{allowed.address}?record={record}#token={TOKEN}")
    seen.waits_for("#payload button", "Show it").click()
    seen.waits_for("#payload .leaf", SECRET)
    seen.button("Replay", "#record").click()
    seen.waits_for("#record .timeline", "replayed by")
    assert SECRET in seen.text("#payload")


def test_whoever_may_not_see_payloads_is_told_so(live, record, tab):
    seen = tab(f"{live.address}?record={record}#token={TOKEN}")
    seen.waits_for("#payload", "you may not see payloads")
    assert seen.page.locator("#payload button").count() == 0


def test_hostile_names_headers_errors_and_operators_stay_texts_in_search_record_and_actions(live, plant, conn, tab):
    record = plant.park(
        HOSTILE,
        error=HOSTILE,
        trace=HOSTILE,
        event_type=HOSTILE[:150],
        aggregate_type=HOSTILE[:150],
        tenant_id=HOSTILE,
        headers={f"h-{SCRIPT}": HOSTILE},
    )
    with plant.outbox.acting_as(HOSTILE):
        plant.outbox.dead.replay(record)
    conn.execute(
        "insert into partbox.instance (subscription, node, hostname, pid, version, lease, running) values"
        " ('default', %s, %s, 7, '1', '1 h', json_build_array(json_build_object('handler', %s::text, 'event_type',"
        " %s::text, 'aggregate_type', 'Order', 'aggregate_id', %s::text, 'record_id', 12, 'since',"
        " extract(epoch from now() - interval '200 s'))))",
        [HOSTILE.replace("\x1b", ""), HOSTILE, HOSTILE, HOSTILE, HOSTILE],
    )
    seen = tab(f"{live.address}?ended=replayed&since=1h#token={TOKEN}")
    seen.waits_for("#found tr", "<script>")
    seen.waits_for("#actions tbody tr", "<script>")
    seen.waits_for("#workers tbody tr", "<img")
    seen.waits_for("#running tbody tr", "<script>")
    seen.page.locator("#found .link").click()
    seen.waits_for("#headers", "<script>")
    told = "".join(seen.page.locator("main, #record").all_inner_texts())
    assert "\u202e" not in told
    assert "\x1b" not in told
    assert seen.page.locator("main img, #record img, body script").count() == 0
    assert seen.page.title() != "owned"
    assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for width in (390, 360):
        seen.page.set_viewport_size({"width": width, "height": 800})
        assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert seen.page.evaluate("document.querySelector('#record').scrollWidth <= innerWidth")


def test_an_invalid_search_shows_its_error_next_to_the_search_field(live, tab):
    seen = tab(f"{live.address}?ended=failed&since=soon", expected=("400",))
    assert "since" in seen.waits_for("#found [role=alert]").inner_text()
    seen.page.get_by_label("Since").fill("1h")
    seen.page.get_by_label("Since").press("Enter")
    seen.waits_for("#found .empty")
    eventually(lambda: seen.page.url.endswith("?ended=failed&since=1h"))
