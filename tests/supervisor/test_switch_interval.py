"""The time for which a thread of a worker process may keep the interpreter from another."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from psycopg import Connection
from waiting import eventually

from partbox import Outbox
from partbox.supervisor.child import SWITCH_INTERVAL

USUAL = sys.getswitchinterval()


def sync(path: Path) -> Callable[[Any], None]:
    return lambda event: tell(path)


def awaited(path: Path) -> Callable[[Any], Any]:
    async def handler(event: Any) -> None:
        tell(path)

    return handler


def tell(path: Path) -> None:
    path.write_text(str(sys.getswitchinterval()))


@pytest.mark.parametrize(("handler", "interval"), [(awaited, SWITCH_INTERVAL), (sync, USUAL)])
def test_the_switch_interval_is_short_only_if_all_handlers_run_in_the_event_loop(
    dsn: str, conn: Connection[Any], tmp_path: Path, handler: Callable[[Path], Any], interval: float
) -> None:
    outbox, told = Outbox(dsn), tmp_path / "told"
    outbox.register(handler(told), "Counted")
    with conn.transaction():
        outbox.publish(conn, "Counted", 1)
    node = outbox.supervisor(processes=1)
    node.start()
    try:
        eventually(lambda: told.exists() and told.read_text())
    finally:
        node.stop()
        node.join()
    assert float(told.read_text()) == interval
    assert sys.getswitchinterval() == USUAL, "this process is not theirs"
