"""Doctor about limits: which handler is held back, how much waits, since when, and which command ends that."""

import shlex
from datetime import timedelta
from typing import Any

from overviews import ADA, BOB, NOW, cluster, instance, overview, partition

from partbox.db.delivery.limits import HeldReport, LimitChange, LimitReport, WaitingValue, merge_limits
from partbox.db.inspect.evidence import Evidence
from partbox.db.inspect.stats import Cluster, RunningHandler
from partbox.doctor.case import Case, Finding, Severity
from partbox.doctor.doctor import run_checks
from partbox.doctor.limits import Limits

MINUTE_AGO = NOW - timedelta(seconds=60)


def limited(
    *kept: LimitReport, changes: tuple[LimitChange, ...] = (), held: tuple[HeldReport, ...] = (), **fields: Any
) -> Cluster:
    """A subscription whose one process, which lives, keeps these limits."""
    return cluster(
        instances=[instance(ADA, limits=kept, held=held, limits_age=1.0)],
        limits=merge_limits("default", kept, changes, held),
        **fields,
    )


def found(seen: Cluster, cause: str = "limit") -> list[Finding]:
    case = Case("partbox", Evidence(overview=overview(seen)), Limits())
    return [each for each in run_checks(case) if each.cause == cause]


def test_a_limit_that_holds_events_back_for_long_is_reported_with_the_command_to_widen_it() -> None:
    values = (WaitingValue("acme", 900, 90.0), WaitingValue("zoo", 10, 2.0))
    (finding,) = found(limited(LimitReport("shop.charge", 100.0, 5, "tenant_id", 910, 90.0, values)))
    assert finding.summary == "the limit of handler shop.charge holds back 910 events, the first for 90 s"
    assert finding.evidence == (
        "in force: rate 100/s, at once 5, for each tenant_id",
        "these wait the longest: acme (900, 90 s), zoo (10, 2.0 s)",
    )
    command, last = finding.remedy
    words = shlex.split(command.split("`")[1])
    assert words == ["partbox", "limit", "set", "--rate=200/s", "--at-once=10", "shop.charge"]
    assert "fewer" in last
    assert finding.since == NOW - timedelta(seconds=90)


def test_a_limit_set_by_an_operator_is_reported_with_its_author_and_the_command_to_reset_it() -> None:
    change = LimitChange("shop.charge", 1.0, None, MINUTE_AGO, "alice as shop")
    (finding,) = found(limited(LimitReport("shop.charge", 9.0, None, None, 3, 61.0), changes=(change,)))
    assert finding.evidence == ("in force: rate 1/s, at once none", "set 2026-01-31 08:59:00Z by alice as shop")
    assert "`partbox limit reset shop.charge`" in finding.remedy[1]


def test_events_that_have_waited_for_a_short_time_are_no_finding() -> None:
    assert found(limited(LimitReport("shop.charge", 100.0, None, None, 500, 60.0))) == []
    assert found(limited(LimitReport("shop.charge", 100.0))) == []


def hanging(handler: str, seconds: float) -> RunningHandler:
    return RunningHandler(handler, "Paid", "Order", "7", 17, seconds, 3, None)


def test_while_handlers_hang_the_events_behind_them_are_not_blamed_on_a_limit() -> None:
    held_back = LimitReport("shop.charge", 100.0, 5, None, 910, 90.0)
    for handler, seconds, causes in (
        ("shop.charge", 90.0, ["hanging-handler"]),
        ("shop.ship", 90.0, ["hanging-handler"]),
        ("shop.ship", 30.0, ["limit"]),
    ):
        process = instance(ADA, limits=(held_back,), limits_age=1.0, running=(hanging(handler, seconds),))
        others = (instance(BOB, limits=(LimitReport("shop.charge", 100.0, 5),), limits_age=1.0),)
        seen = cluster(instances=[process, *others], limits=merge_limits("default", (held_back,), ()))
        case = Case("partbox", Evidence(overview=overview(seen)), Limits())
        assert [each.cause for each in run_checks(case) if each.cause in ("limit", "hanging-handler")] == causes
    # Another process, whose handlers go on, has events that wait for the limit as well.
    free = instance(BOB, limits=(held_back,), limits_age=1.0)
    hangs = instance(ADA, limits=(held_back,), limits_age=1.0, running=(hanging("shop.ship", 90.0),))
    assert found(cluster(instances=[hangs, free], limits=merge_limits("default", (held_back,), ())))


