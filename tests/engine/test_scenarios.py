"""Scenarios of the traps of the protocol: what is done, what the engine answers, and why, in `scenarios/*.txt`.

A block is of commands, a line `----`, and what they bring about, up to an empty line. What begins with # is prose.
With PARTBOX_REGENERATE=1 the answers are written anew: look at what has changed before you keep it.
"""

import asyncio
import os
import re
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from fibers import Between
from model_clock import ModelClock
from model_handlers import Handling, Shape
from process import RESTING, WATCHES, Process
from server_database import ServerWorld
from statements import Fate, Sent
from world import World, number

from partbox.db.delivery import cursors
from partbox.outcomes import Dead, RetryAfter
from partbox.protocol import cursor as cursor_rules
from partbox.protocol.horizon import Snapshot
from partbox.protocol.rows import ParkedSave, SpillStart
from partbox.worker.runners.dispatcher import IN_TIME

FILES = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))
ON_A_SERVER = [file for file in FILES if "\ncrash\n" not in file.read_text(encoding="utf-8")]
OUTCOMES: dict[str, Callable[[], object]] = {
    "done": lambda: None,
    "fails": lambda: ValueError("no"),
    "later": lambda: RetryAfter(1.0),
    "dead": lambda: Dead("over"),
}
RUNNERS = "runner"
LATE = 3 * IN_TIME  # seconds until who wants the interpreter from a thread that computes gets it


