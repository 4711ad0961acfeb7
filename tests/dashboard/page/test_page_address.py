"""The address of the page says what is shown; its head says where, and pauses."""

from importlib import import_module

import pytest
from live import Live
from waiting import eventually


def test_filters_are_kept_in_the_address_and_the_back_button_undoes_them(live, plant, tab):
    placed, paid = plant.park("7"), plant.park("8", event_type="Paid")
    seen = tab(f"{live.address}?event_type=Paid")
    seen.waits_for(f"#dead tr[data-record='{paid}']")
    assert seen.page.locator("#dead tr[data-record]").count() == 1
    field = seen.page.get_by_label("Event type")
    assert field.input_value() == "Paid"
    field.fill("Placed")
    field.press("Enter")
    seen.waits_for(f"#dead tr[data-record='{placed}']")
    seen.page.get_by_label("Aggregate id").fill("9")
    seen.page.get_by_label("Aggregate id").press("Enter")
    seen.waits_for("#dead .empty", "No dead record matches")
    assert seen.page.url.endswith("?event_type=Placed&aggregate_id=9")
    seen.page.go_back()
    seen.waits_for(f"#dead tr[data-record='{placed}']")
    seen.page.go_back()
    seen.waits_for(f"#dead tr[data-record='{paid}']")
    assert (field.input_value(), seen.page.url) == ("Paid", f"{live.address}?event_type=Paid")


def test_production_has_a_name_and_a_colour_in_every_head_and_title(dsn, tab):
    live = Live(dsn, environment="production <b>eu</b>:red")
    try:
        seen = tab(live.address)
        badge = seen.waits_for("#environment", "production <b>eu</b>")
        colour = badge.evaluate("(it) => getComputedStyle(it).backgroundColor")
        assert colour == "rgb(179, 38, 30)"
        assert seen.page.evaluate("getComputedStyle(document.querySelector('.top')).borderTopColor") == colour
        assert seen.page.title().startswith("(!) production <b>eu</b>: ")
    finally:
        live.close()


def test_a_subscription_is_paused_in_the_page_header_and_resumed_from_the_warning(live, conn, tab):
    paused = "select paused_at is not null from partbox.subscription"
    seen = tab(live.with_token)
    seen.waits_for("#pause").click()
    seen.waits_for("#ask h2", "Pause subscription default?")
    seen.page.keyboard.press("Enter")  # presses what has the focus: Cancel
    seen.waits_until_gone("#ask")
    assert conn.execute(paused).fetchone() == (False,)
    seen.page.locator("#pause").click()
    seen.button("Pause", "#ask").click()
    seen.waits_for("#toast", "paused")
    assert conn.execute(paused).fetchone() == (True,)
    trouble = seen.waits_for("[data-trouble=paused]")
    assert "Warning since " in trouble.inner_text()
    seen.waits_until_gone("#pause")
    seen.button("Resume").click()
    eventually(lambda: conn.execute(paused).fetchone() == (False,))


@pytest.mark.thorough
def test_the_lag_of_each_subscription_is_shown_in_a_row_that_links_to_it(live, plant, conn, tab):
    plant.outbox.subscriptions.create("billing")
    plant.publish("7")
    conn.execute("update partbox.record set created_at = now() - interval '9 minutes'")
    plant.conn.execute("update partbox.partition set last_id = 1, floor_id = 1 where subscription = 'default'")
    seen = tab(live.address)
    row = seen.waits_for("#lags li", "billing")
    assert "9 min" in row.inner_text()
    story = row.get_by_role("img").get_attribute("aria-label")
    assert story.startswith("billing, last 5 min: the longest was 9 min, at ")
    assert seen.page.locator("#lags li").first.inner_text().startswith("billing")
    row.get_by_role("button").click()
    eventually(lambda: seen.page.url.endswith("?subscription=billing"))
    seen.waits_for("#summary", "1 waiting, the oldest for 9 min")


def test_the_page_reconnects_silently_when_the_server_ends_the_stream_to_check_rights_again(live, tab, monkeypatch):
    monkeypatch.setattr("partbox.dashboard.feed.REFRESH_INTERVAL", 0.05)
    monkeypatch.setattr(import_module("partbox.dashboard.routes"), "STREAM_SECONDS", 0.1)
    seen = tab(live.address)
    seen.page.evaluate("""() => {
        window.states = new Set();
        const chip = document.getElementById("connection");
        new MutationObserver(() => window.states.add(chip.dataset.state)).observe(chip, { attributes: true });
    }""")
    streams = []
    seen.page.on("request", lambda request: streams.append(request.url) if "/events" in request.url else None)
    seen.waits_for("#connection", "Live")
    eventually(lambda: seen.page.wait_for_timeout(50) or len(streams) > 3)
    assert set(seen.page.evaluate("[...states]")) <= {"live"}
