"""Checks for foreign transactions and locks: their effects, their sessions, and how to end them."""

from collections.abc import Iterator

from partbox.db.inspect.facts import LockWait, OpenSession
from partbox.doctor.case import Case, Severity, Symptom, check
from partbox.doctor.phrases import (
    RELOAD_COMMAND,
    end_session_text,
    format_session,
    format_statement,
    quote_literal,
    quote_name,
)
from partbox.text.wording import format_age, format_count, format_names, shorten_text

UNSEEN_TEXT = "the transaction has written events that nobody can see or deliver before it commits"
HELD_BACK_TEXT = "every poll searches, and no purge deletes, the records published since the transaction began"
DEAD_ROWS_TEXT = "since then, vacuum keeps every dead row of the cursors, so saving them gets slower"


# The work that is not done while somebody holds the lock, by the name of the lock.
STOPPED_BY_LOCK = {
    "subscription": "partitions are not reassigned: new processes get none, and nobody takes those of dead ones",
    "meta": "no purge runs, and no segment is made",
    "archiving": "nothing is archived",
    "imports": "the import of one table cannot run",
    "the first migration": "no schema is made",
}
# Sessions of partbox that hold their lock as long as they work.
LONG_RUNNING = ("partbox archive", "partbox import", "partbox rebase")


@check("open-publisher", Severity.PROBLEM)
def open_publisher(case: Case) -> Iterator[Symptom]:
    """Report that a transaction that has published events stays open. The events are invisible until it commits."""
    for each in _list_long_sessions(case):
        if each.publishes:
            yield _build_symptom(case, each, "a transaction with uncommitted events stays open")


@check("idle-transaction", Severity.PROBLEM)
def idle_transaction(case: Case) -> Iterator[Symptom]:
    """Report that a session is idle in an open transaction, and holds back vacuum (xmin), purge, or both. The cause is
    a forgotten `commit`, or a client that hangs."""
    for each in _list_long_sessions(case):
        if not each.publishes and _is_idle(each):
            yield _build_symptom(case, each, "a session is idle in a transaction")


@check("long-transaction", Severity.WARNING)
def long_transaction(case: Case) -> Iterator[Symptom]:
    """Report that a statement or a busy transaction runs for long, and holds back vacuum (xmin), purge, or both.
    Examples are a report, a dump or a migration."""
    for each in _list_long_sessions(case):
        if not each.publishes and not _is_idle(each):
            yield _build_symptom(case, each, "a transaction runs for long")


@check("prepared-transaction", Severity.PROBLEM)
def prepared_transaction(case: Case) -> Iterator[Symptom]:
    """Report that a prepared transaction (two-phase commit) was neither committed nor rolled back. A prepared
    transaction outlives sessions and restarts, and holds back vacuum and purge."""
    for each in case.evidence.prepared:
        if each.age >= case.limits.transaction:
            yield Symptom(
                f"a transaction was prepared {format_age(each.age)} ago and is still open",
                (
                    f"gid {shorten_text(each.gid)}, owner {each.owner}, database {each.database}, "
                    f"{each.xids:,} transactions ago",
                    HELD_BACK_TEXT,
                    DEAD_ROWS_TEXT,
                ),
                (
                    f"ask its transaction manager, then in database {each.database}: "
                    f"`commit prepared {quote_literal(each.gid)}` or `rollback prepared {quote_literal(each.gid)}`",
                ),
                lasts=each.age,
            )


@check("replication-slot", Severity.WARNING)
def replication_slot(case: Case) -> Iterator[Symptom]:
    """Report that an unused replication slot keeps WAL until the disk is full, or holds back vacuum (xmin). A slot in
    use holds back vacuum if its standby runs a long query."""
    for each in case.evidence.slots:
        pins_vacuum = each.xmin is not None and each.xmin > 1_000_000
        if pins_vacuum or (not each.active and (each.retained is not None or each.xmin is not None)):
            held = f"; has held back vacuum for {each.xmin:,} transactions" if each.xmin is not None else ""
            yield Symptom(
                f"replication slot {each.name} is {'behind' if each.active else 'not in use'}",
                (f"{each.kind}, keeps {(each.retained or 0) / (1 << 20):,.0f} MiB of WAL{held}",),
                (
                    f"start its consumer, or drop the slot: `select "
                    f"pg_drop_replication_slot({quote_literal(each.name)})`",
                    f"a limit for the future: `alter system set max_slot_wal_keep_size = '10GB'`, then "
                    f"{RELOAD_COMMAND}",
                ),
            )


