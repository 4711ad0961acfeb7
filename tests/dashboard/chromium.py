"""The machine's own Chromium, driven by playwright."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--process-per-site",  # one process draws all pages: a new one for each test costs 0.1 s of CPU
    "--renderer-process-limit=1",
    "--disable-site-isolation-trials",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SIZE = {"width": 1280, "height": 1100}
PATIENCE = 30_000  # milliseconds; the machine may be busy


@contextmanager
def chromium() -> Iterator[Any]:
    """A page of a browser with an empty profile; skips where there is none."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=FLAGS, timeout=60_000)
        try:
            # Motion costs a second of CPU a test where nothing but the CPU draws.
            page = browser.new_page(viewport=SIZE, reduced_motion="reduce")
            page.set_default_timeout(PATIENCE)
            yield page
        finally:
            browser.close()


class Tab:
    """An address in the page of a browser, until it leaves. `complaints`: what scripts, styles and policies complained
    about; `strangers`: requests to anybody but the page's own server."""

    def __init__(self, page: Any, address: str, *, expected: tuple[str, ...] = ()) -> None:
        self._expected = expected
        self._own = urlsplit(address).netloc
        self.complaints: list[str] = []
        self.strangers: list[str] = []
        self.page = page
        self._heard = {
            "console": self._said,
            "pageerror": self._failed,
            "request": self._asked,
            "dialog": self._opened,
        }
        for event, hears in self._heard.items():
            page.on(event, hears)
        page.goto(address)

    def leave(self) -> None:
        """The page is as a new one afterwards: what a tab keeps, it keeps by address, whose port is the server's."""
        for event, hears in self._heard.items():
            self.page.remove_listener(event, hears)
        self.page.unroute_all()
        self.page.evaluate("sessionStorage.clear()")
        self.page.goto("about:blank")
        self.page.set_viewport_size(SIZE)
        self.page.emulate_media(color_scheme="light")

    def waits_for(self, selector: str, text: str | None = None) -> Any:
        """The element, once it is there (and says `text`)."""
        found = self.page.locator(selector, has_text=text) if text else self.page.locator(selector)
        found.first.wait_for()
        return found.first

    def opens(self, problem: str) -> str:
        """The selector of a problem, once it is there and open."""
        row = self.waits_for(f"[data-trouble={problem}]")
        row.locator("details").evaluate("(it) => (it.open = true)")
        return f"[data-trouble={problem}]"

    def waits_until_gone(self, selector: str) -> None:
        self.page.locator(selector).first.wait_for(state="hidden")

    def text(self, selector: str) -> str:
        return self.page.locator(selector).first.inner_text()

    def button(self, name: str, within: str = "body") -> Any:
        """The button with this accessible name."""
        return self.page.locator(within).get_by_role("button", name=name, exact=True)

    def letters(self) -> str:
        """The owners of all partitions, in order."""
        return "".join(self.page.locator(".cell").all_inner_texts())

    def _failed(self, error: Any) -> None:
        self.complaints.append(str(error))

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning") and not any(word in message.text for word in self._expected):
            self.complaints.append(message.text)

    def _asked(self, request: Any) -> None:
        if urlsplit(request.url).netloc != self._own:
            self.strangers.append(request.url)

    def _opened(self, dialog: Any) -> None:
        self.complaints.append(f"a dialog of the browser opened: {dialog.message}")
        dialog.dismiss()
