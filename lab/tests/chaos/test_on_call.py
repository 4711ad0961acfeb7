"""Twelve questions of an engineer on call, each asked by one command of a cluster after chaos.

What is told of random events is compared with the journal that their handlers kept.
"""

import json
import logging
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from typing import Any

import orjson
import pytest
from psycopg import connect

from partbox import Dead, Event, Outbox
from partbox.cli import main
from partbox.platform import boottime
from partbox.testing.drain import Drainer
from partbox_lab.chaos.journal import HandlerCall
from partbox_lab.chaos.run import ChaosAftermath, ChaosPlan, perform

FAULTS = ("kill-process", "kill-supervisor", "freeze-process", "restart-node", "scale", "cut-backends", "fail")
DRIFT = 0.05  # seconds by which the clocks that are compared may differ

Ask = Callable[..., Any]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Asks one command, and returns what it prints, as JSON."""

    def run(dsn: str, *command: str) -> Any:
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit:
            main([*command, "--json", "--dsn", dsn])
        out, err = capsys.readouterr()
        assert (exit.value.code or 0, err) == (0, "")
        return json.loads(out)

    return run


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def calendar_ahead() -> float:
    """Seconds from the boot clock to the calendar, by the closest of some looks: a process may rest within one."""
    looks = [(boottime(), time.time(), boottime()) for _ in range(20)]
    return min((after - before, wall - after) for before, wall, after in looks)[1]


class Story:
    """The calls of handlers in a journal by event, their times turned from the boot clock into calendar time."""

    def __init__(self, calls: list[HandlerCall]) -> None:
        self._ahead = calendar_ahead()
        self.calls: dict[str, list[HandlerCall]] = defaultdict(list)
        for call in calls:
            self.calls[call.event].append(call)

    def wall(self, boot: float) -> float:
        return boot + self._ahead

    def told_wrong(self, event: str, standing: dict[str, Any]) -> str | None:
        """The first thing that is not as it was, if there is one."""
        calls = self.calls[event]
        if standing["state"] != "delivered":
            return f"told as {standing['state']}"
        if not any(self._is(call, standing["delivered"]) for call in calls if call.done):
            return f"no call was in {standing['delivered']}: {calls}"
        told = [entry for entry in standing["history"] if entry["outcome"] == "failed"]
        failed = [call for call in calls if call.failed]
        for entry in told:
            pid = int(entry["process"].split()[0])
            if not any(call.pid == pid and self.wall(call.start) <= moment(entry["at"]) + DRIFT for call in failed):
                return f"no call failed as {entry}: {calls}"
        # One that was lost before it was saved counts as no attempt, and the next call has its number again.
        counted = [call for call in failed if any(other.attempt > call.attempt for other in calls)]
        cut_off = [entry for entry in standing["history"] if entry["outcome"] == "interrupted"]
        if len(told) + len(cut_off) < min(len(counted), 10):
            return f"of {len(counted)} failures {len(told)} are told: {calls}"
        return None

    def _is(self, call: HandlerCall, told: dict[str, Any]) -> bool:
        if told["process"] is not None and not told["process"].startswith(f"{call.pid} on "):
            return False
        after, before = moment(told["after"]), moment(told["before"])
        return after <= self.wall(call.end or 0.0) + DRIFT and self.wall(call.start) <= before + DRIFT


@pytest.mark.parametrize(
    ("seconds", "events"), [(3.0, 200), pytest.param(150.0, 10_000, marks=pytest.mark.soak)], ids=["brief", "whole"]
)
def test_twelve_on_call_questions_are_answered_correctly_by_one_command_each(ask, seconds, events):
    answered = []

    def inspect(after: ChaosAftermath) -> None:
        compare(after, events)
        answered.extend(questions(after, ask))

    seed = random.randrange(10**6)
    plan = ChaosPlan(seconds, seed, 2, 2, FAULTS, None, "partbox")
    report = perform(plan, sys.stderr, inspect)
    assert (report.violations and sum(report.violations.values()), report.drained) == (0, True), report
    assert answered == list(range(1, 13))


def compare(after: ChaosAftermath, events: int) -> None:
    story = Story(after.calls)
    records = Outbox(after.dsn).records
    chosen = random.sample(after.published, min(events, len(after.published)))
    found, unknown = Counter[str](), 0
    for each in chosen:
        (record,) = json.loads(orjson.dumps(records.find(event=each.event)))["records"]
        (standing,) = record["standings"]
        wrong = story.told_wrong(each.event, standing)
        assert wrong is None, f"{each}: {wrong}"
        found[standing["delivered"]["outcome"]] += 1
        unknown += standing["delivered"]["process"] is None
    said = f"{len(chosen)} of {len(after.published)} events: {dict(found)}, the process unknown of {unknown}"
    logging.getLogger(__name__).info(said)
    assert unknown < len(chosen) / 2, said  # or else nobody would be told


def doomed(dsn: str) -> dict[str, str]:
    """Publish events that die, one that is retried with another behind it, and act on some of them as operators do.

    Returns the ids of the events by their fate.
    """
    outbox = Outbox(dsn)

    @outbox.on("Charged")
    def charge(event: Any) -> Dead | None:
        return None if acts and event.payload["fate"] == "replayed" else Dead("no such card")

    @outbox.on("Shipped")
    def ship(event: Any) -> None:
        raise OSError("the carrier is away")

    acts: list[str] = []
    fates = ("dead", "discarded", "replayed")
    made = {fate: Event("Charged", {"fate": fate}, aggregate_id=f"card-{fate}", tenant_id="acme") for fate in fates}
    made["retried"] = Event("Shipped", {}, aggregate_id="parcel-7", aggregate_type="Parcel")
    made["behind"] = Event("Shipped", {}, aggregate_id="parcel-7", aggregate_type="Parcel")
    with connect(dsn) as conn:
        for event in made.values():
            outbox.publish(conn, event)
    with closing(Drainer(outbox, dsn)) as drainer:
        drainer.drain("default")
        with outbox.acting_as("alice@example.com"):
            outbox.dead.replay(made["replayed"].event_id)
        with outbox.acting_as("bob@example.com"):
            outbox.dead.discard(made["discarded"].event_id)
        acts.append("replayed")
        drainer.drain("default")
    with outbox.acting_as("carol@example.com"):
        outbox.subscriptions.create("billing", start="beginning")
        outbox.subscriptions.pause("billing")
    return {fate: str(event.event_id) for fate, event in made.items()}


def questions(after: ChaosAftermath, ask: Ask) -> Iterator[int]:
    """Ask them, and yield the number of each that was answered right."""
    began = datetime.now(UTC).isoformat()
    fate = doomed(after.dsn)
    story = Story(after.calls)
    asked = partial(ask, after.dsn)

    def default(*command: str) -> tuple[dict[str, Any], dict[str, Any]]:
        (record,) = asked("find", *command, "--subscription", "default")["records"]
        return record, record["standings"][0]

    def events(*command: str) -> set[str]:
        return {record["event_id"] for record in asked("find", *command, "--limit", "200")["records"]}

    one = random.choice(after.published)
    _, standing = default("--event", one.event)
    assert story.told_wrong(one.event, standing) is None
    yield 1  # was it delivered, when, and by whom?

    record, _ = default("--event", one.event, "--payload")
    assert (record["payload"]["seq"], record["aggregate_id"]) == (one.seq, one.aggregate)
    yield 2  # what was in it?

    _, standing = default("--event", fate["replayed"])
    assert [each["outcome"] for each in standing["history"]] == ["dead", "replayed", "done"]
    assert standing["history"][0]["error"] == "no such card"
    assert standing["delivered"]["outcome"] == "delivered"
    yield 3  # what failed before?

    failed = events("--failed-between", began, datetime.now(UTC).isoformat())
    assert failed == {fate[each] for each in ("dead", "discarded", "replayed", "retried")}
    yield 4  # which failed between 3 and 4?

    assert events("--ended", "dead", "--since", began, "--type", "Charged") == {
        fate[each] for each in ("dead", "discarded", "replayed")
    }
    record, standing = default("--event", fate["dead"])
    assert (standing["state"], standing["error"]) == ("dead", "no such card")
    yield 5  # which were given up, and why?

    _, standing = default("--event", fate["replayed"])
    assert standing["history"][1]["who"].startswith("alice@example.com")
    yield 6  # who replayed this?

    assert events("--ended", "discarded", "--since", "1h") == {fate["discarded"]}
    _, standing = default("--event", fate["discarded"])
    assert (standing["state"], standing["delivered"]) == ("discarded", None)
    assert standing["history"][-1]["who"].startswith("bob@example.com")
    yield 7  # what was thrown away, and by whom?

    behind, head = asked("find", "parcel-7", "--subscription", "default")["records"]
    assert (head["event_id"], head["standings"][0]["state"]) == (fate["retried"], "retrying")
    assert (behind["standings"][0]["state"], behind["standings"][0]["behind"]) == ("held", head["record_id"])
    yield 8  # why does this aggregate not go on?

    asked_at = time.time()
    billing = asked("status", "--subscription", "billing")
    assert billing["pending"] == len(after.published) + len(fate)
    first = min(story.wall(call.start) for calls in story.calls.values() for call in calls)
    assert billing["oldest_age"] > asked_at - first - DRIFT
    yield 9  # how far behind is billing, and since when?

    paused, created = asked("actions", "--subscription", "billing")
    assert (paused["action"], created["action"]) == ("subscription pause", "subscription create")
    assert paused["who"].startswith("carol@example.com")
    yield 10  # who paused billing?

    for event in events("--ended", "twice"):
        assert story.told_wrong(event, default("--event", event)[1]) is None
    yield 11  # which may have run twice?

    assert events("--tenant", "acme", "--since", began) == {fate[each] for each in ("dead", "discarded", "replayed")}
    yield 12  # what came of this tenant since then?
