"""A length of time in SQL is elapsed time: a day has 86,400 seconds, also where the clocks of a zone change."""

import re
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from partbox import Event, Outbox
from partbox.db.sql import sql_folder

OF_THE_ZONE = re.compile(
    r"interval '[^']*(hour|day|week|mon|year)|'[\d.]+ ?(hours?|h|days?|d|weeks?|w|mons?|months?|years?|y)'"
    r"|make_interval\((?!secs)|::interval|date_trunc|date_bin|to_date|::date\b|::timestamp\b|current_date|localtimestamp"
    r"|at time zone (?!'utc'|'UTC')|[-+] *(\w+\.)?deliver_after\b(?!\)*::float8)",
    re.IGNORECASE,
)
"""SQL that depends on the time zone of the session, unlike `make_interval(secs => …)` and `interval '1 second'`."""


def test_no_statement_adds_a_length_of_time_other_than_seconds() -> None:
    texts = {path: re.sub(r"--.*", "", path.read_text(encoding="utf-8")) for path in sql_folder().rglob("*.sql")}
    assert len(texts) > 100
    assert [(path.name, found[0]) for path, text in texts.items() for found in OF_THE_ZONE.finditer(text)] == []


@pytest.mark.parametrize(
    "text",
    ["now() + interval '7 days'", "now() - '1 month'", "now() - make_interval(days => n)", "(r.at + deliver_after)"],
)
def test_a_length_of_time_that_depends_on_the_zone_is_found(text: str) -> None:
    assert OF_THE_ZONE.search(text)


ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("style", ["iso_8601", "sql_standard"])
def test_a_delay_of_days_is_as_long_in_every_time_zone(
    dsn: str, conn: psycopg.Connection[Any], zone: str, style: str
) -> None:
    """The clocks of a zone change within a year, so some of these delays lie across a change."""
    conn.execute(f"set timezone = '{zone}'; set intervalstyle = '{style}'; set datestyle = 'SQL, DMY'")
    outbox = Outbox(dsn)
    with conn.transaction():
        for days in (60, 120, 180, 240, 300):
            length = timedelta(days=days)
            outbox.publish(conn, "T", days, deliver_after=length)
            outbox.publish(conn, "T", days, deliver_after=length, idempotency_key=f"{days}")
            outbox.publish_many(conn, [Event("T", days, deliver_after=f"{days}d")] * 2)
            conn.execute("select partbox.publish('T', %s::text, deliver_after => %s)", [str(days), length])
            conn.execute("select partbox.publish('T', %s::text, deliver_after => '1 day'::interval * %s)", [days, days])
    rows = conn.execute(
        "select extract(epoch from available_at - created_at)::float8 / 86400 - payload::text::int from partbox.record"
    ).fetchall()
    assert len(rows) == 30
    assert [off for (off,) in rows if abs(off) > 1e-3] == []


def test_a_month_is_30_days_and_a_year_365_and_a_quarter(conn: psycopg.Connection[Any]) -> None:
    conn.execute("set timezone = 'Europe/Berlin'")
    for length in ("1 month", "1 year", "1 month -29 days"):
        conn.execute("select partbox.publish('T', null, deliver_after => %s::interval)", [length])
    found = conn.execute("select extract(epoch from available_at - created_at)::float8 from partbox.record order by id")
    assert [round(seconds / 86_400, 2) for (seconds,) in found] == [30, 365.25, 1]
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="at most 36500 days, not 100 years"):
        conn.execute("select partbox.publish('T', null, deliver_after => '100 years'::interval)")
