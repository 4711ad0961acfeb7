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
    frozen_age: int = 0  # transaction ids assigned since the oldest one that is not frozen in this database


class NodeSessions(NamedTuple):
    """The number of sessions that supervise worker processes, and the age of the oldest session.

    - The sessions belong to nodes (groups of processes), which supervise their workers."""

    number: int
    age: float | None


class SequenceFacts(NamedTuple):
    """The state and definition of the sequence that numbers records.

    - `owned_by`: the name of a table
    - `defaults`: the expressions of `record.id` and `record.xid`"""

    last: int | None
    increment: int
    cache: int
    cycle: bool
    owned_by: str | None
    defaults: dict[str, str] | None


class WorkerAccess(NamedTuple):
    """A table, sequence, function or schema on which a worker role lacks privileges.

    - `name`: None for a schema"""

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
    """A schema in a role's `search_path`, and the other roles that may create objects in the schema.

    - `user`: the role whose `search_path` has the schema
    - `creators`: the other roles, or PUBLIC"""

    name: str
    owner: str
    user: str
    creators: list[str]


class ForeignTrigger(NamedTuple):
    """A trigger or rule that somebody else put on a table of partbox."""

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
    """A session that waits for a lock on a table of partbox, and the sessions that hold the lock.

    - `age`: the seconds that the session has waited
    - `blockers`: the pids of the sessions that hold the lock"""

    pid: int
    user: str | None
    application: str | None
    query: str | None
    age: float | None
    blockers: list[int]
    table: str


class PreparedTransaction(NamedTuple):
    """A prepared transaction (of a two-phase commit) that has not ended, and its age.

    - `age`: in seconds
    - `xids`: its age in transactions"""

    gid: str
    owner: str
    database: str
    age: float
    xids: int


class ReplicationSlot(NamedTuple):
    """A replication slot, and the WAL and deleted rows that the server must keep for the slot.

    - `retained`: the bytes of WAL that the server keeps
    - `xmin`: vacuum stops at rows deleted this number of transactions ago
    - `catalog_xmin`: the same for rows of the catalogs"""

    name: str
    kind: str
    active: bool
    xmin: int | None
    catalog_xmin: int | None
    retained: int | None


class TableFacts(NamedTuple):
    """The size, row counts and vacuum state of a table that partbox writes all the time.

    - `vacuumed`: the seconds since the last vacuum"""

    name: str
    live: int
    dead: int
    size: int
    autovacuum_off: bool
    vacuumed: float | None


class SegmentFacts(NamedTuple):
    """The ranges of record ids into which the log is divided (segments), and the error of their last change."""

    end: int | None  # records with ids from here on go into the default segment, as do ids that no segment takes
    in_default: bool
    barred: int | None  # from this id on they are kept out of the default segment
    lowers: list[int]  # the first ids of the other segments
    refused: str | None  # why the server refused a change at the last maintenance


class HiddenRecords(NamedTuple):
    """Records that no subscription will read, because the subscriptions had already read past their ids.

    - The ids were drawn below ids that cursors had passed."""

    first: int
    last: int
    records: int


class ArchiveFacts(NamedTuple):
    """The reason and duration of an archiving failure, and the oldest record that is not archived.

    - `failing`: for how long archiving has failed
    - `oldest`, `first`: the age and the id of the record"""

    problem: str | None
    failing: float | None
    oldest: float | None
    first: int | None = None


class ParkedCounts(NamedTuple):
    """The numbers of failed or waiting events of a subscription in one partition.

    - Such an event is a parked row: it was set aside and is not finished."""

    subscription: str
    partition: int
    rows: int  # count against the brake
    held: int  # rows behind others
    waiting: int = 0  # rows that wait for a permit or a time, or are behind such a row. The brake ignores them.


class DeferredRows(NamedTuple):
    """The number of delayed (deferred) events of one type in a subscription, the greatest age, and a reason.

    - `reason`: the newest
    - `handler`: a handler of them whose circuit is open, if any"""

    subscription: str
    event_type: str
    rows: int
    age: float
    reason: str | None
    handler: str | None = None


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
    traceback: str | None = None  # only of the most frequent kind of a subscription


class SuspectRecord(NamedTuple):
    """An event that may have killed its worker process.

    - The event ran when the process died, or runs now for that reason.
    - `age`: the seconds since its start"""

    subscription: str
    record_id: int
    event_type: str
    attempts: int
    age: float


class RetentionHold(NamedTuple):
    """A subscription that still needs records older than the retention time.

    - `partitions`: the number of partitions with such records
    - `floors`: the number of these partitions in which the subscription has read everything, but an open
      transaction may still write below its cursor"""

    subscription: str
    partitions: int
    floors: int
    age: float


class ExpiredRecords(NamedTuple):
    """The number of partitions with records that should be deleted by now, and the age of the oldest such record.

    - A purge deletes such records."""

    partitions: int
    age: float | None
