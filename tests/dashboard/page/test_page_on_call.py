"""The page in trouble, as somebody on call sees it, at a desk and on a phone."""

from uuid import UUID

import pytest
from waiting import eventually

DESK, PHONES = {"width": 1280, "height": 900}, [{"width": 390, "height": 844}, {"width": 360, "height": 740}]
AWAY = "ConnectionError: refused"
WAITS = f"shop.ship waits for its downstream: {AWAY}"
TRACEBACK = f'File "/srv/shop.py", line 7, in ship\n    <img src=x onerror=alert(1)> {"x" * 400}'


@pytest.fixture
def dead(plant) -> list[int]:
    """Many that are alike, and one other."""
    records = [plant.park(f"order-{number}", error=f"ValueError: no order {number}") for number in range(12)]
    return [*records, plant.park("x", event_type="Paid", error="KeyError: 'card'", trace=TRACEBACK)]


@pytest.fixture
def blocked(plant) -> list[int]:
    """Events that wait for an open circuit."""
    return [
        plant.park(
            f"order-{number}",
            "deferred",
            blocks=True,
            due=600,
            age=120,
            error=(AWAY, WAITS)[number % 3 == 0],
            event_type=("Placed", "Paid")[number % 2],
        )
        for number in range(12)
    ]


@pytest.fixture
def joins(conn):
    """Makes a process live as far as anybody can tell."""

    def join(node: str, pid: int, **fields):
        names = ", ".join(fields)
        found = conn.execute(
            "insert into partbox.instance (subscription, node, hostname, pid, version, lease, started_at"
            f"{', ' if names else ''}{names}) values ('default', %s, %s, %s, '0.1.0', '1 h',"
            f" now() - %s * interval '1 s'{', %s' * len(fields)}) returning instance_id",
            [node, node, pid, 10_000 - pid, *fields.values()],
        )
        return found.fetchone()[0]

    return join


@pytest.fixture
def claims(conn):
    def claim(instance, numbers):
        conn.execute(
            "update partbox.partition set owner = %s, assignee = %s, epoch = epoch + 1 where partition = any(%s)",
            [instance, instance, [*numbers]],
        )

    return claim


def running(seconds: float) -> str:
    """A handler that hangs, as a process says it, in SQL."""
    return (
        "json_build_array(json_build_object('handler', 'shop.ship', 'event_type', 'Placed', 'aggregate_type', 'Order',"
        f" 'aggregate_id', '4711', 'record_id', 12, 'since', extract(epoch from now() - {seconds} * interval '1 s')))"
    )


@pytest.mark.thorough
def test_findings_of_doctor_are_shown_on_top_with_evidence_and_a_remedy_to_copy(live, plant, dead, blocked, tab):
    seen = tab(live.with_token)
    seen.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    flood = seen.waits_for("[data-trouble=dead-flood]", "12 of type Placed: ValueError: no order 11")
    assert flood.locator(".level").inner_text().startswith("Problem since ")
    assert "12 of them Placed: ValueError: no order 11" in flood.locator("summary").inner_text()
    assert "see one: partbox dead show" in flood.locator(".todo").text_content()
    fold = flood.locator("summary")
    fold.click()
    command = "partbox dead replay --all --type=Placed"
    seen.button(f"Copy {command}", "[data-trouble=dead-flood]").click()
    seen.waits_for("#toast", "copied")
    assert seen.page.evaluate("navigator.clipboard.readText()") == command
    # One row for all that wait for one thing, though many do.
    circuit = seen.waits_for("[data-trouble=deferred]", "12 events deferred, the circuit of handler shop.ship is open")
    assert "12 aggregates blocked by these events" in circuit.locator(".evidence").text_content()
    assert seen.page.locator("[data-trouble=blocked-key]").count() == 0
    assert "looked for" in seen.text("#doctor")
    top = seen.page.locator("main > :not([hidden])").first
    assert top.locator("[data-trouble]").count() == seen.page.locator("[data-trouble]").count() > 2
    # It stays as somebody left it.
    plant.publish("7")
    seen.waits_for("#summary", "13 waiting")
    assert flood.locator("details").get_attribute("open") == ""
    fold.click()
    plant.publish("7")
    seen.waits_for("#summary", "14 waiting")
    assert flood.locator("details").get_attribute("open") is None