@check("locks", Severity.PROBLEM)
def locks(case: Case) -> Iterator[Symptom]:
    """Report that sessions wait for locks on tables of the outbox, or an idle session has locked a whole table.
    Publishers and workers stand still."""
    long = case.limits.lock_wait
    waits = [each for each in case.evidence.waits if each.blockers and each.age is not None and each.age >= long]
    locked_tables = [each for each in case.evidence.sessions if each.blocks_others and (each.age or 0) >= long]
    if not waits and not locked_tables:
        return
    blockers = {pid for each in waits for pid in each.blockers if pid} | {each.pid for each in locked_tables}
    first = sorted(blockers - {each.pid for each in waits}) or sorted(blockers) or [0]
    applications = {each.pid: each.application for each in case.evidence.sessions}
    yield Symptom(
        f"{format_count(len(waits), 'session')} waiting for locks on tables of the outbox"
        if waits
        else "a table of the outbox is locked",
        (
            *(_wait_text(each) for each in waits[:5]),
            *(
                f"a whole table has been locked for {format_age(each.age)} by {format_session(each)}"
                for each in locked_tables[:5]
            ),
        ),
        tuple(
            f"let it end its transaction, or {end_session_text(pid, applications.get(pid))}"
            if pid
            else "end the prepared transaction: `select gid from pg_prepared_xacts`, then `rollback prepared 'GID'`"
            for pid in first[:3]
        ),
        lasts=max(seconds or 0.0 for seconds in [*(each.age for each in waits), *(each.age for each in locked_tables)]),
    )


@check("kept-lock", Severity.PROBLEM, Severity.WARNING)
def kept_lock(case: Case) -> Iterator[Symptom]:
    """Report that a session holds a lock on which work of partbox depends. The lock is a row lock on `subscription` or
    `meta`, or the advisory lock of imports or of a first migration, which every role may take. No session waits for the
    lock, but the work that needs it is not done."""
    for each in case.evidence.lock_holders:
        if each.age is None or each.age < case.limits.lock_wait or each.application in LONG_RUNNING:
            continue
        named = ("user", each.user), ("application", each.application)
        who = ", ".join(f"{name} {shorten_text(said, 60)}" for name, said in named if said)
        yield Symptom(
            f"pid {each.pid} has held the lock of {each.what} for {format_age(each.age)}",
            (f"pid {each.pid} ({who})", f"{STOPPED_BY_LOCK[each.what]} meanwhile"),
            (f"let it end its transaction, or {end_session_text(each.pid, each.application)}",),
            severity=Severity.PROBLEM if each.what == "subscription" else Severity.WARNING,
            lasts=each.age,
        )


def _list_long_sessions(case: Case) -> Iterator[OpenSession]:
    # A transaction id holds back purge from any database. A snapshot holds back vacuum in its own database only.
    here = case.evidence.server.database if case.evidence.server else None
    for each in case.evidence.sessions:
        holds = each.writes or (each.pins_vacuum and each.database == here)
        if holds and each.age is not None and each.age >= case.limits.transaction:
            yield each


def _is_idle(each: OpenSession) -> bool:
    return (each.state or "").startswith("idle in transaction")


def _build_symptom(case: Case, each: OpenSession, what: str) -> Symptom:
    here = case.evidence.server.database if case.evidence.server else None
    evidence = [
        format_session(each),
        f"{each.state} for {format_age(each.since)}, its transaction open for {format_age(each.age)}"
        + (f", {each.xids:,} transactions ago" if each.xids is not None else "")
        + (f", in database {each.database}" if each.database != here else ""),
    ]
    evidence += [UNSEEN_TEXT] if each.publishes else []
    evidence += [HELD_BACK_TEXT] if each.writes else []
    evidence += [DEAD_ROWS_TEXT] if (each.pins_vacuum or each.writes) and each.database == here else []
    remedy = [f"let the application commit, or {end_session_text(each.pid, each.application)}"]
    if _is_idle(each) and each.user:
        limit = f"alter role {quote_name(each.user)} set idle_in_transaction_session_timeout = '1min'"
        remedy.append(f"for the future: `{limit}`")
    return Symptom(f"{what}: pid {each.pid}, {format_age(each.age)}", tuple(evidence), tuple(remedy), lasts=each.age)


def _wait_text(each: LockWait) -> str:
    who = f"pid {each.pid}" + (f" ({each.application})" if each.application else "")
    blockers = (
        format_names([f"pid {pid}" if pid else "a prepared transaction" for pid in each.blockers]) or "nobody now"
    )
    said = format_statement(each.query)
    query = f": {said}" if said else ""
    return f"{who} has waited {format_age(each.age)} for {each.table}, blocked by {blockers}{query}"
