"""Commands on parked rows beside saves, all at once, on the same partitions: no deadlock, nothing half done."""

from random import Random

from hammer import Role, hammer
from ownership import Conn
from run_size import seconds

from partbox.db.operator import blocked, dead

PARTITIONS = 40
ROWS = 10
HERE = ("partbox", "default")

PLANT = """
insert into partbox.parked (subscription, record_id, partition, aggregate_type, aggregate_id, event_type, state, blocks)
select 'default', i, i %% %(partitions)s, 'Order', i %% %(partitions)s, 'Placed', 'dead', false
  from generate_series(1, %(partitions)s * %(rows)s) as i
"""
SAVE = """
with mine as materialized (
    select p.partition from partbox.partition p where p.subscription = 'default' and p.partition = any (%(partitions)s)
     order by p.partition for no key update
)
update partbox.parked k set state = 'retrying', blocks = true, due_at = clock_timestamp() + interval '1 h'
  from mine where k.partition = mine.partition and k.record_id = any (%(ids)s)
"""


def ids(random: Random) -> list[int]:
    return random.sample(range(1, PARTITIONS * ROWS + 1), 60)


def saved(conn: Conn, random: Random) -> object:
    """As a save: some partitions' rows, then parked ones."""
    chosen = random.sample(range(PARTITIONS), 30)
    return conn.execute(SAVE, {"partitions": chosen, "ids": ids(random)}).rowcount


def replayed(conn: Conn, random: Random) -> object:
    return dead.replay(conn, *HERE, ids(random))


def discarded(conn: Conn, random: Random) -> object:
    """Few of them: what is discarded stays so, and the others are to have something to do."""
    return dead.discard(conn, *HERE, ids(random)[:3])


def retried(conn: Conn, random: Random) -> object:
    schema, subscription = HERE
    key = blocked.Key(subscription, "Order", str(random.randrange(PARTITIONS)))
    head = blocked.retry_now(conn, schema, key)
    return head and head.changed


def skipped(conn: Conn, random: Random) -> object:
    schema, subscription = HERE
    key = blocked.Key(subscription, "Order", str(random.randrange(PARTITIONS)))
    return blocked.skip(conn, schema, key, reason="why not", error_limit=100)


ROLES: list[Role] = [saved, saved, replayed, replayed, discarded, retried, skipped, skipped]


def test_commands_and_saves_at_once_never_deadlock(dsn, conn):
    conn.execute(PLANT, {"partitions": PARTITIONS, "rows": ROWS})
    hammer(dsn, conn, ROLES, seconds=seconds(4), least=10)
    wrong = "select count(*) from partbox.parked where state = 'dead' and blocks or state = 'ready' and not blocks"
    assert conn.execute(wrong).fetchone() == (0,)