def test_a_limit_for_an_unknown_handler_is_reported_while_processes_live() -> None:
    change = LimitChange("shop.charg", 1.0, None, MINUTE_AGO, "alice as shop")
    (finding,) = found(limited(changes=(change,)))
    assert finding.summary.startswith("a limit is set for handler shop.charg, but no process applies it")
    assert "`partbox limit reset shop.charg`" in finding.remedy[0]
    away = cluster(instances=[instance(ADA, heartbeat_age=60.0)], limits=merge_limits("default", (), (change,)))
    assert found(away) == []
    lifted = LimitChange("shop.charg", "none", None, MINUTE_AGO, "alice as shop")
    assert found(limited(changes=(lifted,))) == []


def test_a_handler_name_with_control_characters_is_not_put_into_a_command() -> None:
    (finding,) = found(limited(LimitReport("evil\nname", 100.0, None, None, 3, 61.0)))
    assert finding.remedy == ("see the name of the handler: `partbox limit list`; then `partbox limit set`",)


def test_events_that_wait_for_a_limit_do_not_make_their_process_look_stalled() -> None:
    """Unless the process has not said so for long: then it may hang."""
    waiting = LimitReport("shop.charge", 5 / 3600, None, None, 3, 600.0)
    still = partition(3, pending=9, oldest_age=900.0, saved_age=700.0, claimed_age=900.0)
    assert found(limited(waiting, partitions=[still]), "stalled") == []
    assert found(limited(LimitReport("shop.charge", 5 / 3600), partitions=[still]), "stalled")
    silent = cluster([still], [instance(ADA, limits=(waiting,), limits_age=20.0)])
    assert found(silent, "stalled")


def test_what_is_paused_is_a_note_with_its_author_and_the_command_to_let_it_go_on() -> None:
    pauses = [
        (LimitChange("ship", 0.0, None, MINUTE_AGO, "ada"), "handler ship", "partbox limit reset ship"),
        (
            LimitChange("ship", 0.0, None, MINUTE_AGO, "ada", "value", "4711"),
            "handler ship, value 4711",
            "partbox limit reset --value=4711 ship",
        ),
        (LimitChange("", 0.0, None, MINUTE_AGO, "ada", "type", "Paid"), "type Paid", "partbox limit reset --type=Paid"),
        (LimitChange("", 0.0, None, MINUTE_AGO, "ada", "tenant", "x"), "tenant x", "partbox limit reset --tenant=x"),
    ]
    for change, name, command in pauses:
        kept = (LimitReport("ship", 0.0, None, None, 7, 600.0),) if change.kind == "handler" else ()
        held = () if kept else (HeldReport(change.kind, change.handler, change.value, 7, 600.0),)
        (finding,) = found(limited(*kept, changes=(change,), held=held))
        assert finding.severity == Severity.NOTE
        assert finding.summary == f"{name} is paused by ada since 2026-01-31 08:59:00Z: 7 events wait"
        assert finding.remedy == (f"let it go on: `{command}`",)


def test_a_pause_that_no_process_applies_is_reported() -> None:
    change = LimitChange("book", 0.0, None, MINUTE_AGO, "ada", "value", "4711")
    (finding,) = found(limited(changes=(change,)))
    assert finding.summary.startswith("book, value 4711 is paused, but no process applies it")


def test_values_whose_circuit_is_open_for_long_are_reported_with_what_waits() -> None:
    held = (
        HeldReport("circuit", "send", "4711", 18_233, 90.0, 90.0, 12.0),
        HeldReport("circuit", "send", "4712", 1, 70.0, 70.0, 1.0),
        HeldReport("circuit", "send", "4713", 1, 5.0, 5.0, 1.0),
    )
    (finding,) = found(limited(held=held), "value-circuit")
    assert finding.summary == ("2 values of handlers wait for their downstream: 18,234 events, no attempt is charged")
    assert finding.evidence[0] == "send, value 4711: open for 90 s, 18,233 events waiting, next probe in 12 s"
    assert "`partbox limit list`" in finding.remedy[1]
    assert found(limited(held=held), "limit") == []
