"""Single facts of a diagnosis. Ages are in seconds, sizes in bytes. None means absent, or not visible to this role."""

from typing import NamedTuple


class ServerFacts(NamedTuple):
    """The PostgreSQL server's clock, settings and connection slots, and this session's database and role."""

    clock: float  # Unix time
    database: str
    user: str
    sees_all: bool  # this role sees the sessions of other roles
    settings: dict[str, str]
    connections: int  # used connection slots
    max_connections: int  # all connection slots that ordinary roles may use


class NodeSessions(NamedTuple):
    """The number and greatest age of the sessions in which nodes (groups of processes) supervise their workers."""

    number: int
    age: float | None


class SequenceFacts(NamedTuple):
    """The state and definition of the sequence that numbers records. `owned_by` names a table, `defaults` holds the
    expressions of `record.id` and `record.xid`."""

    last: int | None
    increment: int
    cache: int
    cycle: bool
    owned_by: str | None
    defaults: dict[str, str] | None


class WorkerAccess(NamedTuple):
    """A table, sequence, function or schema (without a name) on which a worker role lacks privileges."""

    role: str
    kind: str
    name: str | None
    hidden: bool  # row security hides rows from the role
    missing: list[str]  # privileges, in lower case


class DisplacedTable(NamedTuple):
    """An outbox table or log segment that was moved, replaced or removed, with the remedy."""

    problem: str
    remedy: str


class PathSchema(NamedTuple):
    """A schema in the `search_path` of the role `user`, and other roles (or PUBLIC) that may create objects in it."""

    name: str
    owner: str
    user: str
    creators: list[str]


class ForeignTrigger(NamedTuple):
    """A trigger or rule that somebody else put on a table of partbox. `may_drop_rows` is True if it may drop rows."""

    table: str
    kind: str
    name: str
    function: str | None
    may_drop_rows: bool


class OpenSession(NamedTuple):
    """A session with an open transaction, and its effects on vacuum, locks and publishing."""

    pid: int
    database: str | None
    user: str | None
    application: str | None
    address: str | None
    state: str | None
    age: float | None
    since: float | None  # how long it has been in its state
    writes: bool  # it has a transaction id
    pins_vacuum: bool  # vacuum must keep the rows that it could see, as of `xids` transactions ago
    xids: int | None
    query: str | None
    publishes: bool  # it has written records that are not visible yet
    blocks_others: bool  # it holds a lock on a table of partbox that others wait for


class LockHolder(NamedTuple):
    """A session that has held an exclusive lock for `age` seconds, such as the archiver's lock."""

    pid: int
    user: str | None
    application: str | None
    what: str
    age: float | None


class LockWait(NamedTuple):
    """A session that has waited `age` seconds for a lock on a table of partbox, and the pids of the lock's holders."""

    pid: int
    user: str | None
    application: str | None
    query: str | None
    age: float | None
    blockers: list[int]
    table: str


class PreparedTransaction(NamedTuple):
    """A prepared transaction (of a two-phase commit) that has not ended, `age` seconds and `xids` transactions old."""

    gid: str
    owner: str
    database: str
    age: float
    xids: int


class ReplicationSlot(NamedTuple):
    """A replication slot, for which the server keeps `retained` bytes of WAL. Vacuum stops at rows deleted `xmin`
    transactions ago, and in the catalogs `catalog_xmin` transactions ago."""

    name: str
    kind: str
    active: bool
    xmin: int | None
    catalog_xmin: int | None
    retained: int | None


class TableFacts(NamedTuple):
    """The size, row counts and vacuum state of a table that partbox writes all the time. `vacuumed` is the seconds
    since the last vacuum."""

    name: str
    live: int
    dead: int
    size: int
    autovacuum_off: bool
    vacuumed: float | None


class SegmentFacts(NamedTuple):
    """The state of the log's segments (its parts by ranges of record ids), and why their last change failed."""

    end: int | None  # records with ids from here on go into the default segment, as do ids that no segment takes
    in_default: bool
    barred: int | None  # from this id on they are kept out of the default segment
    lowers: list[int]  # the first ids of the other segments
    refused: str | None  # why the server refused a change at the last maintenance


class HiddenRecords(NamedTuple):
    """Records that no subscription will read, because their ids were drawn below ids that cursors had passed."""

    first: int
    last: int
    records: int


class ArchiveFacts(NamedTuple):
    """Why and how long archiving has failed, and the age and id of the oldest record that is not archived."""

    problem: str | None
    failing: float | None
    oldest: float | None
    first: int | None = None


class ParkedCounts(NamedTuple):
    """The numbers of parked rows (events set aside and not finished) of a subscription in one partition."""

    subscription: str
    partition: int
    rows: int  # count against the brake
    held: int  # rows behind others
    waiting: int = 0  # rows that wait for a permit or a time, or are behind such a row. The brake ignores them.


class DeferredRows(NamedTuple):
    """The deferred events of one type in a subscription: number, greatest age and newest reason."""

    subscription: str
    event_type: str
    rows: int
    age: float
    reason: str | None


class DeadRows(NamedTuple):
    """The dead events (given up after failures) of a subscription with one type and one kind of error."""

    subscription: str
    event_type: str
    rows: int
    lately: int  # how many of them died recently
    age: float  # since the newest death
    first_age: float  # since the first death
    first_recent_age: float | None  # since the first recent death
    newest: int
    error: str | None


class SuspectRecord(NamedTuple):
    """An event that may have killed its worker process. It ran when the process died, or runs now for that reason, and
    started `age` seconds ago."""

    subscription: str
    record_id: int
    event_type: str
    attempts: int
    age: float


class RetentionHold(NamedTuple):
    """A subscription that still needs records older than the retention time, in a number of partitions. In `floors` of
    them it has read everything, but an open transaction may still write below its cursor."""

    subscription: str
    partitions: int
    floors: int
    age: float


class ExpiredRecords(NamedTuple):
    """The number of partitions with records that a purge should have deleted by now, and the greatest age."""

    partitions: int
    age: float | None
