"""`partbox limit …`."""

import getpass
import json
import socket

import pytest

from partbox.db.delivery.limits import LimitReport, WaitingValue, note_limits

APP = """
from partbox import Outbox
outbox = Outbox()

@outbox.on("Paid", name="shop.charge")
def charge(event): ...
"""


@pytest.fixture
def command(partbox, dsn, monkeypatch):
    """Runs `partbox limit …` on the test's database, on a wide terminal."""
    monkeypatch.setenv("PARTBOX_DSN", dsn)
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *arguments: partbox("limit", *arguments)


@pytest.fixture
def instance(conn):
    insert = "insert into partbox.instance (subscription, node, hostname, pid, version, lease)"
    (id,) = conn.execute(f"{insert} values ('default', 'a', 'h', 7, '0', '60 s') returning instance_id").fetchone()
    return id


def test_a_limit_is_set_shown_and_reset(command, conn):
    said = "limited handler shop.charge: rate 90/m, at once 5; its workers apply this within a heartbeat\n"
    assert command("set", "shop.charge", "--rate", "90/m", "--at-once", "5").out == said
    again = command("set", "shop.charge", "--rate", "1.5/s")
    assert again.out == "handler shop.charge already has these limits: nothing to do\n"
    head, row = command("list").out.splitlines()
    columns = "subscription limited handler rate at once for each waiting the first for the longest set"
    assert head.split() == columns.split()
    assert row.split()[:6] == ["default", "shop.charge", "1.5/s", "5", "0", "-"]
    assert row.endswith(f" by {getpass.getuser()}@{socket.gethostname()} as {conn.info.user}")
    assert command("reset", "shop.charge").out == (
        "handler shop.charge is back to its declared limits; its workers apply them within a heartbeat\n"
    )
    assert command("reset", "shop.charge").out == "no limits are set for handler shop.charge: nothing to do\n"
    assert command("list").out.startswith("no limit: @outbox.on(")


def test_the_list_shows_an_unset_bound_as_declared_and_a_lifted_bound_as_none(command):
    command("set", "shop.charge", "--rate", "none")
    row = command("list").out.splitlines()[1]
    assert row.split()[2:5] == ["none", "as", "declared"]


def test_waiting_events_are_shown_with_the_values_that_wait_longest(command, conn, instance):
    values = (WaitingValue("acme", 1200, 75.0), WaitingValue("zoo", 3, 0.5))
    note_limits(conn, "partbox", instance, [LimitReport("shop.charge", 100.0, None, "tenant_id", 1203, 75.0, values)])
    row = command("list").out.splitlines()[1]
    assert " ".join(row.split()) == "default shop.charge 100/s none tenant_id 1,203 75 s acme (1,200), zoo (3)"
    (told,) = json.loads(command("list", "--json").out)
    assert told["values"] == [
        {"value": "acme", "waiting": 1200, "waited": 75.0},
        {"value": "zoo", "waiting": 3, "waited": 0.5},
    ]
    assert (told["rate"], told["at_once"], told["waiting"], told["change"]) == (100.0, None, 1203, None)


def test_every_limit_command_prints_json(command):
    assert json.loads(command("set", "shop.charge", "--rate", "none", "--json").out) == {"limited": True}
    (told,) = json.loads(command("list", "--subscription", "default", "--json").out)
    assert (told["rate"], told["change"]["rate"], told["change"]["at_once"]) == (None, "none", None)
    assert json.loads(command("reset", "shop.charge", "--json").out) == {"reset": True}
    assert json.loads(command("list", "--json").out) == []


