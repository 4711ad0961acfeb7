"""Requests of a page that are not answered until a test says so."""

from collections.abc import Callable
from typing import Any

from waiting import eventually


class Held:
    """Holds those whose address `concerns` us; the others go on."""

    def __init__(self, page: Any, concerns: Callable[[str], bool]) -> None:
        self._page = page
        self._concerns = concerns
        self._held: list[Any] = []
        page.route("**/*", self._met)

    def waits_for(self, count: int) -> None:
        """Wait until this many are held."""
        eventually(lambda: self._page.evaluate("1") and len(self._held) >= count)

    def let_go(self, part: str) -> None:
        """Answer those that have `part` in their address, and hold none any more; the page has seen the answers."""
        self._concerns = lambda url: False  # `_met` goes on being called, while the test waits for the page alone
        going = [route for route in self._held if part in route.request.url]
        self._held = [route for route in self._held if route not in going]
        for route in going:
            with self._page.expect_event("requestfinished", lambda done, asked=route.request: done == asked):
                route.continue_()
        self._page.evaluate("new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)))")

    def _met(self, route: Any) -> None:
        if self._concerns(route.request.url):
            self._held.append(route)
        else:
            route.continue_()
