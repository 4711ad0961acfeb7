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
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 30_000  # milliseconds; the machine may be busy


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser with an empty profile; skips where there is none."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=FLAGS, timeout=60_000)
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """A page in a context of its own. `complaints`: what scripts, styles and policies complained about; `strangers`:
    requests to anybody but the page's own server."""

    def __init__(self, browser: Any, address: str, *, expected: tuple[str, ...] = (), **options: Any) -> None:
        self._expected = expected
        self._own = urlsplit(address).netloc
        self.complaints: list[str] = []
        self.strangers: list[str] = []
        self.dialogs: list[str] = []
        # Motion costs a second of CPU a test where nothing but the CPU draws.
        usual: dict[str, Any] = {"viewport": {"width": 1280, "height": 1100}, "reduced_motion": "reduce"}
        self._context = browser.new_context(**usual | options)
        self.page = self._context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._asked)
        self.page.on("dialog", self._opened)
        self.page.goto(address)

    def close(self) -> None:
        self._context.close()

    def waits_for(self, selector: str, text: str | None = None) -> Any:
        """The element, once it is there (and says `text`)."""
        found = self.page.locator(selector, has_text=text) if text else self.page.locator(selector)
        found.first.wait_for()
        return found.first

    def waits_until_gone(self, selector: str) -> None:
        self.page.locator(selector).first.wait_for(state="hidden")

    def text(self, selector: str) -> str:
        return self.page.locator(selector).first.inner_text()

    def button(self, name: str, within: str = "body") -> Any:
        """By what a screen reader calls it."""
        return self.page.locator(within).get_by_role("button", name=name, exact=True)

    def letters(self) -> str:
        """The owners of all partitions, in order."""
        return "".join(self.page.locator(".cell").all_inner_texts())

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning") and not any(word in message.text for word in self._expected):
            self.complaints.append(message.text)

    def _asked(self, request: Any) -> None:
        if urlsplit(request.url).netloc != self._own:
            self.strangers.append(request.url)

    def _opened(self, dialog: Any) -> None:
        self.complaints.append(f"a dialog of the browser opened: {dialog.message}")
        dialog.dismiss()
