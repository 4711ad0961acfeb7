"""What people see and do on the page, in a real browser, on a database where records were planted."""

from urllib.parse import parse_qs, urlsplit

import pytest
from held import Held
from live import TOKEN, Live
from waiting import eventually

from partbox import Dead, Outbox

PATIENT = (60, 0.1)
"""Seconds to wait for the map, and between two looks: each look at 256 cells costs the browser something."""
SCRIPT = "<img src=x onerror=alert(1)><script>document.title='owned'</script>"
HOSTILE = f"{SCRIPT}\u202egpj.exe\u2066\x1b[2J\x9b" + "W" * 10_000


def test_without_the_token_the_page_only_shows_and_says_so(live, plant, tab):
    record = plant.park("7", blocks=True)
    seen = tab(live.address)
    seen.waits_for(f"#dead tr[data-record='{record}']", "boom")
    assert seen.text("#access") == "Read-only"
    buttons = seen.page.locator("#trouble button").all_inner_texts()
    assert buttons == [str(record)]
    assert seen.page.locator("#trouble input[type=checkbox]").count() == 0


def test_the_token_in_the_address_allows_actions_and_leaves_the_address(live, plant, tab):
    plant.park("7")
    seen = tab(live.with_token)
    seen.waits_for("#access", "Actions allowed")
    assert TOKEN not in seen.page.evaluate("location.href")
    seen.page.reload()
    seen.waits_for("#access", "Actions allowed")
    seen.page.locator("#access").click()
    seen.waits_for("#access", "Read-only")


def test_a_token_is_entered_on_the_page_and_a_wrong_one_allows_nothing(live, plant, tab):
    plant.park("7")
    seen = tab(f"{live.address}#token=wrong")
    seen.waits_for("#access", "Read-only")
    seen.page.locator("#access").click()
    seen.page.get_by_label("Token", exact=True).fill(TOKEN)
    seen.page.keyboard.press("Enter")
    seen.waits_for("#access", "Actions allowed")


def test_where_everything_needs_the_token_the_page_asks_for_it(dsn, plant, tab):
    plant.park("7")
    live = Live(dsn, host="0.0.0.0")
    try:
        seen = tab(live.address, expected=("401",))
        seen.waits_for("[data-alarm=token]")
        assert "boom" not in seen.page.content()
        seen.button("Enter the token").click()
        seen.page.get_by_label("Token", exact=True).fill(TOKEN)
        seen.button("Use it").click()
        seen.waits_for("#dead td", "boom")
        assert seen.page.locator("[data-alarm=token]").count() == 0
    finally:
        live.close()


def test_a_dead_record_is_replayed_at_once_and_discarded_after_a_question(live, plant, tab):
    one, two = plant.park("a"), plant.park("b")
    seen = tab(live.with_token)
    seen.waits_for(f"#dead tr[data-record='{one}']")
    seen.button("Replay", f"#dead tr[data-record='{one}']").click()
    eventually(lambda: plant.states() == {one: "ready", two: "dead"})
    seen.waits_for("#toast", "replayed 1 record")
    seen.button("Discard …", f"#dead tr[data-record='{two}']").click()
    seen.waits_for("#ask h2", f"Discard record {two}?")
    seen.button("Cancel", "#ask").click()
    assert plant.states() == {one: "ready", two: "dead"}
    seen.button("Discard …", f"#dead tr[data-record='{two}']").click()
    seen.button("Discard", "#ask").click()
    eventually(lambda: plant.states() == {one: "ready"})
    seen.waits_for("#dead", "No record is dead")


def test_several_that_are_chosen_go_together(live, plant, tab):
    records = [plant.park(name) for name in "abc"]
    seen = tab(live.with_token)
    for record in records[:2]:
        seen.waits_for(f"#dead tr[data-record='{record}'] input").check()
    seen.button("Replay 2").click()
    eventually(lambda: plant.states() == {records[0]: "ready", records[1]: "ready", records[2]: "dead"})
    seen.waits_until_gone(f"#dead tr[data-record='{records[0]}']")
    seen.page.get_by_label("Choose all dead records of this page").check()
    seen.button("Discard 1 …").click()
    seen.button("Discard", "#ask").click()
    eventually(lambda: records[2] not in plant.states())


