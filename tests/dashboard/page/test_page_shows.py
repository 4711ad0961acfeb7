"""The page as people see it, in a real browser, on a database where records were planted."""

import pytest
from live import TOKEN, Live
from waiting import eventually

import partbox

PATIENT = (60, 0.1)
"""Seconds to wait for the map, and between two looks: each look at 256 cells costs the browser something."""
SCRIPT = "<img src=x onerror=alert(1)><script>document.title='owned'</script>"
HOSTILE = f"{SCRIPT}\u202egpj.exe\u2066\x1b[2J\x9b" + "W" * 8_000


def test_without_the_token_the_page_only_shows_and_says_so(live, plant, tab):
    record = plant.park("7", blocks=True)
    seen = tab(live.address)
    seen.waits_for(f"#dead tr[data-record='{record}']", "boom")
    assert seen.text("#access") == "Read-only: unlock"
    buttons = seen.page.locator("#trouble button").all_inner_texts()
    assert buttons == [str(record)] * 2  # which show it
    assert seen.page.locator("#trouble input[type=checkbox]").count() == 0


def test_a_token_in_the_address_unlocks_actions_and_is_removed_from_it_but_a_wrong_token_does_not(live, plant, tab):
    plant.park("7")
    seen = tab(live.with_token)
    seen.waits_for("#access", "Actions unlocked")
    assert TOKEN not in seen.page.evaluate("location.href")
    seen.page.reload()
    seen.waits_for("#access", "Actions unlocked")
    seen.page.locator("#access").click()
    seen.waits_for("#access", "Read-only: unlock")
    seen.page.evaluate(f"location.hash = 'token={TOKEN}'")
    seen.waits_for("#access", "Actions unlocked")
    seen.page.evaluate("location.hash = 'token=wrong'")
    seen.waits_for("[data-trouble=wrong-token]", "The token of this tab is not the server's")
    assert seen.text("#access") == "Read-only: unlock"


@pytest.mark.thorough
def test_a_wrong_token_is_refused_in_the_dialog_and_enter_unlocks_once(live, plant, tab):
    plant.park("7")
    seen = tab(live.address, expected=("401",))
    seen.waits_for("#access", "Read-only: unlock").click()
    field = seen.page.get_by_label("Token", exact=True)
    field.fill("a-token-of-this-tesT")
    seen.page.keyboard.press("Enter")
    seen.waits_for("#ask .wrong", "That is not the token")
    field.fill("\u202e\u00e4")
    seen.button("Unlock").click()
    seen.waits_for("#ask .wrong", "letters, digits, - and _ only")
    assert seen.text("#access") == "Read-only: unlock"
    field.fill(TOKEN)
    seen.page.keyboard.press("Enter")
    seen.waits_for("#access", "Actions unlocked")
    assert seen.page.locator("#ask").is_hidden()
    seen.page.reload()
    seen.waits_for("#access", "Actions unlocked")


@pytest.mark.thorough
def test_a_page_without_a_configured_token_says_so_instead_of_asking_for_one(dsn, tab):
    live = Live(dsn, token=None)
    try:
        seen = tab(live.address)
        seen.waits_for("#connection", "Live")
        seen.page.locator("#access").click()
        seen.waits_for("#ask", "PARTBOX_HTTP_TOKEN")
        assert seen.page.locator("#ask input").count() == 0
    finally:
        live.close()


@pytest.mark.thorough
def test_the_page_asks_for_the_token_when_even_reading_needs_it(dsn, plant, tab):
    plant.park("7")
    live = Live(dsn, host="0.0.0.0")
    try:
        seen = tab(live.address, expected=("401",))
        seen.waits_for("[data-trouble=token]")
        assert "boom" not in seen.page.content()
        seen.button("Enter the token").click()
        seen.page.get_by_label("Token", exact=True).fill(TOKEN)
        seen.button("Unlock").click()
        seen.waits_for("#dead td", "boom")
        assert seen.page.locator("[data-trouble=token]").count() == 0
    finally:
        live.close()


def test_a_paused_subscription_is_reported_and_can_be_resumed(live, plant, conn, tab):
    plant.publish("7")
    conn.execute("update partbox.subscription set paused_at = now() - interval '3 days'")
    seen = tab(live.with_token)
    alarm = seen.waits_for("[data-trouble=paused]")
    assert "default has been paused for 3 days: nothing is delivered, 1 event waits" in alarm.inner_text()
    seen.button("Resume").click()
    eventually(lambda: conn.execute("select paused_at from partbox.subscription").fetchone() == (None,))
    seen.waits_until_gone("[data-trouble=paused]")


@pytest.mark.thorough
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
    # What connects is not told, but for the database's name.
    assert seen.text("#where") == f"database {conn.info.dbname} · schema partbox · partbox {partbox.__version__}"
    assert f"user={conn.info.user}" not in seen.page.content()
    assert seen.page.title().endswith(conn.info.dbname)