@pytest.mark.parametrize("size", [DESK, PHONES[0]], ids=["at a desk", "on a phone"])
def test_the_first_problem_is_open_and_what_gives_up_stands_behind_its_evidence(
    live, plant, dead, joins, claims, tab, size
):
    claims(joins("north", 4_711), range(256))
    plant.park("x", "retrying", blocks=True, error="BookingError: no carrier")
    seen = tab(live.with_token)
    seen.page.set_viewport_size(size)
    seen.page.reload()
    seen.waits_for("[data-trouble=dead-flood]")
    rows = seen.page.locator("#troubles [data-trouble]")
    names = [each.get_attribute("data-trouble") for each in rows.all()]
    assert names == ["blocked-key", "dead-flood"]
    assert [each.locator("details[open]").count() for each in rows.all()] == [1, 0]
    first, flood = rows.all()
    assert first.locator("strong").inner_text().endswith("Placed: BookingError: no carrier")
    flood.locator("summary").click()
    for row, gentle, hard in ((first, "Retry all now", "Skip all …"), (flood, "Replay all …", "Discard all …")):
        *_, evidence = [each.bounding_box()["y"] for each in row.locator(".evidence li").all()]
        place = {name: row.get_by_role("button", name=name).bounding_box()["y"] for name in (gentle, hard)}
        assert place[gentle] < evidence < place[hard]
    tools, table = (seen.page.locator(name).bounding_box()["y"] for name in ("#dead-tools", "#dead"))
    assert (tools > table) == (size != DESK)


@pytest.mark.thorough
def test_the_headline_says_how_long_the_oldest_event_waits_though_it_is_parked(live, plant, conn, tab):
    plant.park("7", "retrying", blocks=True, due=60)
    conn.execute("update partbox.record set created_at = now() - interval '7 minutes'")
    plant.park("7", "held", blocks=True)
    seen = tab(live.address)
    seen.waits_for("#summary", "2 waiting, the oldest for 7 min")
    assert seen.text(".value[data-line=waits]") == "7 min"
    assert seen.page.locator(".cell[aria-label$='the oldest waits 7 min']").count() == 1


def test_similar_dead_records_share_one_row_and_one_action_after_a_question(live, plant, dead, tab):
    *alike, other = dead
    seen = tab(live.with_token)
    group = "#dead tr.group"
    assert "no order 11" in seen.waits_for(group, "12 records of type Placed").inner_text()
    assert seen.page.locator(group).count() == 1
    assert seen.page.locator("#dead tr[data-record]").count() == 1  # the other one
    seen.page.locator("#dead .fold").click()
    seen.waits_for(f"#dead tr[data-record='{alike[0]}']")
    assert seen.page.locator("#dead tr[data-record]").count() == 13
    seen.button("Discard 12 …", group).click()
    seen.waits_for("#ask h2", "Discard 12 dead records?")
    seen.button("Cancel", "#ask").click()
    seen.button("Replay 12 …", group).click()
    seen.button("Replay 12", "#ask").click()
    seen.waits_for("#toast", "replayed 12 records")
    assert plant.states() == dict.fromkeys(alike, "ready") | {other: "dead"}


@pytest.mark.thorough
def test_events_held_by_an_open_circuit_share_one_row_and_are_retried_together(live, plant, blocked, tab):
    seen = tab(live.with_token)
    group = seen.waits_for("#blocked tr.group", "12 aggregates wait for events of 2 types")
    assert "shop.ship waits for its downstream" in group.inner_text()
    assert seen.page.locator("#blocked tbody tr").count() == 1
    seen.button("Retry 12 now").click()
    seen.waits_for("#toast", "12 aggregates may go on now")
    assert all(plant.row(record)["is_due"] for record in blocked)
    seen.page.locator("#blocked .fold").click()
    seen.waits_for(f"#blocked tr[data-record='{blocked[0]}']")
    assert seen.page.locator("#blocked tr[data-record]").count() == 12


@pytest.mark.thorough
def test_a_traceback_is_text_in_a_block_that_scrolls_within_itself(live, dead, tab):
    seen = tab(live.with_token)
    for size in (DESK, PHONES[0]):
        seen.page.set_viewport_size(size)
        seen.button(f"Show record {dead[-1]}").click()
        block = seen.waits_for("#record pre[aria-label=Traceback]", "in ship\n    <img src=x")
        assert block.evaluate("(it) => it.scrollWidth > it.clientWidth && getComputedStyle(it).overflowX === 'auto'")
        assert seen.page.locator("#record img").count() == 0
        assert seen.page.evaluate("document.querySelector('#record').scrollWidth <= innerWidth")
        assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        seen.page.keyboard.press("Escape")
        seen.waits_until_gone("#record")


@pytest.mark.thorough
def test_two_nodes_of_one_name_are_two_and_a_handler_that_hangs_is_named(live, conn, joins, tab):
    first, second = UUID(int=1), UUID(int=2)
    slow = joins("web-1", 4_711, supervisor=first)
    joins("web-1", 4_712, supervisor=second)
    conn.execute(f"update partbox.instance set running = {running(200)} where instance_id = %s", [slow])
    seen = tab(live.address)
    seen.waits_for("#workers tbody tr:nth-child(2)")
    assert [row.split("\t")[1] for row in seen.page.locator("#workers tbody tr").all_inner_texts()] == [
        "web-1",
        "web-1 (2)",
    ]
    assert seen.text("#workers-note") == "2 on 2 nodes"
    hangs = seen.waits_for("#running tr[data-running='12']").inner_text()
    for word in ("web-1 4711", "shop.ship", "Placed", "Order 4711", "3 min"):
        assert word in hangs
    conn.execute("update partbox.instance set running = null")
    seen.waits_until_gone("#running-side")


