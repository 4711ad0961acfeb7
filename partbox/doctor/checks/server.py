"""Checks of the server: settings, clock, connections, notification queue, and evidence that this role may not read."""

from collections.abc import Iterator

from partbox.db.inspect.evidence import WATCHED_USAGE
from partbox.doctor.case import Case, Severity, Symptom, check
from partbox.doctor.limits import MAX_SKEW, ROW_BYTES, SLOTS_USED, SMALL_TABLE, UNFROZEN_LIMIT
from partbox.doctor.phrases import RELOAD_COMMAND, end_session_text, format_session, quote_literal, quote_name
from partbox.protocol.bell import find_reason_off
from partbox.text.wording import format_age, format_count, format_names, shorten_text

NEARLY_FULL = 0.9
MAX_NAMED = 3  # sessions that are named if the server does not name the holder


@check("connections", Severity.WARNING)
def connections(case: Case) -> Iterator[Symptom]:
    """Report that nearly all connection slots of the server are in use. Workers that lose a connection may not get a
    new one."""
    server = case.evidence.server
    if server and server.connections >= SLOTS_USED * server.max_connections:
        yield Symptom(
            f"{server.connections:,} of {server.max_connections:,} connections are in use",
            (),
            (
                "see who has them: `select usename, application_name, count(*) from pg_stat_activity group by 1, 2`",
                "put a pooler in front of the applications (PARTBOX_POOLER=1 for workers behind one), or raise "
                "`max_connections`",
            ),
        )


@check("clock-skew", Severity.WARNING)
def clock_skew(case: Case) -> Iterator[Symptom]:
    """Report that the clock of the host that doctor runs on differs from the database's. Leases and due times follow
    the database's clock alone, but `occurred_at` and log lines of that host are off."""
    if abs(case.clock_skew) >= MAX_SKEW:
        yield Symptom(
            f"this host's clock is {format_age(abs(case.clock_skew))} "
            f"{'ahead of' if case.clock_skew > 0 else 'behind'} the database's",
            (),
            ("let both follow a time server: `timedatectl set-ntp true`",),
        )


@check("durability", Severity.NOTE)
def durability(case: Case) -> Iterator[Symptom]:
    """Report that settings of the server allow a crash to lose committed transactions. Events are lost with them
    (`synchronous_commit`), or the whole database (`fsync`, `full_page_writes`)."""
    given = case.evidence.server.settings if case.evidence.server else {}
    off = [name for name in ("fsync", "full_page_writes", "synchronous_commit") if given.get(name) == "off"]
    if off:
        yield Symptom(
            f"settings off, as seen by this session: {format_names(off)}",
            ("a crash of the server may lose committed events, or more data",),
            tuple(f"`alter system set {name} = on`, then {RELOAD_COMMAND}" for name in off),
        )


@check("pooled-role", Severity.WARNING)
def pooled_role(case: Case) -> Iterator[Symptom]:
    """Report that the role that doctor connects as lacks settings. Behind a pooler (`pooler = true`) workers send no
    session options, so their role needs `jit`, `row_security`, `statement_timeout` and
    `idle_in_transaction_session_timeout`."""
    server = case.evidence.server
    if not server or not case.limits.pooler:
        return
    given, lease = server.settings, int(case.limits.lease * 1000)
    wanted = {
        "jit": "off",
        "row_security": "off",
        # Any value is accepted but 0, which is no timeout.
        "statement_timeout": f"'{lease}ms'",
        "idle_in_transaction_session_timeout": f"'{lease // 2}ms'",
        "default_transaction_isolation": "'read committed'",
    }
    missing = [
        name
        for name, value in wanted.items()
        if (given.get(name) == "0" if name.endswith("_timeout") else given.get(name) != value.strip("'"))
    ]
    if missing:
        where = f"alter role {quote_name(server.user)} in database {quote_name(server.database)}"
        yield Symptom(
            f"role {server.user} lacks settings that workers behind a pooler need",
            tuple(f"{name} = {given.get(name)}" for name in missing),
            tuple(f"`{where} set {name} = {wanted[name]}`" for name in missing),
        )