def test_the_page_says_that_the_connection_is_lost_when_the_server_stops(dsn, plant, tab):
    live = Live(dsn)
    seen = tab(live.address, expected=("ERR_",))
    seen.waits_for("#connection", "Live")
    live.close()
    seen.waits_for("[data-trouble=lost]")
    assert seen.text("#connection") == "Connection lost"


def test_hostile_texts_and_names_stay_texts_and_do_not_break_the_page(live, plant, conn, tab):
    names = {"aggregate_type": HOSTILE[:200], "event_type": HOSTILE[:200]}
    error = HOSTILE[:3_900]
    dead = plant.park(HOSTILE, error=error, **names)
    plant.park(HOSTILE, "retrying", blocks=True, error=error, **names)
    plant.park("\u05d0\u05d1\u05d2\u202e" * 50, "retrying", blocks=True, error="\u05d0\u05d1\u05d2 " * 300)
    subscription = "a\u202e<b>'; rm -rf $HOME"
    conn.execute("insert into partbox.subscription (name) values (%s)", [subscription])
    seen = tab(live.with_token)
    seen.waits_for("#dead td", "<script>")
    seen.waits_for("#blocked td", "onerror")
    seen.button(f"Show record {dead}").click()
    seen.waits_for("#record pre", "onerror=alert(1)")
    whole = seen.text("#record")
    assert len(whole) > 10_000
    assert "\u202e" not in "".join(seen.page.locator("main, #record").all_inner_texts())
    assert r"\u202egpj.exe" in whole
    assert seen.page.title() != "owned"
    assert seen.page.locator("main img").count() == 0
    assert seen.page.locator("body script").count() == 0
    assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert seen.page.evaluate("document.querySelector('#record').scrollWidth <= innerWidth")
    seen.page.keyboard.press("Escape")
    seen.waits_until_gone("#record")
    seen.page.get_by_label("Subscription").select_option(subscription)
    named = """--subscription 'a\\u202e<b>'"'"'; rm -rf $HOME'"""
    # There was one of `default` before.
    remedy = seen.waits_for(f"{seen.opens('no-workers')} code", named).inner_text()
    assert remedy.endswith(named)


def test_without_workers_the_page_says_so_and_the_map_works_by_keyboard_and_as_a_table(live, plant, tab):
    plant.publish("7")
    seen = tab(live.address)  # of somebody who wants no motion
    assert "partbox worker MODULE:OUTBOX" in seen.waits_for("[data-trouble=no-workers]").inner_text()
    assert "nothing is delivered, 1 event waits" in seen.text("[data-trouble=no-workers]")
    assert seen.letters() == "·" * 256
    for place in ("#workers", "#blocked", "#dead", "#lately"):
        seen.waits_for(f"{place} .empty")
    assert seen.text("#parked-note") == "nothing: every event was finished at once"
    assert "No worker process runs" in seen.text("#announce")
    cell = seen.waits_for(".cell[aria-label]")
    cell.evaluate("(cell) => cell.setAttribute('data-moved', '')")
    assert cell.evaluate("(cell) => getComputedStyle(cell).animationName") == "none"
    seen.page.locator(".cell[data-partition='0']").focus()
    for key in ("ArrowRight", "ArrowDown", "End", "ArrowRight", "ArrowLeft"):
        seen.page.keyboard.press(key)
    assert seen.page.evaluate("document.activeElement.dataset.partition") == "31"
    assert seen.page.evaluate("document.activeElement.getAttribute('aria-label')") == "Partition 31: no owner"
    assert seen.text("#details").split()[:2] == ["Partition", "31"]
    seen.page.keyboard.press("Control+End")
    assert seen.page.evaluate("document.activeElement.dataset.partition") == "255"
    assert seen.page.locator(".cell[tabindex='0']").count() == 1
    seen.button("Table").click()
    seen.waits_for("#table-side tbody tr")
    assert seen.page.locator("#table-side tbody tr").count() == 256
    assert seen.page.get_by_role("columnheader", name="Epoch").count() == 1
    assert seen.page.get_by_role("grid").count() == 0


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
DARK = "matchMedia('(prefers-color-scheme: dark)').matches"


def test_every_element_has_a_role_a_name_and_enough_contrast_and_fits_a_narrow_window(live, plant, tab):
    plant.park("7", blocks=True)
    plant.park("8", "retrying", blocks=True)
    seen = tab(live.with_token)
    seen.waits_for("#dead tbody tr")
    seen.waits_for("#blocked tbody tr")
    seen.waits_for(f"{seen.opens('blocked-by-dead')} .todo")
    seen.page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
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
    for scheme in ("light", "dark"):
        seen.page.emulate_media(color_scheme=scheme)
        assert seen.page.evaluate(DARK) == (scheme == "dark")
        assert seen.page.evaluate(CONTRAST) == [], scheme
    seen.page.set_viewport_size({"width": 420, "height": 800})
    assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