OUTSIDE = """[...document.querySelectorAll("button, input, select, summary")].filter((each) => {
  const { left, right, width } = each.getBoundingClientRect();
  return each.checkVisibility() && width > 0 && (left < 0 || right > innerWidth);
}).map((each) => each.outerHTML)"""
SPILT = """[...document.querySelectorAll(".card, .trouble-row, td, dd")].filter((each) => {
  const { clientHeight, scrollHeight } = each;
  return each.checkVisibility() && clientHeight && scrollHeight > clientHeight + 1;
}).map((each) => each.outerHTML.slice(0, 99))"""
SIDEWAYS = """[...document.querySelectorAll(".scroll, .within, #ask, .trouble-row")].filter((each) =>
  each.checkVisibility() && each.scrollWidth > each.clientWidth + 1).map((each) => each.outerHTML.slice(0, 99))"""


@pytest.mark.thorough
def test_on_a_phone_no_action_is_off_the_screen_and_nothing_scrolls_sideways(
    live, conn, plant, dead, blocked, joins, tab
):
    joins("web-1.fsn1.example.internal", 4_711, supervisor=UUID(int=1))
    conn.execute(f"update partbox.instance set running = {running(200)}")
    plant.park("a-" + "long-" * 30 + "name", "retrying", blocks=True, error="ConnectionError: " + "x" * 300)
    seen = tab(live.with_token)
    for name in ("dead-flood", "deferred"):
        fold = seen.waits_for(f"[data-trouble={name}] details")
        fold.evaluate("(it) => (it.open = true)")
        fold.locator(".evidence").wait_for()
    assert seen.page.evaluate(SPILT) == []
    seen.page.locator("#blocked .fold").click()
    seen.page.locator("#dead .fold").click()
    seen.waits_for(f"#dead tr[data-record='{dead[0]}']")
    for size in PHONES:
        seen.page.set_viewport_size(size)
        assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), size
        for script in (OUTSIDE, SIDEWAYS, SPILT):
            assert seen.page.evaluate(script) == [], size
    assert seen.page.locator("#dead tr[data-record] td[data-label=Died]").first.is_visible()
    seen.button("Table").click()
    seen.waits_for("#table-side tbody tr")
    assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert seen.page.evaluate(SIDEWAYS) == []
    seen.page.evaluate("scrollTo(0, 0)")
    seen.button("Replay", f"#dead tr[data-record='{dead[0]}']").click()
    eventually(lambda: plant.states()[dead[0]] == "ready")


WATCH = """() => {
  const kept = "header, main > *, main > * > .card, .card > .head, .map, #legend";
  const box = (each) => {
    const { x, y, width } = each.getBoundingClientRect();
    return [each.id || each.className || each.tagName, ...[x, y, width].map((part) => part.toFixed(1))].join(" ");
  };
  const boxes = () => [...document.querySelectorAll(kept)].map(box);
  const first = boxes();
  const look = () => boxes().forEach((now, place) => now === first[place] || jumps.add(`${first[place]} -> ${now}`));
  window.jumps = new Set();
  window.watching = setInterval(look, 20);
}"""


@pytest.mark.thorough
@pytest.mark.parametrize("size", [DESK, PHONES[0]], ids=["at a desk", "on a phone"])
def test_nothing_on_the_page_jumps_during_a_rebalance(live, plant, joins, claims, conn, tab, size):
    ann, bob = joins("north", 4_711), joins("north", 4_712)
    claims(ann, range(128))
    claims(bob, range(128, 256))
    seen = tab(live.address)
    seen.page.set_viewport_size(size)
    seen.waits_for("#doctor small", "looked for")
    eventually(lambda: sorted(seen.letters()) == ["A"] * 128 + ["B"] * 128)
    seen.page.evaluate(WATCH)
    plant.publish("7")
    cleo, *_ = [joins("south.example", 4_713 + number) for number in range(15)]
    seen.waits_for("#workers tbody tr:nth-child(17)")
    conn.execute("update partbox.partition set assignee = %s where partition < 43", [cleo])
    seen.waits_for(".cell[data-next]")
    claims(cleo, range(43))
    conn.execute("update partbox.partition set owner = null where partition between 213 and 255")
    seen.waits_for("#partitions-note", "43 without an owner")
    claims(cleo, range(213, 256))
    conn.execute("delete from partbox.instance where instance_id = %s", [bob])
    seen.waits_for("#lately li[data-kind=gone]")
    eventually(lambda: "C" in seen.letters())
    assert seen.page.evaluate("clearInterval(watching) ?? [...jumps]") == []