@check("bell", Severity.NOTE)
def bell(case: Case) -> Iterator[Symptom]:
    """Report that publishers do not wake idle workers, which look for new events every `poll_idle` instead. The server
    allows prepared transactions, or workers are behind a pooler without `listen_dsn`. Not reported if `bell` is off."""
    server, limits = case.evidence.server, case.limits
    if not server or limits.bell == "off":
        return
    reason = find_reason_off(
        limits.bell,
        pooled=limits.pooler and not limits.has_listen_dsn,
        prepared=int(server.settings.get("max_prepared_transactions", 0)),
    )
    if reason is not None:
        yield Symptom(
            "wake-up notifications are off: an event may wait for `poll_idle` before an idle worker sees it",
            (reason,),
            ("or set `bell = off`, and this note is not shown again",),
        )


@check("autovacuum", Severity.WARNING)
def autovacuum(case: Case) -> Iterator[Symptom]:
    """Report that autovacuum is off for the server, or for a table with frequent updates. The table grows, and saving
    cursors slows down."""
    given = case.evidence.server.settings if case.evidence.server else {}
    off = [name for name in ("autovacuum", "track_counts") if given.get(name) == "off"]
    tables = [each.name for each in case.evidence.tables if each.autovacuum_off]
    if off or tables:
        yield Symptom(
            "autovacuum is off" + (f" for {format_names(tables)}" if tables and not off else ""),
            tuple(f"{name} = off" for name in off),
            (
                *(f"`alter system set {name} = on`, then {RELOAD_COMMAND}" for name in off),
                *(f"`alter table {quote_name(case.schema)}.{name} reset (autovacuum_enabled)`" for name in tables),
            ),
        )


@check("wraparound", Severity.WARNING)
def wraparound(case: Case) -> Iterator[Symptom]:
    """Report that vacuum does not freeze old rows of the database, so that the server runs out of transaction ids and
    refuses to write. An old transaction, a prepared one or a replication slot holds vacuum back and is named, or vacuum
    does not run."""
    server = case.evidence.server
    if not server:
        return
    usual = int(server.settings.get("autovacuum_freeze_max_age", 200_000_000))
    # Autovacuum freezes at its limit, whatever it is set to, so twice the limit means that it cannot.
    if server.frozen_age <= min(2 * usual, UNFROZEN_LIMIT):
        return
    holders = sorted((each for each in _list_xid_holders(case) if each[0] > usual), reverse=True)[:MAX_NAMED]
    oldest = "select oid::regclass, age(relfrozenxid) from pg_class where relfrozenxid <> '0' order by 2 desc limit 9"
    yield Symptom(
        f"{server.frozen_age:,} transaction ids are in use in database {server.database}, and at about 2,100,000,000 "
        "the server stops writing",
        (
            f"autovacuum should have frozen rows at {usual:,} (`autovacuum_freeze_max_age`)",
            *(f"{name} has held vacuum back for {xids:,} transactions" for xids, name, _ in holders),
        ),
        (
            *(remedy for _, _, remedy in holders),
            f"{'then ' if holders else ''}see the oldest tables: `{oldest}`",
            "freeze each of them: `vacuum (freeze) TABLE`",
        ),
    )


def _list_xid_holders(case: Case) -> Iterator[tuple[int, str, str]]:
    # Return the age in transactions, a description and the remedy of each session, prepared transaction and
    # replication slot that may keep vacuum from freezing.
    evidence = case.evidence
    for session in evidence.sessions:
        yield session.xids or 0, format_session(session), end_session_text(session.pid, session.application)
    for prepared in evidence.prepared:
        gid = quote_literal(prepared.gid)
        yield (
            prepared.xids,
            f"prepared transaction {shorten_text(prepared.gid)}",
            f"in database {prepared.database}: `commit prepared {gid}` or `rollback prepared {gid}`",
        )
    for slot in evidence.slots:
        yield (
            max(slot.xmin or 0, slot.catalog_xmin or 0),
            f"replication slot {slot.name}",
            f"start its consumer, or drop the slot: `select pg_drop_replication_slot({quote_literal(slot.name)})`",
        )


