"""The page for those who hear it, or walk it by keys: axe-core finds nothing serious, phone and dark included."""

from importlib.resources import files

import pytest
from live import TOKEN

RUN = """async () => (await axe.run(document, { resultTypes: ["violations"] })).violations
  .filter(({ impact }) => impact === "serious" || impact === "critical")
  .flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html.slice(0, 200)}`))"""
DESK, PHONE = {"width": 1280, "height": 1000}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def axe() -> str:
    return files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("query", "there"),
    [
        ("", "#dead tbody tr"),
        ("?ended=failed&since=1h", "#found tbody tr, #found .empty"),
        ("?find=7", "#found tbody tr"),
        ("?record=1", "#record .timeline"),
    ],
    ids=["in trouble", "what failed", "found", "a record"],
)
def test_the_accessibility_checker_axe_finds_no_serious_problem(live, plant, axe, tab, query, there):
    plant.park("7", blocks=True, trace="File 'shop.py'", headers={"x": "y"})
    plant.park("8", "retrying", blocks=True, due=600)
    seen = tab(f"{live.address}{query}#token={TOKEN}")
    for selector in ("[data-trouble=blocked-by-dead]", "#lags li", "#blocked tbody tr", there):
        seen.page.locator(selector).first.wait_for(state="attached")
    seen.page.evaluate(axe)
    for scheme, size in (("light", DESK), ("dark", DESK), ("light", PHONE)):
        seen.page.emulate_media(color_scheme=scheme)
        seen.page.set_viewport_size(size)
        assert seen.page.evaluate(RUN) == [], (scheme, size)


def test_a_record_can_be_searched_opened_and_closed_by_keyboard_alone(live, plant, tab):
    record = plant.park("7")
    seen = tab(live.with_token)
    seen.waits_for("#dead tbody tr")
    keys = seen.page.keyboard
    seen.page.get_by_label("Find a record").focus()
    keys.type("7")
    keys.press("Enter")
    seen.waits_for("#found tbody tr")
    link = seen.button(f"Show record {record}", "#found")
    link.focus()
    keys.press("Enter")
    seen.waits_for("#record .timeline")
    assert seen.page.evaluate("document.activeElement.textContent") == "Close"
    keys.press("Enter")
    seen.waits_until_gone("#record")
    assert link.evaluate("(it) => it === document.activeElement")
