"""A lifespan whose start takes long."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from desk import Desk

from partbox.worker.runners import process_lifespan


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_lifespan_that_takes_long_is_logged_with_the_line_of_code_that_it_is_in(
    desk: Desk, is_async: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process_lifespan, "WAIT_LOG_INTERVAL", 0.05)

    def said() -> list[str]:
        return [each.getMessage() for each in caplog.records if getattr(each, "event", "") == "partbox.lifespan_waits"]

    def lifespan() -> Iterator[None]:
        while len(said()) < 2:
            time.sleep(0.01)
        yield

    async def lifespan_async() -> AsyncIterator[None]:
        while len(said()) < 2:
            await asyncio.sleep(0.01)
        yield

    function: Any = lifespan_async if is_async else lifespan
    desk.outbox.lifespan(function)
    desk.outbox.on("Counted")(desk.note)
    desk.publish("k", 1)
    with desk.outbox.worker() as worker:
        assert worker.wait_until_empty(60)
    first = function.__code__.co_firstlineno
    for line in said():
        assert f"{function.__name__} (" in line
        assert any(
            f"and is in line {number}: nothing is delivered by this process" in line
            for number in (first + 1, first + 2)
        )
    assert len(said()) >= 2


def test_a_lifespan_that_raises_a_timeout_error_of_its_own_fails_at_its_start(desk: Desk) -> None:
    @desk.outbox.lifespan
    def lifespan() -> Iterator[None]:
        raise TimeoutError("no answer")
        yield

    desk.outbox.on("Counted")(desk.note)
    with pytest.raises(TimeoutError, match="no answer"):
        desk.outbox.worker().start()
