"""A node that comes to work for its database, one of several."""

from types import SimpleNamespace

import psycopg
import pytest

from partbox import Outbox
from partbox.errors import SchemaError
from partbox.supervisor import database_retry
from partbox.supervisor.database_retry import DatabaseRetry

AWAY = psycopg.OperationalError("connection to ada:s3cret@db refused")
BARE = SchemaError("there is no schema: run `partbox init`")


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    """The time in seconds, to be set."""
    now = [100.0]
    monkeypatch.setattr(database_retry, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def entering(*answers: Exception | None) -> DatabaseRetry:
    """Each try gets the next answer."""
    rest = iter(answers)

    def enter() -> None:
        if (answer := next(rest)) is not None:
            raise answer

    return DatabaseRetry(enter, "default")


def test_a_single_database_that_cannot_be_joined_raises_the_error():
    with pytest.raises(psycopg.OperationalError):
        entering(AWAY).join_or_raise()


def test_an_obstacle_to_joining_is_logged_when_it_changes_and_when_it_is_over(caplog, clock):
    caplog.set_level("INFO")
    each = entering(AWAY, AWAY, AWAY, BARE, BARE, AWAY, None)
    for _ in range(7):
        each.try_join()
        clock[0] += 1
    events = [record.event for record in caplog.records]
    assert events == [f"partbox.database_{name}" for name in ("away", "unfit", "away", "joined")]
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR", "WARNING", "INFO"]
    assert caplog.records[-1].seconds == 6
    assert (each.is_joined, each.find_blocker(), each.has_never_joined) == (True, None, False)


def test_pauses_between_tries_to_join_grow_up_to_ten_seconds(clock):
    each, pauses = entering(*[AWAY] * 20), []
    for _ in range(20):
        each.try_join()
        pauses.append(each.next_try_at - clock[0])
    assert 0.05 <= pauses[0] <= 0.1
    assert all(5 <= pause <= 10 for pause in pauses[7:])


def test_the_public_reason_of_a_failed_join_holds_no_text_of_the_driver(clock):
    each = entering(AWAY, BARE)
    assert each.find_blocker() is None, "it was not tried yet"
    each.try_join()
    clock[0] += 12
    assert each.find_blocker() == "cannot connect to the database, retried for 12 s so far: OperationalError"
    each.try_join()
    assert each.find_blocker() == f"cannot use the database, retried for 12 s so far: {BARE}"
    assert each.has_never_joined


def test_a_database_that_is_joined_for_moments_only_is_retried_with_growing_pauses_too(clock):
    each, pauses = entering(*[None] * 30), []
    for _ in range(10):
        each.try_join()
        clock[0] += 1
        each.mark_lost()
        each.mark_lost()  # each of its processes says so
        pauses.append(each.next_try_at - clock[0])
    assert pauses[-1] >= 5
    each.try_join()
    clock[0] += 60
    each.mark_lost()
    assert each.next_try_at - clock[0] <= 0.1
    assert (each.is_joined, each.has_never_joined) == (False, False)


def test_a_bug_of_partbox_while_joining_is_raised():
    with pytest.raises(ZeroDivisionError):
        DatabaseRetry(lambda: 1 / 0, "default").try_join()


def test_a_stopping_node_of_one_of_several_databases_does_not_wait_for_its_database(monkeypatch):
    node = Outbox("postgresql://nowhere")._make_nodes(processes=1).build_supervisor(name="shop")
    monkeypatch.setattr(type(node), "running", True)
    node._database_retry.is_trying = True
    assert not node.is_gone
    node.stop()
    assert node.is_gone