@pytest.mark.parametrize(("verb", "left"), [("Replay", "ready"), ("Discard", None)])
def test_all_that_match_a_filter_go_after_a_question_with_their_number(live, plant, tab, verb, left):
    records = [plant.park(name) for name in "ab"]
    other = plant.park("c", event_type="Paid")
    seen = tab(live.with_token)
    seen.waits_for(f"#dead tr[data-record='{other}']")
    seen.page.get_by_label("Event type").fill("Placed")
    seen.page.keyboard.press("Enter")
    seen.button(f"{verb} all 2 …").click()
    seen.button(f"{verb} 2", "#ask").click()
    expected = {} if left is None else dict.fromkeys(records, left)
    eventually(lambda: plant.states() == expected | {other: "dead"})
    seen.waits_for("#toast", f"{verb.lower()}ed 2 records")


def test_all_means_those_that_were_counted_whatever_the_fields_say_by_now(live, plant, tab):
    for name in "ab":
        plant.park(name)
    other = plant.park("c", event_type="Paid")
    seen = tab(live.with_token)
    seen.waits_for(f"#dead tr[data-record='{other}']")
    seen.page.get_by_label("Event type").fill("Placed")
    seen.page.keyboard.press("Enter")
    seen.waits_for("[data-key=discard-all]", "Discard all 2 …")
    seen.page.evaluate("document.querySelector('#filter-event_type').value = ''")
    seen.button("Discard all 2 …").click()
    seen.button("Discard 2", "#ask").click()
    seen.waits_for("#toast", "discarded 2 records")
    assert plant.states() == {other: "dead"}


def test_a_filter_that_is_not_answered_yet_has_no_buttons_and_late_answers_are_dropped(live, plant, tab):
    for name in "ab":
        plant.park(name)
    other = plant.park("c", event_type="Paid")
    seen = tab(live.with_token)
    held = Held(seen.page, lambda url: "/api/dead" in url and "event_type=" in url)
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


def test_dead_records_are_turned_over_page_by_page(live, plant, tab):
    records = [plant.park(str(number)) for number in range(51)]
    seen = tab(live.with_token)
    seen.waits_for("#dead-pager", "page 1")
    seen.button("Newer").click()
    seen.waits_for(f"#dead tr[data-record='{records[50]}']")
    assert seen.page.locator("#dead tbody tr").count() == 1
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
    seen.button("Skip", "#ask").click()
    eventually(lambda: plant.row(head)["state"] == "dead")
    assert "skipped: nobody is there" in plant.row(head)["last_error"]


def test_no_more_are_asked_for_than_are_ever_shown(live, plant, tab):
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


def test_a_paused_subscription_is_said_and_resumed(live, plant, conn, tab):
    plant.publish("7")
    conn.execute("update partbox.subscription set paused_at = now() - interval '3 days'")
    seen = tab(live.with_token)
    alarm = seen.waits_for("[data-alarm=paused]")
    assert "default has been paused for 3 days: nothing is delivered, 1 event waits" in alarm.inner_text()
    seen.button("Resume").click()
    eventually(lambda: conn.execute("select paused_at from partbox.subscription").fetchone() == (None,))
    seen.waits_until_gone("[data-alarm=paused]")


def test_without_workers_the_page_says_so_and_how_to_start_some(live, plant, tab):
    plant.publish("7")
    seen = tab(live.address)
    assert "partbox worker MODULE:OUTBOX" in seen.waits_for("[data-alarm=no-workers]").inner_text()
    assert "nothing is delivered, 1 event waits" in seen.text("[data-alarm=no-workers]")
    assert seen.letters() == "·" * 256
    for place in ("#workers", "#parked", "#blocked", "#dead", "#lately"):
        seen.waits_for(f"{place} .empty")
    assert seen.text("#announce").startswith("No worker process runs")


def test_another_subscription_is_chosen_and_kept_in_the_address(live, plant, tab):
    plant.outbox.subscriptions.create("audit")
    plant.park("7")
    other = plant.park("8", subscription="audit")
    seen = tab(live.address)
    seen.waits_for("#dead", "boom")
    seen.page.get_by_label("Subscription").select_option("audit")
    seen.waits_for(f"#dead tr[data-record='{other}']")
    assert seen.page.locator("#dead tbody tr").count() == 1
    assert "?subscription=audit" in seen.page.url
    seen.page.reload()
    seen.waits_for(f"#dead tr[data-record='{other}']")


def test_nothing_of_one_subscription_is_left_where_another_is_chosen(live, plant, tab):
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
    assert sorted(plant.states().values()) == ["dead", "retrying"]