@check("bloat", Severity.WARNING)
def bloat(case: Case) -> Iterator[Symptom]:
    """Report that a table with frequent updates is full of dead rows, which each save has to read. Something holds back
    vacuum, or vacuum does not run."""
    for each in case.evidence.tables:
        rows = 256 * len(case.clusters) if each.name == "partition" else each.live + 1
        if each.size > max(SMALL_TABLE, rows * ROW_BYTES):
            table = f"{quote_name(case.schema)}.{each.name}"
            yield Symptom(
                f"table {each.name} is bloated: {each.size / (1 << 20):,.0f} MiB for {format_count(rows, 'row')}",
                (
                    f"{each.dead:,} dead rows by the statistics",
                    "never vacuumed" if each.vacuumed is None else f"last vacuumed {format_age(each.vacuumed)} ago",
                ),
                (
                    "first remove the cause that holds vacuum back: other findings name it",
                    f"then, with the workers stopped for a moment: `vacuum (full, analyze) {table}`",
                ),
            )


@check("not-seen", Severity.NOTE, Severity.PROBLEM)
def not_seen(case: Case) -> Iterator[Symptom]:
    """Report that this role may not read everything, or a table is locked, so some checks had nothing to judge. The
    finding is a problem if the tables of the outbox could not be read, because then delivery was not checked."""
    evidence = case.evidence
    if evidence.server and not evidence.server.sees_all:
        role = evidence.server.user
        yield Symptom(
            f"role {role} does not see what sessions of other roles do, or since when",
            ("not checked: idle and long transactions, lock waits",),
            (f"run as a role with pg_read_all_stats, or `grant pg_read_all_stats to {quote_name(role)}`",),
        )
    if evidence.unread:
        forbidden = any(each.is_forbidden for each in evidence.unread)
        grant = (
            f"grant usage on schema {quote_name(case.schema)}, select on all tables in it and on its "
            f"sequence to this role"
        )
        yield Symptom(
            f"{format_count(len(evidence.unread), 'part')} of the evidence could not be read",
            tuple(f"{each.part}: {each.reason}" for each in evidence.unread),
            (grant if forbidden else "end the sessions that hold the locks (see `locks`), then run doctor again",),
            severity=Severity.NOTE if evidence.overview else Severity.PROBLEM,
        )


@check("notification-queue", Severity.WARNING, Severity.PROBLEM)
def notification_queue(case: Case) -> Iterator[Symptom]:
    """Report that the server's notification queue fills up because a listening session does not read its notifications:
    before PostgreSQL 19 those of any channel, from 19 on those of its own. Idle workers are not woken, and processes
    are not notified of plans and commands. The finding is a problem when the queue is nearly full: then every
    transaction that notifies, of any program, fails at COMMIT."""
    queue = case.evidence.queue
    if queue is None or queue.usage < WATCHED_USAGE:
        return
    open_ = case.evidence.sessions
    named = [each for each in open_ if each.pid == queue.holder] if queue.holder else [*open_[:MAX_NAMED]]
    unseen = queue.holder if not named else None
    keeps = (
        "keeps the queue from being emptied"
        if queue.holder is not None
        else "may keep the queue from being emptied, if it listens"
    )
    yield Symptom(
        f"the server's notification queue is {queue.usage:.0%} full",
        (
            *((f"pid {unseen} keeps the queue from being emptied",) if unseen else ()),
            *(f"{format_session(each)} {keeps}, its transaction open for {format_age(each.age)}" for each in named),
            "no wake-up notifications meanwhile: an idle worker sees a new event within `poll_idle`, "
            "a plan or a command at its next tick",
        ),
        tuple(
            f"let it end its transaction, or {end_session_text(pid, application)}"
            for pid, application in [(unseen, None), *((each.pid, each.application) for each in named)]
            if pid
        ),
        severity=Severity.PROBLEM if queue.usage >= NEARLY_FULL else Severity.WARNING,
    )
