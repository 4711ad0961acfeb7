"""A connection string that cannot be read is refused without a word of it: nobody knows which part is the password."""

import asyncio
import logging
import threading
from urllib.parse import unquote

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict
from waiting import eventually

from partbox import Outbox
from partbox.cli import main
from partbox.cli.shell.arguments import hide_secret
from partbox.db import connect
from partbox.errors import PartboxError, SettingsError
from partbox.text import dsn as rules
from partbox.text.dsn import list_database_names
from partbox.text.secrets import mask_secrets

FIRST, LAST = "Zq7Kx", "Xw9Jv"
"""Every password here begins and ends with them: neither half of it may be seen."""

AWKWARD = st.text(st.sampled_from("%@/:?#[]&='\"\\ \t,;ab2F4\u00e9") | st.characters(codec="utf-8"), max_size=8)
PASSWORDS = AWKWARD.map(lambda text: f"{FIRST}{text}{LAST}")

BROKEN = [
    "postgresql://u:{}@127.0.0.1:1/shop",
    "postgres://u:{}@127.0.0.1:1,127.0.0.1:2/shop?target_session_attrs=any",
    "postgresql://u:{}@[::1/shop",
    "postgresql://u:{}@[::1]x/shop",
    "postgresql://u:%zz{}@127.0.0.1:1/shop",
    "postgresql://u:{}%00@127.0.0.1:1/shop",
    "postgresql://u@127.0.0.1:1/shop?password={}",
    "postgresql://u@127.0.0.1:1/shop?password=a={}",
    "postgresql://u@127.0.0.1:1/shop?{}",
    "postgresql://u@127.0.0.1:1/shop?sslpassword={}",
    "postgresql://u@127.0.0.1:1/shop?pass%77ord={}",
    "postgresql+psycopg://u:{}@127.0.0.1:1/shop",
    "postgresql:/u:{}@127.0.0.1:1/shop",
    "u:{}@127.0.0.1:1/shop",
    "{}",
    "host=127.0.0.1 port=1 password={}",
    "host=127.0.0.1 port=1 password=a {}",
    "host=127.0.0.1 port=1 password='{}",
    "host=127.0.0.1 port=1 password='{}'",
    "host=127.0.0.1 port=1 password='a'{}",
    "host=127.0.0.1 port=1 passwrd={}",
    "host=127.0.0.1 port=1 sslpassword={} passfile={}",
    "host=127.0.0.1 port=1 password={} nonsense",
]


def said_about(dsn: str) -> str:
    """All that anybody hears of a DSN: when it is resolved, connected to, shown and named."""
    heard = [rules.mask_dsn(dsn), *list_database_names([dsn, dsn])]
    heard += [hide_secret(dsn.encode(), b"--dsn").decode(errors="replace")]
    heard += [hide_secret(b"--dsn=" + dsn.encode()).decode(errors="replace")]
    for source in (dsn, lambda: dsn):
        try:
            found = connect.resolve_dsn(source)
            assert conninfo_to_dict(found).get("host", "127.0.0.1").split(",")[0] == "127.0.0.1", found
            connect.connect(found, lease=3).close()
        except (psycopg.Error, PartboxError) as error:
            heard.append(str(error))
    return "\n".join(heard)


def check_nothing_is_said(form: str, password: str) -> None:
    heard = said_about(form.replace("{}", password))
    for secret in (FIRST, LAST, password, unquote(password)):
        assert secret not in heard, (form, password)


@settings(max_examples=400)
@given(st.sampled_from(BROKEN), PASSWORDS)
def test_no_error_about_any_form_of_broken_dsn_contains_a_part_of_its_password(form, password):
    check_nothing_is_said(form, password)


@pytest.mark.parametrize(
    "between", ["%et", " and ", "%20", "@", "/", "/a@b", "@a/", "'", '"', "\\", "\0", "?user=", ":", "&a=", "=", "#"]
)
def test_no_error_about_a_dsn_contains_a_password_with_odd_characters(between):
    for form in BROKEN:
        check_nothing_is_said(form, f"{FIRST}{between}{LAST}")