def joins(conn, node, pid):
    """A process that lives as far as anybody can tell."""
    found = conn.execute(
        "insert into partbox.instance (subscription, node, hostname, pid, version, lease)"
        " values ('default', %s, %s, %s, '0.1.0', '1 h') returning instance_id",
        [node, node, pid],
    )
    return found.fetchone()[0]


def claims(conn, instance, numbers):
    conn.execute(
        "update partbox.partition set owner = %s, assignee = %s, epoch = epoch + 1 where partition = any(%s)",
        [instance, instance, [*numbers]],
    )


def test_a_death_and_a_join_are_seen_while_they_happen(live, plant, conn, tab):
    ann, bob = joins(conn, "north", 4_711), joins(conn, "north", 4_712)
    claims(conn, ann, range(128))
    claims(conn, bob, range(128, 256))
    seen = tab(live.with_token)
    seen.waits_for("#workers tbody tr:nth-child(2)")
    eventually(lambda: sorted(seen.letters()) == ["A"] * 128 + ["B"] * 128, *PATIENT)

    def is_above_nothing(line: str) -> bool:
        plant.publish("7")
        plant.consume()
        return float(seen.text(f".value[data-line={line}]").strip("\u2013") or 0) > 0

    for line in ("published", "delivered"):
        eventually(lambda line=line: is_above_nothing(line), *PATIENT)

    cleo = joins(conn, "south", 4_713)
    seen.waits_for("#lately li[data-kind=joined]", "process C")
    claims(conn, cleo, [*range(43), *range(213, 256)])
    seen.waits_for(".cell[data-moved]")
    eventually(lambda: [seen.letters().count(letter) for letter in "ABC"] == [85, 85, 86], *PATIENT)
    seen.waits_for("#workers tbody tr", "south")

    victim = seen.page.locator("#workers tbody tr", has_text="4711")
    letter = victim.locator(".badge").inner_text()
    conn.execute("delete from partbox.instance where instance_id = %s", [ann])
    seen.waits_for("#lately li[data-kind=gone]", f"process {letter} (pid 4711 on north) is gone")
    eventually(lambda: seen.letters().count("·") == 85, *PATIENT)
    dan = joins(conn, "north", 4_714)
    seen.waits_for("#lately li[data-kind=joined]", "process D")
    claims(conn, dan, range(43, 128))
    eventually(lambda: letter not in seen.letters() and "·" not in seen.letters(), *PATIENT)
    assert conn.info.dbname not in seen.page.content()


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


def test_a_server_that_has_gone_is_said_and_found_again(dsn, plant, tab):
    live = Live(dsn)
    seen = tab(live.address, expected=("ERR_",))
    seen.waits_for("#connection", "Live")
    live.close()
    seen.waits_for("[data-alarm=lost]")
    assert seen.text("#connection") == "Connection lost"


def test_hostile_texts_stay_texts_and_do_not_break_the_page(live, plant, tab):
    names = {"aggregate_type": HOSTILE[:200], "event_type": HOSTILE[:200]}
    error = HOSTILE[:3_900]
    dead = plant.park(HOSTILE, error=error, **names)
    plant.park(HOSTILE, "retrying", blocks=True, error=error, **names)
    plant.park("\u05d0\u05d1\u05d2\u202e" * 50, "retrying", blocks=True, error="\u05d0\u05d1\u05d2 " * 300)
    seen = tab(live.with_token)
    seen.waits_for("#dead td", "<script>")
    seen.waits_for("#blocked td", "onerror")
    seen.button(f"Show record {dead}").click()
    seen.waits_for("#ask pre", "onerror=alert(1)")
    whole = seen.text("#ask")
    assert len(whole) > 10_000
    assert "\u202e" not in seen.page.content() + whole
    assert r"\u202egpj.exe" in whole
    assert seen.page.title() != "owned"
    assert seen.page.locator("main img").count() == 0
    assert seen.page.locator("body script").count() == 0
    assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert seen.page.evaluate("document.querySelector('#ask').scrollWidth <= innerWidth")


def test_a_hostile_subscription_name_is_a_text_too(live, plant, conn, tab):
    name = "a\u202e<b>'; rm -rf $HOME"
    conn.execute("insert into partbox.subscription (name) values (%s)", [name])
    seen = tab(live.address)
    seen.waits_for("#connection", "Live")
    seen.page.get_by_label("Subscription").select_option(name)
    named = """--subscription 'a\\u202e<b>'"'"'; rm -rf $HOME'"""
    remedy = seen.waits_for("[data-alarm=no-workers] p", named).inner_text()  # there was one of `default` before
    assert remedy.endswith(named)


