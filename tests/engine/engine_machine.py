"""The machine that plays a world in any order: what it may do, how often, and with what shapes of processes.

`world` checks each step; here, at the end: nothing is lost, and quiet partitions hold nothing back.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from random import Random
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from model_clock import ModelClock
from model_handlers import MOST_ATTEMPTS, Handling, Shape
from model_tables import ParkedLine
from process import WATCHES, Process
from rest import PAUSES, QUIET, settle_down
from world import POISON, World

from partbox.protocol.limit_addresses import LimitAddress, LimitKind
from partbox.worker.runners.dispatcher import IN_TIME

PARTITIONS = range(2)
BUSY = 120
LATE = 3 * IN_TIME  # seconds until who wants the interpreter from a thread that computes gets it
BUSY_WITH = {
    "publish": 24, "commit": 10, "abort": 2, "savepoint": 2, "undo": 2, "xid": 2,
    "poll": 24, "save": 14, "run": 24, "watch": 40, "transact": 8, "finish": 20, "time": 5,
}  # fmt: skip
RARE = {
    "arrive": 2, "command": 2, "plan": 2, "join": 2, "stop": 1, "leave": 4, "kill": 1, "expire": 0.5, "rename": 2,
    "crash": 0.4, "lose": 2, "filter": 0.5,
}  # fmt: skip


class Theme(NamedTuple):
    """The weights of the actions of a run. A run of few kinds of actions gets deeper than a run of all kinds."""

    rare: Mapping[str, float]
    fails: float = 0.1  # of handlers
    poison: float = 0.0  # of events
    lost: float = 0.01  # of statements, before they get there or after
    through: float = 0.8  # of jobs go through all their statements at once
    keys: float = 0.75  # of events have one
    delayed: float = 0.03  # of events
    burst: int = 1  # events at most that are published together, of one key

    @property
    def weights(self) -> dict[str, float]:
        return {**BUSY_WITH, **self.rare}


THEMES = [
    Theme(RARE),
    Theme({"plan": 1, "lose": 2, "kill": 0.5, "leave": 2}, lost=0.005, keys=0.4, burst=5),  # lines have many keys
    Theme(RARE, fails=0.25, poison=0.05, lost=0.03, through=0.5),
    Theme({"lose": 3, "kill": 1, "join": 2, "plan": 1, "arrive": 1}, fails=0.05),
    Theme({"plan": 5, "join": 1, "stop": 1, "leave": 6}, fails=0.05, lost=0.003),
    Theme({"plan": 1, "lose": 3, "command": 4}, fails=0.35, keys=0.95),
    Theme({"kill": 2, "join": 4, "plan": 4}, poison=0.05, keys=0.6),
    Theme({"expire": 1, "rename": 3, "crash": 1, "lose": 1, "plan": 2, "join": 2}),
    Theme({}, fails=0.0, lost=0.0),
    Theme({"plan": 1, "lose": 1, "command": 5}, fails=0.25, lost=0.0, through=0.3, keys=1.0, burst=4),
    Theme({"command": 8, "save": 8, "lose": 1}, fails=0.4, lost=0.0, keys=0.95),
]
FLOOD = {"publish": 60, "commit": 40, "time": 20}
FLOODS = [  # of limited handlers: what waits for permits is put away, and comes back
    Theme({**FLOOD, "lose": 0.5, "plan": 1}, fails=0.05, lost=0.0, keys=0.8, burst=6),
    Theme({**FLOOD, "lose": 0.5, "plan": 1, "pause": 8}, fails=0.2, lost=0.0, keys=0.8, burst=6),
    Theme(
        {**FLOOD, "plan": 3, "join": 2, "leave": 4, "kill": 0.5, "command": 2}, fails=0.2, lost=0.003, keys=0.7, burst=3
    ),
]
SPILLS = [  # of keys that fail with many events behind them, some of which commit late
    Theme({"publish": 40, "commit": 16, "xid": 8, "command": 3, "lose": 8}, fails=0.5, lost=0.0, keys=1.0, burst=4),
    Theme({"xid": 16, "command": 2, "save": 20}, fails=0.4, lost=0.0, through=0.4, keys=1.0, burst=2),
    Theme(
        {"publish": 40, "xid": 6, "command": 3, "plan": 3, "join": 2, "leave": 4, "kill": 1, "lose": 1, "expire": 0.5,
         "rename": 2, "arrive": 1},
        fails=0.4, lost=0.01, keys=0.95, burst=3,
    ),
    Theme({"publish": 50, "time": 12, "command": 6, "crash": 0.3, "save": 8}, fails=0.6, lost=0.0, keys=1.0, burst=6),
]  # fmt: skip
CLOSINGS = [  # circuits of values open, and operators pause
    Theme({"publish": 40, "pause": 6, "lose": 1, "plan": 1}, fails=0.5, lost=0.0, keys=0.8, burst=4),
    Theme({"pause": 4, "plan": 3, "join": 2, "leave": 4, "kill": 0.5, "command": 2}, fails=0.6, lost=0.003, keys=0.7),
]
WANTED = [None, None, frozenset({"Event", "Type 1", POISON})]
ANY = st.builds(
    Shape,
    concurrency=st.sampled_from([3, 2, 1]),
    kind=st.sampled_from(["sync", "async", "lists", "async lists", "effects", "mixed", "several"]),
    page=st.sampled_from([4, 30]),
    window=st.sampled_from([3, 8]),
    window_bytes=st.sampled_from([9_000, 1 << 20]),
    max_parked=st.sampled_from([2, 6]),
    max_waiting=st.sampled_from([1 << 20, 3 * 256]),
    spill_after=st.sampled_from([1, 2, 200]),
    away=st.sampled_from([0, 1]),
    max_attempts=st.just(MOST_ATTEMPTS),
    letters=st.booleans(),
    on_dead=st.sampled_from(["continue", "continue", "block"]),
    lines=st.booleans(),
    rate=st.just(0),
    at_once=st.just(0),
    limit_by=st.just("event_type"),
    circuit_by=st.just(""),
)
IN_LINE = st.builds(
    lambda shape, kind: shape._replace(concurrency=3, kind=kind, lines=True),
    ANY, st.sampled_from(["sync", "several", "lists", "async lists", "async"]),
)  # fmt: skip
LIMITED = st.builds(
    lambda shape, limits: shape._replace(**limits), ANY,
    st.sampled_from([
        {"rate": 12_800}, {"rate": 1_280}, {"rate": 256}, {"at_once": 1}, {"at_once": 1, "limit_by": "aggregate_type"},
        {"at_once": 2, "rate": 6_400},
    ]),
)  # fmt: skip
SHAPES = st.one_of(IN_LINE, ANY, LIMITED)
FLOODED = st.builds(
    lambda shape, kind: shape._replace(window=3, kind=kind, window_bytes=1 << 20),
    LIMITED, st.sampled_from(["sync", "async", "lists", "several"]),
)  # fmt: skip


CLOSED = st.builds(
    lambda shape, kind, by: shape._replace(kind=kind, window_bytes=1 << 20, circuit_by=by),
    st.one_of(LIMITED, ANY), st.sampled_from(["sync", "async", "lists", "async lists", "several"]),
    st.sampled_from(["event_type", "aggregate_id", ""]),
)  # fmt: skip


SPILLED = st.builds(
    lambda shape, after: shape._replace(max_parked=50, spill_after=after, window_bytes=1 << 20),
    ANY, st.sampled_from([1, 2, 3]),
)  # fmt: skip


class EngineMachine(RuleBasedStateMachine):
    clock: ModelClock
    loop: asyncio.AbstractEventLoop

    @initialize(
        first_xid=st.sampled_from([5, 2**32 - 4, 2**32 + 700]), shape=SHAPES, theme=st.sampled_from(THEMES),
        wanted=st.sampled_from(WANTED),
    )  # fmt: skip
    def start(self, first_xid: int, shape: Shape, theme: Theme, wanted: frozenset[str] | None) -> None:
        self.world = World(self.loop, self.clock, partitions=len(PARTITIONS), first_xid=first_xid, wanted=wanted)
        self.shape, self.theme = shape, theme
        self.world.fails, self.world.lost = theme.fails, theme.lost
        self.world.assign(list(PARTITIONS), self.world.join(shape))

    @rule(seed=st.integers(0, 2**32))
    def busy(self, seed: int) -> None:
        """A busy while: what takes many steps to come about is reached in one."""
        random = Random(seed)
        weights = self.theme.weights
        for _ in range(BUSY):
            self.do(random.choices(list(weights), list(weights.values()))[0], random)

    @rule(deeds=st.lists(st.tuples(st.sampled_from([*BUSY_WITH, *RARE]), st.integers(0, 20)), min_size=1, max_size=10))
    def few(self, deeds: list[tuple[str, int]]) -> None:
        for deed, seed in deeds:
            self.do(deed, Random(seed))

    def do(self, deed: str, random: Random) -> None:
        match deed:
            case "publish" | "commit" | "abort" | "xid" | "savepoint" | "undo":
                self.publish(deed, random)
            case "poll" | "save" | "run" | "transact" | "finish":
                self.act(deed, random)
            case "watch":
                self.watch(random)
            case "time":
                self.clock.now += random.choice([0.02, 0.3, 0.3, 1.1])
            case "arrive":
                self.world.arrive()
            case "command":
                self.command(random)
            case _:
                self.trouble(deed, random)

    def publish(self, deed: str, random: Random) -> None:
        world, slot = self.world, random.randrange(3)
        transaction = world.database.transaction(slot)
        match deed:
            case "publish":
                partition = random.choice(PARTITIONS)
                key = random.choice([f"{partition}a", f"{partition}b"]) if random.random() < self.theme.keys else None
                kind = random.choice(["Event", "Event", "Type 1", "Type 2", "Type 3"])
                kind = POISON if random.random() < self.theme.poison else kind
                large = random.choice([0, 0, 0, 0, 0, 4_000])
                at = world.clock.now + 0.5 if random.random() < self.theme.delayed else None
                for _ in range(random.randint(1, self.theme.burst)):
                    world.publish(slot, partition, key, kind, large=large, available_at=at)
            case "xid":
                world.database.log.draw_xid(transaction)
            case "savepoint":
                transaction.marks.append(len(transaction.records))
            case "undo":
                world.database.log.roll_back_to_savepoint(transaction)
            case _:
                world.end(slot, commit=deed == "commit", durable=random.random() < 0.5)

    def few_publish(self, random: Random) -> None:
        for deed in random.choices(["publish", "commit", "xid"], k=random.randrange(3)):
            self.publish(deed, random)

    def act(self, deed: str, random: Random) -> None:
        if not self.world.processes:
            return
        process, through = random.choice(self.world.processes), random.random() < self.theme.through
        match deed:
            case "poll":
                if random.random() < 0.3:
                    self.world.database.meddling = [partial(self.few_publish, random) for _ in range(2)]
                self.world.step(process, "poller", random, through=through)
            case "save":
                if random.random() < 0.7:
                    self.clock.now += 0.25
                self.world.step(process, "saver", random, through=through)
            case "transact":
                if "transactor" in process.actors:
                    self.world.step(process, "transactor", random, through=through)
            case "run":
                runners = [each for each in process.actors if each.startswith("runner")]
                free = [each for each in runners if not _is_held(process.subject(each))]
                if free:
                    self.world.step(process, random.choice(free), random, through=through)
            case "finish":
                if handling := process.handling():
                    between = None if through else random.randrange(8)
                    self.world.finish(process, *random.choice(handling), random, between=between)

    def watch(self, random: Random) -> None:
        """Let each watching runner look at its line three times, in time or late, with other actions in between."""
        # A watcher sorts a line after two looks. The first look is late by the time that was spent before.
        for _ in range(3):
            for process in self.world.processes:
                for runner in process.actors:
                    if process.subject(runner) is WATCHES:
                        self.clock.now += random.choice([0.0005, 0.0005, LATE])
                        self.world.step(process, runner, random, through=True)
            if random.random() < 0.2:
                self.act(random.choice(["poll", "finish"]), random)

    def command(self, random: Random) -> None:
        parked = list(self.world.database.parked.values())
        if not parked:
            return
        row = random.choice(parked)
        if row.state == "dead" and "died" not in (row.last_error or ""):
            self.world.database.replay([row.record_id])
        elif row.blocks:
            self.world.database.retry_now(min(each.record_id for each in parked if _same_key(each, row)))

    def trouble(self, deed: str, random: Random) -> None:
        world = self.world
        process = random.choice(world.processes) if world.processes else None
        match deed:
            case "join" if len(world.processes) < 3:
                world.join(self.shape)
            case "plan":
                whom = [each for each in world.processes if each.trusted and not each.stopping]
                world.assign(random.choices(PARTITIONS), random.choice(whom) if whom else None)
            case "crash":
                world.crash()
            case "filter":
                world.filter(random.choice(WANTED))
            case "pause":
                self.pause(random)
            case _ if process is not None:
                self.trouble_of(process, deed)

    def pause(self, random: Random) -> None:
        """An operator pauses a handler, a value of it, an event type or a tenant, or lets one of these go on."""
        paused = self.world.database.paused
        if paused and random.random() < 0.5:
            paused.remove(random.choice(sorted(paused)))
            return
        names = {name for process in self.world.processes for name in process.limitable}
        handler, kind = random.choice([*sorted(names), ""]), random.choice(["Event", "Type 1", "Type 2"])
        paused.add(
            random.choice(
                [
                    LimitAddress(LimitKind.TYPE, "", kind),
                    LimitAddress.of_handler(handler),
                    LimitAddress(LimitKind.VALUE, handler, kind),
                ]
            )
        )

    def trouble_of(self, process: Process, deed: str) -> None:
        match deed:
            case "stop":
                process.stop()
                for row in self.world.database.partitions.values():
                    row.assignee = None if row.assignee == process.me else row.assignee
            case "leave" if process.stopping and process.is_free:
                self.world.leave(process)
            case "kill":
                self.world.kill(process)
            case "lose":
                process.lose_connection()
            case "expire" if process.trusted:
                self.world.expire(process)
            case "rename" if not process.trusted:
                self.world.rename(process)

    # The end.

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        world.database.meddling.clear()
        world.database.paused.clear()
        try:
            world.arrive()
            heir = next((each for each in world.processes if each.trusted and not each.stopping), None)
            for process in [*world.processes]:
                if process is not heir:
                    self.part_with(process)
            heir = heir or world.join(self.shape)
            world.assign(list(PARTITIONS), heir)
            self.end_with(heir)
        finally:
            for process in world.processes:
                process.kill()

    def end_with(self, heir: Process) -> None:
        """Nothing is left unread, whatever comes last: what others do between the parts of the last statements, too."""
        world, log = self.world, self.world.database.log
        settle_down(world, heir)
        for transaction in list(log.open):  # each is late by itself, and nothing else happens
            log.end(transaction, commit=True)
            settle_down(world, heir)
        for gap in range(3):
            self.publish_at_once()
            world.database.meddling = [*[lambda: None] * gap, self.publish_at_once]
            settle_down(world, heir)

    def publish_at_once(self) -> None:
        self.world.publish(0, 0, "0a")
        self.world.end(0, commit=True)

    def part_with(self, process: Process) -> None:
        """Stop a process and let it leave, or kill it if its lease is over."""
        world = self.world
        if not process.trusted:
            world.kill(process)
            return
        self.trouble_of(process, "stop")
        for round in range(QUIET):
            if process not in world.processes:
                return
            if process.is_free:
                world.leave(process)
                return
            self.clock.now += PAUSES[round % 3]
            for actor in process.actors:
                if process in world.processes and not isinstance(process.subject(actor), Handling):
                    world.go_on(process, actor)
            while process in world.processes and (handling := process.handling()):
                world.finish(process, *handling[0])
        raise AssertionError(f"{process} does not let go {process.engine.partitions}")


def _is_held(subject: object) -> bool:
    """True if a runner goes on by another deed than `run`."""
    return isinstance(subject, Handling) or subject is WATCHES


def _same_key(one: ParkedLine, other: ParkedLine) -> bool:
    return bool(one.blocks and one.partition == other.partition and one.aggregate_id == other.aggregate_id)
