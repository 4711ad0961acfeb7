"""The effects of transactional handlers, as tests find them in the table `effect`, in the order of their ids."""

from typing import Any


def effects(desk: Any, key: str | None = None) -> list[int]:
    """The numbers that handlers have written, of one key or of all."""
    rows = desk.conn.execute("select key, number from effect order by id").fetchall()
    return [number for found, number in rows if key in (None, found)]


def publish_fives(desk: Any, count: int) -> None:
    """Publish so many numbers, in turn to five keys."""
    for key in range(5):
        desk.publish(f"k{key}", *range(key, count, 5))


def is_of_fives(desk: Any, count: int) -> bool:
    """True if each number of `publish_fives` has been written once, in the order of its key."""
    return all(effects(desk, f"k{key}") == list(range(key, count, 5)) for key in range(5))


def lose_connections(desk: Any, times: int) -> None:
    """End the session of the worker's transactions so often, and let it get on each time; then let it do the rest."""
    for _ in range(times):
        desk.conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'partbox effects'"
        )
        before = len(effects(desk))
        desk.eventually(lambda before=before: len(effects(desk)) > before or desk.all_done())
    desk.eventually(desk.all_done)