def test_the_map_is_walked_by_keys_and_says_what_is_focused(live, plant, tab):
    plant.publish("7")
    seen = tab(live.address)
    seen.waits_for(".cell[aria-label]")
    seen.page.locator(".cell[data-partition='0']").focus()
    for key in ("ArrowRight", "ArrowDown", "End", "ArrowRight", "ArrowLeft"):
        seen.page.keyboard.press(key)
    assert seen.page.evaluate("document.activeElement.dataset.partition") == "31"
    assert seen.page.evaluate("document.activeElement.getAttribute('aria-label')") == "Partition 31: no owner"
    assert seen.text("#details").split()[:2] == ["Partition", "31"]
    seen.page.keyboard.press("Control+End")
    assert seen.page.evaluate("document.activeElement.dataset.partition") == "255"
    assert seen.page.locator(".cell[tabindex='0']").count() == 1


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


def test_the_map_is_there_as_a_table(live, plant, tab):
    seen = tab(live.address)
    seen.waits_for(".cell[aria-label]")
    seen.button("Table").click()
    seen.waits_for("#table-side tbody tr")
    assert seen.page.locator("#table-side tbody tr").count() == 256
    assert seen.page.get_by_role("columnheader", name="Epoch").count() == 1
    assert seen.page.get_by_role("grid").count() == 0


def test_everything_has_a_role_and_a_name(live, plant, tab):
    plant.park("7")
    plant.park("8", "retrying", blocks=True)
    seen = tab(live.with_token)
    seen.waits_for("#dead tbody tr")
    grid = seen.page.get_by_role("grid", name="256 partitions by owner")
    assert grid.get_by_role("row").count() == 16
    assert grid.get_by_role("gridcell").count() == 256
    for name in ("Partitions", "Worker processes", "Parked", "Lately", "Blocked aggregates", "Dead records"):
        assert seen.page.get_by_role("heading", name=name, exact=True).count() == 1
    assert seen.page.get_by_role("img", name="Events per second, last two minutes").count() == 1
    nameless = """[...document.querySelectorAll("button, input, select, [role=region], [role=grid], svg")]
        .filter((each) => !(each.getAttribute("aria-label") || each.getAttribute("aria-labelledby")
                            || each.textContent.trim() || each.labels?.length))
        .map((each) => each.outerHTML)"""
    assert seen.page.evaluate(nameless) == []
    ids = "[...document.querySelectorAll('[id]')].map((each) => each.id)"
    found = seen.page.evaluate(ids)
    assert len(found) == len(set(found))


CONTRAST = """() => {
  const lights = (colour) => {
    const canvas = document.createElement("canvas").getContext("2d");
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if (colour !== "rgba(0, 0, 0, 0)") return colour;
    }
  };
  const poor = [];
  const check = (element, what) => {
    const [one, two] = [lights(getComputedStyle(element).color), lights(ground(element))].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (two + 0.05);
    if (ratio < 4.5) poor.push(`${what}: ${ratio.toFixed(2)}`);
  };
  const cell = document.querySelector(".cell");
  cell.style.transition = "none";
  for (let slot = 0; slot < 8; slot++) {
    for (let level = 0; level < 5; level++) {
      cell.dataset.slot = slot;
      cell.dataset.level = level;
      check(cell, `slot ${slot} level ${level}`);
    }
  }
  for (const each of document.querySelectorAll("main *, header *")) {
    const own = [...each.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (own && each !== cell && each.offsetParent !== null) check(each, each.outerHTML.slice(0, 80));
  }
  return poor;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_and_every_letter_of_the_map_can_be_read(live, plant, tab, scheme):
    plant.park("7", blocks=True)
    plant.park("8", "retrying", blocks=True)
    seen = tab(live.with_token, color_scheme=scheme)
    seen.waits_for("#dead tbody tr")
    seen.waits_for("#blocked tbody tr")
    assert seen.page.evaluate(CONTRAST) == []


def test_who_wants_no_motion_gets_none(live, plant, tab):
    seen = tab(live.address, reduced_motion="reduce")
    cell = seen.waits_for(".cell")
    cell.evaluate("(cell) => cell.setAttribute('data-moved', '')")
    assert cell.evaluate("(cell) => getComputedStyle(cell).animationName") == "none"


def test_a_narrow_window_scrolls_nothing_but_tables(live, plant, tab):
    plant.park("7")
    seen = tab(live.with_token)
    seen.page.set_viewport_size({"width": 420, "height": 800})
    seen.waits_for("#dead tbody tr")
    assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
