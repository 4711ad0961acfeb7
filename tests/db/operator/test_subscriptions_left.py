"""However a replay or a drop fails once it has paused the subscription, it is left as it was; what was done is said."""

import psycopg
import pytest
from subscribing import SCHEMA, consume, gets, is_paused

from partbox import Outbox
from partbox.db.operator import subscriptions
from partbox.errors import PartboxError
from partbox.operations.subscriptions import InterruptedCommand


@pytest.fixture
def outbox(dsn, conn) -> Outbox:
    """With a subscription `audit` that has consumed events 1 to 9."""
    made = Outbox(dsn)
    consume(conn, made)
    return made


def failing(monkeypatch, what: str, error: BaseException, *, after: bool = False, lost: bool = False) -> None:
    """The statement of this name fails, `after` it was done; its connection is `lost`."""
    done = getattr(subscriptions, what)

    def fail(conn, *arguments, **options):
        if after:
            done(conn, *arguments, **options)
        if lost:
            conn.close()
        raise error

    monkeypatch.setattr(subscriptions, what, fail)


def act(outbox: Outbox, what: str) -> None:
    if what == "replay":
        outbox.subscriptions.replay("audit", from_id=1)
    else:
        outbox.subscriptions.drop("audit")


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("what", ["replay", "drop"])
def test_a_database_error_is_raised_unchanged_and_the_subscription_is_left_as_it_was(
    outbox, conn, monkeypatch, what, before
):
    if before:
        outbox.subscriptions.pause("audit")
    failing(monkeypatch, what, psycopg.errors.QueryCanceled("canceling statement due to statement timeout"))
    with pytest.raises(psycopg.errors.QueryCanceled, match=r"^canceling statement due to statement timeout$"):
        act(outbox, what)
    assert is_paused(conn, "audit") is before
    assert gets(conn, "audit") == []


@pytest.mark.parametrize("what", ["pause", "replay", "drop"])
def test_the_error_for_a_lost_connection_says_how_the_subscription_was_left(outbox, conn, monkeypatch, what):
    failing(monkeypatch, what, psycopg.OperationalError("the connection is closed"), after=what == "pause", lost=True)
    with pytest.raises(
        PartboxError, match=r"^subscription 'audit': the connection is closed; nothing was changed, and delivery"
    ):
        act(outbox, what)
    assert is_paused(conn, "audit") is False


def test_a_replay_or_drop_whose_answer_was_lost_is_reported_as_done(outbox, conn, monkeypatch):
    failing(monkeypatch, "replay", KeyboardInterrupt(), after=True)
    with pytest.raises(InterruptedCommand, match=r"it is active: the command has succeeded"):
        act(outbox, "replay")
    assert (is_paused(conn, "audit"), gets(conn, "audit")) == (False, list(range(1, 10)))
    failing(monkeypatch, "drop", psycopg.OperationalError("the connection is closed"), after=True, lost=True)
    with pytest.raises(PartboxError, match=r"the connection is closed; it has been dropped$"):
        act(outbox, "drop")
    assert is_paused(conn, "audit") is None


def test_an_interrupted_drop_of_a_paused_subscription_is_reported_as_done(outbox, conn, monkeypatch):
    outbox.subscriptions.pause("audit")
    failing(monkeypatch, "drop", KeyboardInterrupt(), after=True)
    with pytest.raises(InterruptedCommand, match=r"it has been dropped"):
        act(outbox, "drop")


@pytest.mark.parametrize("what", ["replay", "drop"])
def test_a_lost_connection_to_a_subscription_paused_before_leaves_open_whether_the_act_was_done(
    outbox, conn, monkeypatch, what
):
    outbox.subscriptions.pause("audit")
    failing(monkeypatch, what, psycopg.OperationalError("the connection is closed"), lost=True)
    with pytest.raises(PartboxError, match=r"the connection is closed; the command may have succeeded; if not,"):
        act(outbox, what)
    assert is_paused(conn, "audit") is True


def test_the_suggested_resume_command_names_the_schema_and_the_subscription(outbox, conn, monkeypatch, dsn):
    outbox.subscriptions.create("audit log")
    failing(monkeypatch, "replay", psycopg.OperationalError("the server closed the connection"), lost=True)
    failing(monkeypatch, "resume", psycopg.OperationalError("connection refused"))
    with pytest.raises(
        PartboxError, match=r"could not be resumed \(connection refused\): `partbox .* 'audit log'` resumes it"
    ):
        outbox.subscriptions.replay("audit log", from_id=1)
    assert is_paused(conn, "audit log") is True
    monkeypatch.undo()
    subscriptions.resume(conn, SCHEMA, "audit log")
    assert is_paused(conn, "audit log") is False