@pytest.mark.parametrize(
    ("address", "name", "listed"),
    [
        (("shop.charge", "--value", "4711"), "value 4711 of handler shop.charge", "shop.charge, value 4711"),
        (("--type", "Paid"), "event type Paid", "type Paid"),
        (("--tenant", "acme"), "tenant acme", "tenant acme"),
    ],
)
def test_a_value_a_type_and_a_tenant_are_paused_shown_and_let_go_on(command, partbox, conn, address, name, listed):
    said = f"limited {name}: rate 0; its workers apply this within a heartbeat\n"
    assert command("set", *address, "--rate", "0").out == said
    assert command("set", *address, "--rate", "0").out == f"{name} already has these limits: nothing to do\n"
    row = " ".join(command("list").out.splitlines()[1].split())
    assert row.startswith(f"default {listed} paused 0 - ")
    assert row.endswith(f" by {getpass.getuser()}@{socket.gethostname()} as {conn.info.user}")
    (told,) = json.loads(command("list", "--json").out)
    assert (told["rate"], told["change"]["rate"], told["waiting"]) == (0.0, 0.0, 0)
    assert command("reset", *address).out == f"{name} goes on; its workers apply this within a heartbeat\n"
    assert command("reset", *address).out == f"{name} is not paused: nothing to do\n"
    assert [each["action"] for each in json.loads(partbox("actions", "--json").out)] == ["limit reset", "limit set"]


def test_rate_0_pauses_a_handler_and_another_rate_lets_it_go_on(command):
    assert command("set", "shop.charge", "--rate", "0").code == 0
    assert command("list").out.splitlines()[1].split()[1:3] == ["shop.charge", "paused"]
    command("set", "shop.charge", "--rate", "5/s")
    assert command("list").out.splitlines()[1].split()[1:3] == ["shop.charge", "5/s"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("set", "--rate", "0"),
            "HANDLER is missing: give a handler, a handler and a value, an event type, or a tenant",
        ),
        (("set", "--value", "4711", "--rate", "0"), "--value needs a handler: give a handler"),
        (("set", "shop.charge", "--tenant", "a", "--rate", "0"), "HANDLER cannot be given with tenant: give a handler"),
        (("set", "--tenant", "a", "--rate", "5/s"), "--rate tenant 'a' can only be paused: use rate 0"),
        (("set", "--type", "a", "--rate", "none"), "--rate event type 'a' can only be paused: use rate 0"),
        (
            ("set", "x", "--value", "a", "--rate", "0", "--at-once", "1"),
            "--at-once value 'a' of handler 'x' can only be ",
        ),
        (("reset",), "HANDLER is missing: give a handler"),
        (("set", "shop.charge"), '--rate is missing, and so is at_once: give one of them, such as "100/s"'),
        (("set", "shop.charge", "--rate", "fast"), "--rate 'fast' is not a rate: write it like "),
        (("set", "shop.charge", "--at-once", "0"), "--at-once '0' must be a whole number from 1"),
        (("set", "shop.charge", "--at-once", "few"), "--at-once 'few' must be a whole number from 1"),
        (("set", "shop.charge", "--rate", "1/s", "--subscription", "x"), "subscription 'x' does not exist"),
        (("reset", "shop.charge", "--subscription", "x"), "subscription 'x' does not exist"),
        (("list", "--subscription", "x"), "subscription 'x' does not exist"),
    ],
)
def test_wrong_input_is_one_line_and_changes_nothing(command, conn, arguments, said):
    assert said in command(*arguments).error
    assert conn.execute("select count(*) from partbox.handler_limit").fetchone() == (0,)


def test_a_name_that_no_handler_of_the_application_has_is_refused(command, conn, here, monkeypatch):
    (here / "limited_shop.py").write_text(APP)
    monkeypatch.syspath_prepend(here)
    refused = command("set", "shop.charg", "--rate", "1/s", "--app", "limited_shop:outbox").error
    assert refused.endswith(
        "HANDLER 'shop.charg' is not in subscription 'default', or takes no limit: did you mean 'shop.charge'?"
    )
    assert conn.execute("select count(*) from partbox.handler_limit").fetchone() == (0,)
    assert command("set", "shop.charge", "--rate", "1/s", "--app", "limited_shop:outbox").code == 0


def test_status_shows_limits(command, partbox, conn, instance):
    note_limits(conn, "partbox", instance, [LimitReport("shop.charge", 5 / 3600, 2, None, 40, 3.5)])
    lines = [line.split() for line in partbox("status").out.splitlines()]
    assert ["shop.charge", "5/h", "2", "40", "3.5", "s"] in lines
    (told,) = json.loads(partbox("status", "--json").out)["limits"]
    assert (told["handler"], told["waiting"], told["waited"]) == ("shop.charge", 40, 3.5)