class Scenario:
    """One world, moved by the commands of a file; each returns nothing, and what comes about is in `said`."""

    def __init__(self, world: World, patch: pytest.MonkeyPatch) -> None:
        self.world, self.database, self.patch = world, world.database, patch
        self.rest: Any = None  # seconds, after the last save
        for name in ("poll", "quick", "claim", "take_up", "save", "refill"):
            setattr(self.database, name, self._narrated(name, getattr(self.database, name)))

    @property
    def said(self) -> list[str]:
        return self.world.said

    def do(self, line: str) -> None:
        name, *words = line.split()
        plain = [word for word in words if "=" not in word]
        getattr(self, name)(*plain, **dict(word.split("=") for word in words if "=" in word))

    # Publishers, and the server.

    def publish(self, slot: str, partition: str, key: str, **more: str) -> None:
        kind, at = more.pop("type", "Event"), more.pop("after", None)
        due = None if at is None else self.world.clock.now + float(at)
        large = int(more.pop("large", "0"))
        named = None if key == "-" else key
        record = self.world.publish(int(slot), int(partition), named, kind, large=large, available_at=due)
        self.said.append(f"id {record.id}, xid {record.xid}")

    def begin(self, slot: str) -> None:
        self.said.append(f"xid {self.database.log.draw_xid(self.database.transaction(int(slot)))}")

    def commit(self, slot: str, durable: str = "yes") -> None:
        self.world.end(int(slot), commit=True, durable=durable == "yes")

    def abort(self, slot: str) -> None:
        self.world.end(int(slot), commit=False)

    def crash(self) -> None:
        self.world.crash()

    def arrive(self) -> None:
        self.world.arrive()

    def wait(self, seconds: str) -> None:
        self.world.clock.now += float(seconds)

    def replay(self, id: str) -> None:
        self.database.replay([int(id)])

    def late_at_once(self, cap: str) -> None:
        self.patch.setattr(cursor_rules, "MAX_LATE", int(cap))

    def stretch(self, ids: str) -> None:
        """A page is cut after so many ids."""
        self.patch.setattr(cursor_rules, "STRETCH", int(ids))

    def saves_take(self, seconds: str) -> None:
        save = cursors.save
        self.patch.setattr(cursors, "save", lambda *of, **more: (save(*of, **more)[0], float(seconds)))

    # Processes.

    def join(self, name: str, **shape: str) -> None:
        values = {key: value if key == "kind" else int(value) for key, value in shape.items()}
        process = self.world.join(Shape(**values))  # type: ignore[arg-type]
        assert process.name == name

    def assign(self, numbers: str, name: str) -> None:
        self.world.assign([int(each) for each in numbers.split(",")], self._process(name))

    def look(self, name: str, *how: str) -> None:
        self.world.clock.now += 0.06
        self._go_on(name, "poller", *how)

    def look_at_once(self, name: str, *how: str) -> None:
        """No time passes since the last look."""
        self._go_on(name, "poller", *how)

    def tick(self, name: str, *how: str) -> None:
        self._process(name).poller.force_tick()
        self.look(name, *how)

    def save(self, name: str, *how: str) -> None:
        self.world.clock.now += 0.25
        self.rest = self._go_on(name, "saver", *how)

    def next_save(self, name: str) -> None:
        self.said.append(f"the next save after {self.rest:.2f} s at the earliest")

    def transact(self, name: str, *how: str) -> None:
        self._go_on(name, "transactor", *how)

    def run(self, name: str, *until: str) -> None:
        """A runner takes lanes, until it has called a handler or finds none; or `until` a step between (`fibers`)."""
        process, between = self._process(name), " ".join(until[1:]) or None
        runners = [each for each in process.actors if each.startswith(RUNNERS)]
        free, before = next((each for each in runners if process.subject(each) is None), None), process.handling()
        while free is not None and process.subject(free) is None and process.handling() == before:
            self.world.go_on(process, free, between=between)

    def tell(self, name: str) -> None:
        """The hook is called for the next dead event, if one waits."""
        self._go_on(name, "letters")

    def walk(self, name: str, *until: str) -> None:
        """The runner goes on that has paused between two steps."""
        process, between = self._process(name), " ".join(until[1:]) or None
        paused = (each for each in process.actors if isinstance(process.subject(each), Between))
        runner = next(each for each in paused if process.subject(each) not in RESTING)
        self.world.go_on(process, runner, between=between)

    def glance(self, name: str, how: str = "in_time") -> None:
        """The runner that watches lines looks: it has got the interpreter at once, or it is `late`."""
        process = self._process(name)
        self.world.clock.now += LATE if how == "late" else process.rests
        self.world.go_on(process, next(each for each in process.actors if process.subject(each) is WATCHES))

    def watches(self, name: str) -> None:
        process = self._process(name)
        count = sum(process.subject(each) is WATCHES for each in process.actors)
        self.said.append(f"{count} watches, and looks in {1000 * process.rests:.1f} ms" if count else "nobody watches")

    def end(self, name: str, id: str, *outcomes: str) -> None:
        """A handler ends, with an outcome for each of its events; its runner goes on, or `until` a step between."""
        process, words = self._process(name), list(outcomes)
        at = words.index("until") if "until" in words else len(words)
        where = next(where for where, what in process.handling() if any(each.id == int(id) for each in what.events))
        process.finish(where, [OUTCOMES[each]() for each in words[:at]], between=" ".join(words[at + 1 :]) or None)

    def kill(self, name: str) -> None:
        self.world.kill(self._process(name))

    def expire(self, name: str) -> None:
        self.world.expire(self._process(name))

    def rename(self, name: str) -> None:
        self.world.rename(self._process(name))

    def stop(self, name: str) -> None:
        self._process(name).stop()

    def lose(self, name: str) -> None:
        self._process(name).lose_connection()

    # What there is.

    def show(self, partition: str) -> None:
        row = self.database.partitions[int(partition)]
        owner = next((each.name for each in self.world.processes if each.me == row.owner), "nobody")
        suspect = f", suspect to {row.suspect_until_id}" if row.suspect_until_id else ""
        self.said.append(f"{owner}: {row.snapshot} last id {row.last_id} floor {row.floor_id}{suspect}")
        for parked in self.database.of([row.partition]):
            started = ", started" if parked.started_at is not None else ""
            self.said.append(f"parked {parked.record_id} {parked.state}, attempts {parked.attempts}{started}")
        for spill in self.database.list_spills([row.partition]):
            self.said.append(f"spilled {spill.aggregate_id} from {spill.from_id} on")

    def left(self, partition: str) -> None:
        """What an heir would read again."""
        self.said.append(f"not consumed: {_ids(self._pending(int(partition)))}")

    def _pending(self, partition: int) -> list[int]:
        row = self.database.partitions[partition]
        snapshot, parked = Snapshot.parse(row.snapshot), self.database.parked
        mine = [each for each in self.database.log.in_order(0, self.database.log.drawn) if each.partition == partition]
        return [each.id for each in mine if not row.covers(each, snapshot) and each.id not in parked]

    def stands(self, name: str, partition: str) -> None:
        """What is in line, and what has a lane."""
        held = self._process(name).engine.partitions[int(partition)]
        lanes = [event.id for lane in held._lanes.values() for event in list(lane.queue)]
        self.said.append(
            f"in line: {_ids(held.shared_lane.build_event(each).id for each in list(held.shared_lane.queue))}"
        )
        self.said.append(f"in lanes: {_ids(sorted(lanes))}")

    def may_sleep(self, name: str) -> None:
        """What the last look has told the bell."""
        seen = self._process(name).poller.reader.log_state
        open = "" if seen is None or seen.is_settled else ", and a transaction is open that has drawn one of them"
        self.said.append("no" if seen is None else f"all is read of {seen.drawn_id} ids{open}")

    def woken(self, name: str) -> None:
        """Whether its reader would look at once by now: it is called, or there is room to read on."""
        wakeup = self._process(name).poller.context.wakeup
        how = (
            "is called" if wakeup.was_interrupted else "looks for what it has room for" if wakeup.is_set() else "sleeps"
        )
        self.said.append(f"the reader of {name} {how}")

    def remembers(self, name: str, partition: str) -> None:
        """What is not started again when it is read again."""
        remembered = self._process(name).engine.partitions[int(partition)].resumption.remembered
        self.said.append(f"{name} remembers {_ids(sorted(id for id, _ in remembered))}")

    # How it goes.

    def _process(self, name: str) -> Process:
        return next(each for each in self.world.processes if each.name == name)

    def _go_on(self, name: str, actor: str, *how: str) -> Any:
        """On to the end, or `to` a statement that is about to be sent, or `after` one whose answer is on its way; the
        statement in hand may get lost, late or refused before."""
        process, words = self._process(name), list(how)
        fate = Fate(words.pop(0)) if words and words[0] not in ("to", "after") else None
        result = self.world.go_on(process, actor, fate, through=False)
        goal = Sent(words[1], answered=words[0] == "after") if words else None
        while isinstance(subject := process.subject(actor), Sent) and subject != goal:
            result = self.world.go_on(process, actor, through=False)
        if goal is not None:
            assert subject == goal, f"it has come to {subject}"
        elif isinstance(subject, Handling):
            assert all(number(event) for event in subject.events)
        return result

    def _narrated(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def narrated(*arguments: Any, **keywords: Any) -> Any:
            answer = call(*arguments, **keywords)
            self.said.extend(_told(name, arguments, answer))
            return answer

        return narrated


def _told(name: str, arguments: Any, answer: Any) -> Iterator[str]:
    match name:
        case "poll" | "quick":
            rows = _ids(sorted(row[1] for row in answer.rows))
            what = "quickly" if name == "quick" else "in full"
            yield f"reads {what} at {answer.snapshot}: {rows}"
        case "claim" | "take_up":
            if answer:
                yield f"{name.replace('_', ' ')}: partition {_ids([row.partition for row in answer])}"
        case "refill":
            for key in answer or ():
                onward = "and it is no more spilled" if key.from_id is None else f"and goes on at {key.from_id}"
                yield f"refills {key.aggregate_id} with {_ids(key.record_ids)}, {onward}"
        case "save":
            _, savings, parks, done = arguments
            for saving in sorted(savings):
                refused = "" if saving.partition in answer else " REFUSED"
                release = ", and releases it" if saving.is_release else ""
                at = f": {saving.snapshot} last id {saving.last_id} floor {saving.floor_id}" if saving.snapshot else ""
                yield f"saves partition {saving.partition}{at}{release}{refused}"
            for park in sorted((each for each in parks if isinstance(each, ParkedSave)), key=attrgetter("record_id")):
                yield f"parks {park.record_id} {park.state}, attempts {park.attempts}" + ", starts" * park.is_charge
            for start in sorted(each for each in parks if isinstance(each, SpillStart)):
                yield f"spills {start.aggregate_id} from {start.from_id} on"
            if done:
                yield f"deletes parked {_ids(sorted(done))}"


def _ids(ids: Any) -> str:
    return " ".join(map(str, ids)) or "nothing"


def blocks(text: str) -> Iterator[tuple[list[str], list[str], list[str]]]:
    """Prose, commands and answers of each block."""
    for block in text.strip().split("\n\n"):
        lines = block.split("\n")
        prose = [line for line in lines if line.startswith("#")]
        rest = [line for line in lines if not line.startswith("#")]
        at = rest.index("----") if "----" in rest else len(rest)
        yield prose, rest[:at], rest[at + 1 :]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_engine_answers_as_the_scenario_says(file: Path, monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    scenario, written = Scenario(world, monkeypatch), list[str]()
    for prose, commands, answers in blocks(file.read_text(encoding="utf-8")):
        scenario.said.clear()
        for command in commands:
            scenario.do(command)
        written.append("\n".join([*prose, *commands, *(["----", *scenario.said] if commands else [])]))
        if "PARTBOX_REGENERATE" not in os.environ:
            assert scenario.said == answers, "\n".join([*prose, *commands])
    if "PARTBOX_REGENERATE" in os.environ:
        file.write_text("\n\n".join(written) + "\n", encoding="utf-8")


class ServerScenario(Scenario):
    """On a server, whose view says what is consumed."""

    def _pending(self, partition: int) -> list[int]:
        return self.database.pending(partition)  # type: ignore[attr-defined, no-any-return]


@pytest.fixture
def server_world(stage: tuple[asyncio.AbstractEventLoop, ModelClock], dsn: str) -> Iterator[ServerWorld]:
    world = ServerWorld(*stage, dsn)
    yield world
    for each in world.processes:
        each.kill()
    world.database.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("file", ON_A_SERVER, ids=lambda file: file.stem)
def test_the_engine_on_a_server_answers_to_the_same_effect(
    file: Path, monkeypatch: pytest.MonkeyPatch, server_world: ServerWorld
) -> None:
    """But for what hangs on the transaction ids, which other statements draw there too."""
    scenario = ServerScenario(server_world, monkeypatch)
    for prose, commands, answers in blocks(file.read_text(encoding="utf-8")):
        scenario.said.clear()
        for command in commands:
            scenario.do(command)
        assert [*_effects(scenario.said)] == [*_effects(answers)], "\n".join([*prose, *commands])


def _effects(said: list[str]) -> Iterator[str]:
    """Without transaction ids, snapshots and floors, and the polls that bring nothing."""
    for line in said:
        if not line.endswith(": nothing") or line.startswith("not consumed"):
            yield re.sub(r"xid \d+|\d+:\d+:[\d,]*", "", line)


def test_there_are_scenarios() -> None:
    assert len(FILES) >= 10
