"""A statement of an earlier session that commits while the next one begins."""

from typing import Any

import psycopg
import pytest
from owner import DEFAULT, PARTITION, SCHEMA, Owner, write
from server_database import SHIPPED

from partbox.worker.engine.saves import gather_save

Conn = psycopg.Connection[Any]


def test_a_new_session_sees_a_save_that_commits_while_it_begins(dsn: str, conn: Conn, owner: Owner) -> None:
    """The new epoch waits for the rows that the save has locked, and reads what it has saved."""
    write(conn)
    owner.done(*owner.read_all(3))
    with owner.engine.lock:
        late = gather_save(owner.partition(), 0.0).build_cursor_save()
    epochs = {PARTITION: owner.partition().epoch}
    with psycopg.connect(dsn, autocommit=True) as slow, slow.transaction():
        mine, _ = SHIPPED["save"](slow, SCHEMA, DEFAULT, owner.me, [late])
        assert mine == {PARTITION}
        owner.conn.execute("set lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            owner.database.take_up(owner.me, epochs)
    owner.conn.execute("reset lock_timeout")
    owner.reconnect()
    assert owner.partition().cursor.last_id == late.last_id
    assert owner.read_all(3) == []
