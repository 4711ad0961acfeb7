"""Names that act on a terminal, or pass for lines of their own, in every command that shows some."""

import json
import unicodedata
from typing import Any

import psycopg
import pytest

NAME = "<script>x</script>\x1b[31m\u202eevil\u2066\x07\r\nforged row\u200b"
LONG = NAME + "W" * 3_000
RUNNING = [
    {
        "handler": LONG,
        "event_type": NAME,
        "aggregate_type": NAME,
        "aggregate_id": LONG,
        "record_id": 1,
        "partition": 1,
        "timeout": 1,
        "since": 1,
    }
]
SINKS = [{"sink": LONG, "sent": 1, "in_flight": 1, "retries": 1, "error": LONG, "failing": 30.0}]
LIMITS = [
    {
        "handler": LONG,
        "rate": 1.0,
        "at_once": 1,
        "by": LONG,
        "waiting": 1,
        "waited": 30.0,
        "values": [{"value": LONG, "waiting": 1, "waited": 30.0}],
    }
]
COMMANDS = (
    ("status",),
    ("status", "--json"),
    ("status", "--subscription", NAME),
    ("status", "--subscription", f"{NAME} too"),
    ("subscription", "list"),
    ("subscription", "list", "--json"),
    ("subscription", "pause", NAME),
    ("subscription", "resume", NAME),
    ("subscription", "create", f"{NAME} too"),
    ("dead", "list"),
    ("dead", "list", "--group"),
    ("dead", "list", "--json"),
    ("dead", "show", "1"),
    ("dead", "count", "--type", NAME),
    ("dead", "replay", "--type", f"{NAME} too", "--all", "--yes"),
    ("find",),
    ("find", "--json"),
    ("find", "--record", "1"),
    ("find", "--record", "1", "--payload"),
    ("find", "--ended", "skipped"),
    ("find", "--record", "1", "--json"),
    ("find", NAME),
    ("find", "--ended", NAME),
    ("blocked", "list"),
    ("blocked", "list", "--group"),
    ("blocked", "list", "--json"),
    ("blocked", "retry", NAME, "none"),
    ("actions",),
    ("actions", "--json"),
    ("actions", "--action", NAME),
    ("actions", "--subscription", f"{NAME} too"),
    ("limit", "list"),
    ("limit", "list", "--json"),
    ("limit", "set", NAME, "--rate", "1/s"),
    ("limit", "reset", f"{NAME} too"),
    ("doctor",),
    ("doctor", "--json"),
    ("config", "--node", NAME),
    ("worker", "json:dumps", "--node", NAME),
)


@pytest.fixture
def infested(conn: psycopg.Connection[Any]) -> None:
    conn.execute(
        "insert into partbox.record (partition, event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload,"
        " headers)"
        " select 1, gen_random_uuid(), %(n)s, %(n)s, %(n)s || n, %(n)s, '1', %(h)s from generate_series(1, 2) n",
        {"n": NAME, "h": json.dumps({NAME: LONG, "traceparent": f"00-{NAME}-1-1", "partbox-idempotency-key": NAME})},
    )
    conn.execute(
        "insert into partbox.attempt (subscription, record_id, attempt, outcome, instance, error)"
        " select 'default', 1, 1, outcome, %(n)s, %(n)s from unnest(array['failed', 'skipped']) as outcome",
        {"n": LONG},
    )
    conn.execute(
        "insert into partbox.action (who, action, subscription, target, count)"
        " values (%s, 'blocked skip', 'default', '{\"record_ids\": [1]}', 1)",
        [NAME],
    )
    conn.execute(
        "insert into partbox.instance (subscription, node, hostname, pid, version, lease, running, sinks, limits)"
        " values ('default', %s, %s, 7, %s, '1 day', %s, %s, %s)",
        [LONG, NAME, NAME, json.dumps(RUNNING), json.dumps(SINKS), json.dumps(LIMITS)],
    )
    conn.execute(
        "insert into partbox.handler_limit (subscription, handler, rate, changed_by) values ('default', %s, 1, %s)",
        [LONG, NAME],
    )
    conn.execute("insert into partbox.subscription (name, type_filters) values (%s, %s)", [NAME, [NAME]])
    conn.execute(
        "insert into partbox.partition (subscription, partition, snapshot, last_id, floor_id)"
        " select %s, n, '1:1:', 0, 0 from generate_series(0, 255) n",
        [NAME],
    )
    conn.execute(
        "insert into partbox.parked (subscription, record_id, partition, aggregate_type, aggregate_id, event_type,"
        " state, blocks, attempts, parked_at, last_error, traceback)"
        " select 'default', id, 1, aggregate_type, aggregate_id, event_type,"
        " case id when 1 then 'dead' else 'retrying' end, id = 2, 5,"
        " clock_timestamp() - interval '5 min', %(e)s, %(e)s from partbox.record",
        {"e": LONG},
    )
    conn.execute(
        "insert into partbox.action (who, action, subscription, target, count)"
        " values (%(n)s, %(n)s, %(n)s, %(t)s, 1), (%(n)s, %(n)s, null, null, null), (%(n)s, '', '', '[1]', -1)",
        {"n": NAME, "t": json.dumps({NAME: LONG, "reason": [NAME], "filters": {NAME: {NAME: NAME}}})},
    )


def acts(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp") and character != "\n"


def shown(command: tuple[str, ...]) -> str:
    return " ".join(command)[:16].encode("unicode_escape").decode()


@pytest.mark.parametrize("command", COMMANDS, ids=shown)
def test_no_command_prints_names_that_control_the_terminal_or_forge_a_line(
    command: tuple[str, ...], infested: None, dsn: str, partbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARTBOX_DSN", dsn)
    monkeypatch.setenv("COLUMNS", "20000")  # no line is broken where it begins with anything
    done = partbox(*command)
    said = done.out + done.err
    assert said
    assert not any(map(acts, said)), sorted({each for each in said if acts(each)})
    assert not [line for line in said.splitlines() if line.startswith("forged")]


def test_a_node_with_a_name_that_acts_on_a_terminal_is_refused_with_the_remedy(dsn: str, partbox: Any) -> None:
    refused = partbox("worker", "json:dumps", "--node", NAME, "--dsn", dsn).error
    assert "a name of 1 to 255 visible characters is needed: give one by --node or PARTBOX_NODE" in refused
