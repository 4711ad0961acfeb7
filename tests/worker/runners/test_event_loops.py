"""The library whose event loop runs async handlers: asyncio, or uvloop for those who ask for it."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from desk import Desk
from event_loops import LIBRARIES

from partbox import SettingsError
from partbox.worker.runners.loop_hosts import find_loop_factory

LOADED = "import sys, partbox.worker.worker, partbox.supervisor.supervisor; print('uvloop' in sys.modules)"


@pytest.fixture
def without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)


@pytest.mark.parametrize("debug", ["", "1"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_worker_delivers_in_the_loop_that_is_asked_for_and_a_stop_lets_handlers_end(
    desk_with: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch, library: str, debug: str
) -> None:
    monkeypatch.setenv("PYTHONASYNCIODEBUG", debug)
    desk, loops, begun = desk_with(event_loop=library), list[asyncio.AbstractEventLoop](), threading.Event()

    @desk.outbox.on("Counted")
    async def handler(event: Any) -> None:
        loops.append(asyncio.get_running_loop())
        begun.set()
        async with asyncio.timeout(60):
            await asyncio.sleep(0.05)  # the stop comes while the handler waits
        desk.note(event)

    desk.publish("k", 0)
    with desk.outbox.worker():
        assert begun.wait(60)  # it is stopped while the handler waits
    desk.publish("k", 1, 2)
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert desk.numbers() == [0, 1, 2]
    assert {type(loop).__module__.partition(".")[0] for loop in loops} == {library}
    assert {loop.get_debug() for loop in loops} == {bool(debug)}
    assert all(loop.is_closed() for loop in loops)


def test_uvloop_is_not_imported_where_nobody_asks_for_it() -> None:
    assert subprocess.check_output([sys.executable, "-c", LOADED], text=True) == "False\n"


@pytest.mark.usefixtures("without_uvloop")
def test_a_loop_whose_library_is_not_installed_is_refused_with_the_remedy(desk_with: Callable[..., Desk]) -> None:
    desk = desk_with(event_loop="uvloop")
    desk.outbox.register(desk.note, "Counted")
    said = r"event_loop = uvloop needs the library uvloop: pip install 'partbox\[uvloop\]'"
    with pytest.raises(SettingsError, match=said):
        desk.outbox.worker()
    with pytest.raises(SettingsError, match=said):
        desk.outbox.supervisor(processes=1).start()
    assert find_loop_factory("asyncio") is asyncio.new_event_loop