@given(st.sampled_from(BROKEN), PASSWORDS)
def test_errors_of_libpq_about_a_broken_dsn_are_masked(form, password):
    """A handler that connects somewhere fails with it, and partbox logs and stores what handlers fail with."""
    try:
        conninfo_to_dict(form.replace("{}", password))
    except psycopg.ProgrammingError as error:
        heard = mask_secrets(str(error))
        assert FIRST not in heard
        assert LAST not in heard.partition("\n")[0]
    except ValueError:
        pass


@pytest.mark.parametrize("form", ["postgresql://u:{}@127.0.0.1:1/d", "u:{}@h/d", "host=h password=a {}"])
def test_a_command_refuses_a_broken_dsn_in_one_line(form, capsys):
    dsn = form.replace("{}", f"{FIRST}% {LAST}")
    for command in ("status", "doctor", "init", "migrate", "purge", "subscription list", "dead list", "rebase --yes",
                    "demo", "chaos", "dashboard", "config"):  # fmt: skip
        with pytest.raises(SystemExit):
            main([*command.split(), "--dsn", dsn])
        said = "".join(capsys.readouterr())
        assert FIRST not in said, command
        assert LAST not in said, command
        assert "Traceback" not in said, command
        if command != "config":
            assert "the DSN cannot be read" in said.splitlines()[-1], command


def test_the_remedy_for_a_broken_dsn_names_what_is_wrong():
    for dsn, reason in [
        ("postgresql://u:a%zz@h/d", "%25"),
        ("postgresql://u:a b@h/d", "%20"),
        ("postgresql://u:a/b@h/d", "%2F"),
        ("postgresql://u:a@b@h/d", "%40"),
        ("host=h password=a b", 'a word without "="'),
        ("host=h password='a", "a quote that is not closed"),
    ]:
        with pytest.raises(SettingsError, match="the DSN cannot be read") as refused:
            connect.resolve_dsn(dsn)
        assert reason in str(refused.value)


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://u:p%40s%2Fs@h:5432/d",
        "postgresql://u:pa?ss#x@h/d",
        "postgresql:///d?host=/tmp/@socket&user=u",
        "postgresql://u@h1:1,h2:2,[::1]:3/d?password=p@ss/word",
        "postgresql://user%40tenant:pw@h/d%40b",
        "host=@abstract dbname=a@b/c",
        "host='' port=5432,,5433 password='a b\\'c'",
        "service=shop",
        "",
    ],
)
def test_a_valid_dsn_is_read_as_libpq_reads_it(dsn):
    assert rules.parse_dsn(dsn) == {name: str(value) for name, value in conninfo_to_dict(dsn).items()}


def test_outbox_transaction_does_not_show_the_password_of_a_broken_dsn():
    for dsn in (f"postgresql://u:{FIRST}%zz@h/d", lambda: f"postgresql://u:{FIRST}%zz@h/d"):
        outbox = Outbox(dsn)
        with pytest.raises((PartboxError, psycopg.OperationalError), match="the DSN cannot be read") as refused, \
             outbox.transaction():  # fmt: skip
            pass
        assert FIRST not in str(refused.value)

        async def asynchronously(outbox=outbox):
            async with outbox.transaction():
                pass

        with pytest.raises((PartboxError, psycopg.OperationalError), match="the DSN cannot be read") as refused:
            asyncio.run(asynchronously())
        assert FIRST not in str(refused.value)


def test_a_worker_whose_callable_returns_a_broken_dsn_logs_nothing_of_it_and_goes_on(dsn, conn, caplog):
    """Also what psycopg's pool logs by itself, in the name of a supervisor."""
    caplog.set_level(logging.DEBUG)
    given, delivered = [dsn], threading.Event()
    outbox = Outbox(lambda: given[0])
    outbox.on("Placed")(lambda event: delivered.set())
    with outbox.worker():
        given[0] = f"postgresql://u:{FIRST}%et @h/{LAST}"
        conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and application_name like 'partbox%'"
        )

        def both_said():
            loggers = {record.name for record in caplog.records if "cannot be read" in record.getMessage()}
            return {"partbox.worker", "psycopg.pool"} <= loggers

        eventually(both_said, interval=0.02)
        given[0] = dsn
        with Outbox(dsn).transaction() as tx:
            outbox.publish(tx, "Placed", {})
        assert delivered.wait(120)
    assert FIRST not in caplog.text
    assert LAST not in caplog.text
