"""Settings of a database or of a role that change texts, plans and transactions: delivery goes on as ever."""

from uuid import uuid4

import psycopg
import pytest
from house import House
from psycopg import sql
from psycopg.conninfo import make_conninfo
from server_versions import can_set

from partbox.db.schema.migrate import migrate

pytestmark = pytest.mark.every_version("settings of sessions")

# Those that change what the server writes, and how it reads.
TEXTS = {
    "datestyle": "German, DMY",
    "intervalstyle": "sql_standard",
    "timezone": "Asia/Kathmandu",
    "extra_float_digits": "-15",
    "bytea_output": "escape",
    "lc_messages": "C",
    "lc_monetary": "C",
    "lc_numeric": "C",
    "lc_time": "C",
    "xmlbinary": "hex",
    "xmloption": "document",
    "client_encoding": "LATIN1",
    "quote_all_identifiers": "on",
    "escape_string_warning": "on",
    "standard_conforming_strings": "off",
    "backslash_quote": "off",
    "array_nulls": "off",
    "transform_null_equals": "on",
    "search_path": "nowhere",
}
# Those that change what a transaction may, sees and waits for.
TRANSACTIONS = {
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "idle_in_transaction_session_timeout": "20s",
    "idle_session_timeout": "1s",
    "lock_timeout": "5s",
    "deadlock_timeout": "1s",
    "synchronous_commit": "off",
    "row_security": "off",
    "session_replication_role": "replica",
    "check_function_bodies": "off",
    "client_min_messages": "debug5",
    "log_statement": "all",
    "log_min_messages": "panic",
}
# Those that change how it works.
PLANS = {
    "plan_cache_mode": "force_custom_plan",
    "enable_indexscan": "off",
    "enable_indexonlyscan": "off",
    "enable_bitmapscan": "off",
    "enable_seqscan": "off",
    "enable_nestloop": "off",
    "enable_partition_pruning": "off",
    "jit_above_cost": "0",
    "work_mem": "64kB",
    "debug_parallel_query": "on",
    "constraint_exclusion": "on",
    "plpgsql.variable_conflict": "use_variable",
    "plpgsql.extra_errors": "all",
    "default_table_access_method": "heap",
    "temp_buffers": "800kB",
}
CHARGES = {**TEXTS, **TRANSACTIONS, **PLANS}
TOGETHER = {"texts": TEXTS, "transactions": TRANSACTIONS, "plans": PLANS}
OLD_NAMES = {"debug_parallel_query": "force_parallel_mode"}  # before PostgreSQL 16


def known(conn, name):
    there = conn.execute("select count(*) from pg_settings where lower(name) = %s", [name]).fetchone() != (0,)
    return name if there or "." in name else OLD_NAMES[name]


@pytest.fixture
def role(dsn, conn):
    """A DSN of a role of its own, that may everything."""
    name = f"r_{uuid4().hex[:12]}"
    conn.execute(sql.SQL("create role {} superuser login").format(sql.Identifier(name)))
    yield make_conninfo(dsn, user=name)
    conn.execute("select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", [name])
    conn.execute(sql.SQL("drop owned by {}").format(sql.Identifier(name)))
    conn.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


DATABASES, ROLES = "the database's", "the role's"
ALSO = pytest.mark.soak  # a session begins with either's settings


@pytest.mark.parametrize(
    ("whose", "kind"),
    [
        (DATABASES, "texts"),
        (ROLES, "transactions"),
        (DATABASES, "plans"),
        pytest.param(ROLES, "texts", marks=ALSO),
        pytest.param(DATABASES, "transactions", marks=ALSO),
        pytest.param(ROLES, "plans", marks=ALSO),
    ],
)
def test_settings_of_a_database_or_a_role_change_nothing_about_delivery(kind, whose, dsn, conn, role):
    info = psycopg.conninfo.conninfo_to_dict(role)
    target = ("database", info["dbname"]) if whose == DATABASES else ("role", info["user"])
    for name, value in TOGETHER[kind].items():
        if not can_set(conn, name):
            continue
        conn.execute(
            sql.SQL("alter {} {} set {} = {}").format(
                sql.SQL(target[0]),
                sql.Identifier(target[1]),
                sql.Identifier(*known(conn, name).split(".")) if "." in name else sql.Identifier(known(conn, name)),
                sql.Literal(value) if name != "search_path" else sql.SQL("nowhere"),
            )
        )
    house = House(dsn, source=lambda: role, lease=3, heartbeat=0.3)
    # Those who publish and look are as they like it; what is tested is what works.
    house.conn.execute("set default_transaction_isolation = 'read committed'")
    house.conn.execute("set idle_session_timeout = 0")
    try:
        house.invite("it", lambda event: 1 / 0 if event.attempt == 1 else None)
        house.live()
    finally:
        house.close()
        conn.execute(sql.SQL("alter database {} reset all").format(sql.Identifier(info["dbname"])))
        migrate(dsn)
