"""Single facts of a diagnosis. Ages in seconds, sizes in bytes; None: absent, or not visible to this role."""

from typing import NamedTuple


class ServerFacts(NamedTuple):
    """The server: its clock (unix time), what this session sees of it, and its slots for connections."""

    clock: float
    database: str
    user: str
    sees_all: bool
    settings: dict[str, str]
    connections: int
    most: int


class NodeSessions(NamedTuple):
    """The number of sessions by which nodes look after their processes, and the age of the oldest in seconds."""

    number: int
    age: float | None


class SequenceFacts(NamedTuple):
    """The id sequence. `owned_by` names a table, `defaults` the expressions of record.id and record.xid."""

    last: int | None
    increment: int
    cache: int
    cycle: bool
    owned_by: str | None
    defaults: dict[str, str] | None


class WorkerAccess(NamedTuple):
    """A table, sequence, function or the schema (then without a name) that a worker's role may not use as it must.

    `hidden`: row security hides rows from it. `missing` privileges are in lower case.
    """

    role: str
    kind: str
    name: str | None
    hidden: bool
    missing: list[str]


class DisplacedTable(NamedTuple):
    """A table or a segment that is not where it was, as the database says it, and the remedy."""

    problem: str
    remedy: str


class PathSchema(NamedTuple):
    """A schema in the search_path of the role `user`, and who else may create in it: PUBLIC, or roles. SQL's names."""

    name: str
    owner: str
    user: str
    creators: list[str]


class ForeignTrigger(NamedTuple):
    """A trigger or a rule (`kind`) of others on a table of ours. `drops`: it looks as if it kept rows as they are."""

    table: str
    kind: str
    name: str
    function: str | None
    drops: bool


class OpenSession(NamedTuple):
    """A session with a transaction; ages in seconds, None where they may not be seen.

    `writes`: it has a transaction id; `pins_vacuum`: vacuum must keep what it could see, as of `xids` transactions ago;
    `publishes`: it has written records that nobody sees yet; `blocks_others`: it holds a lock on a table of ours that
    others wait for.
    """

    pid: int
    database: str | None
    user: str | None
    application: str | None
    address: str | None
    state: str | None
    age: float | None
    since: float | None
    writes: bool
    pins_vacuum: bool
    xids: int | None
    query: str | None
    publishes: bool
    blocks_others: bool


class LockHolder(NamedTuple):
    """A session that has locked, for `age` seconds, what only one may have at a time."""

    pid: int
    user: str | None
    application: str | None
    what: str
    age: float | None


class LockWait(NamedTuple):
    """A session that has waited `age` seconds for a lock that the sessions `blockers` (pids) hold; `table` is ours."""

    pid: int
    user: str | None
    application: str | None
    query: str | None
    age: float | None
    blockers: list[int]
    table: str


class PreparedTransaction(NamedTuple):
    """A prepared transaction, `age` seconds and `xids` transactions old."""

    gid: str
    owner: str
    database: str
    age: float
    xids: int


class ReplicationSlot(NamedTuple):
    """A replication slot: `xmin` and `catalog_xmin` transactions ago vacuum stops, `retained` bytes of WAL are kept."""

    name: str
    kind: str
    active: bool
    xmin: int | None
    catalog_xmin: int | None
    retained: int | None


class TableFacts(NamedTuple):
    """A table that is written all the time; `size` in bytes, `vacuumed` seconds ago."""

    name: str
    live: int
    dead: int
    size: int
    autovacuum_off: bool
    vacuumed: float | None


class SegmentFacts(NamedTuple):
    """The log's segments: ids from `end` on, and those that no segment takes, go into the default one, but for those
    from `barred` on, which are kept out of it. `lowers`: the first ids of the others; `refused`: why the server let
    none be changed when somebody last looked."""

    end: int | None
    in_default: bool
    barred: int | None
    lowers: list[int]
    refused: str | None


class HiddenRecords(NamedTuple):
    """The first and the last of the records that got ids which cursors had passed, and how many there are."""

    first: int
    last: int
    records: int


class ArchiveFacts(NamedTuple):
    """The archive that is kept: why it fails, and for how long; the age (s) and the id of the oldest record that is
    not in it."""

    problem: str | None
    failing: float | None
    oldest: float | None
    first: int | None = None


class ParkedCounts(NamedTuple):
    """A partition with so many parked rows that count against its brake; `held` ones are behind others.

    `waiting` ones wait for a turn or a time, or are behind such a one: the brake does not see them.
    """

    subscription: str
    partition: int
    rows: int
    held: int
    waiting: int = 0


class DeferredRows(NamedTuple):
    """Deferred rows of an event type, the oldest since `age` seconds; `reason` of the newest."""

    subscription: str
    event_type: str
    rows: int
    age: float
    reason: str | None


class DeadRows(NamedTuple):
    """Dead rows of an event type and a kind of error; `lately` of them of late. The `newest` died `age` seconds ago,
    the first `longest`, the first of late `first_recent_age`."""

    subscription: str
    event_type: str
    rows: int
    lately: int
    age: float
    longest: float
    first_recent_age: float | None
    newest: int
    error: str | None


class SuspectRecord(NamedTuple):
    """A record that was running when its process died, or runs now for that reason; started `age` seconds ago."""

    subscription: str
    record_id: int
    event_type: str
    attempts: int
    age: float


class RetentionHold(NamedTuple):
    """A subscription that needs records older than the retention, `age` seconds the oldest, in so many partitions.

    In `floors` of them it has read everything, but an open transaction may still write below its cursor.
    """

    subscription: str
    partitions: int
    floors: int
    age: float


class ExpiredRecords(NamedTuple):
    """Partitions with records that a purge should have deleted, `age` seconds the oldest."""

    partitions: int
    age: float | None
