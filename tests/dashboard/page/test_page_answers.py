"""The page answers the questions of somebody on call, about an event or a subscription, in a few presses."""

import pytest
from live import Live

from partbox import Dead, Event, Outbox


@pytest.fixture
def shop(dsn, conn):
    """Three events that a worker has taken: delivered at once, at the second attempt, and given up."""
    outbox, seen = Outbox(dsn, node="web-1", retry="fixed:10ms"), []

    @outbox.on("Placed", aggregate_type="Order")
    def ship(event):
        seen.append(event.aggregate_id)
        if event.aggregate_id == "flaky" and seen.count("flaky") == 1:
            raise ConnectionError("carrier.example refused")
        return Dead("no such postcode") if event.aggregate_id == "lost" else None

    with conn.transaction():
        for name in ("plain", "flaky", "lost"):
            event = Event("Placed", {"to": "Ada of Turin"}, aggregate_type="Order", aggregate_id=name)
            outbox.publish(conn, event)
    assert outbox.drain()
    return outbox


@pytest.mark.thorough
def test_on_call_asks_and_the_page_answers(dsn, conn, shop, tab):
    shop.subscriptions.create("billing")
    shop.subscriptions.pause("billing")
    for table, age in (("subscription", 60), ("record", 40)):
        conn.execute(f"update partbox.{table} set created_at = now() - interval '{age} minutes'")
    live = Live(dsn, http_payloads=True, fresh=0.25)
    try:
        seen = tab(live.with_token)
        seen.waits_for("#connection", "Live")

        def asks(text: str) -> str:
            """The story of the newest record that the head's box finds by this text."""
            seen.page.get_by_label("Find a record").fill(text)
            seen.page.keyboard.press("Enter")
            seen.waits_for("#found tbody tr", text).get_by_role("button").click()
            return seen.waits_for("#record .timeline").inner_text()

        # Was it delivered, when, and by whom?
        story = asks("plain")
        assert "delivered between" in story
        # What was in it?
        seen.button("Show it", "#payload").click()
        seen.waits_for("#payload .leaf", "Ada of Turin")
        # Is it waiting somewhere, and for what?
        assert "the subscription is paused" in seen.text("#record")
        seen.page.keyboard.press("Escape")
        # What failed before it was delivered?
        story = asks("flaky")
        assert "attempt 1 failed" in story
        assert "ConnectionError: carrier.example refused" in story
        assert "on web-1" in story
        seen.page.keyboard.press("Escape")
        # Why is it dead? And who replayed it?
        assert "no such postcode" in asks("lost")
        seen.button("Replay", "#record").click()
        seen.waits_for("#record .timeline li", "replayed by the holder of the page's token")
        seen.page.keyboard.press("Escape")
        # Which failed within the hour?
        seen.button("Failed …").click()
        seen.waits_for("#found tbody tr", "flaky")
        assert seen.page.locator("#found tbody tr").count() == 2
        # Who did what lately?
        assert "subscription pause" in seen.text("#actions")
        # How far behind is billing, and since when does it stand still?
        assert "40 min" in seen.waits_for("#lags li", "billing").inner_text()
        paused = seen.waits_for("[data-trouble^=paused-billing]", "nothing is delivered, 3 events wait")
        assert "since " in paused.inner_text()
    finally:
        live.close()
