"""The rules of the cursor against a model of PostgreSQL, in every order of events that Hypothesis can think of.

`worker_model` checks each step; here, at the end: nothing is lost, and quiet partitions hold nothing back.
"""

from random import Random

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from run_size import examples
from worker_model import PARTITIONS, Doing, WorkerModel

from partbox.protocol import cursor as cursor_rules
from partbox.protocol import progress as progress_rules
from partbox.protocol import sweep as sweep_rules

PROFILE = settings(
    max_examples=examples(100), stateful_step_count=10, deadline=None, print_blob=True,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],  # explaining traces every line, which is slow
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)  # fmt: skip
QUIET_STEPS = 300
CALM_STEPS = 6
BUSY = 150
BUSY_WITH = {
    "publish": 25,
    "commit": 10,
    "abort": 2,
    "savepoint": 2,
    "undo": 2,
    "xid": 2,
    "step": 25,
    "follow": 2,
    "look": 3,
    "finish": 20,
    "save": 15,
    "claim": 5,
    "drain": 2,
    "kill": 1,
    "reconnect": 3,
}


publishes = st.tuples(st.just("publish"), st.integers(0, 3), st.sampled_from(PARTITIONS), st.integers(0, 1))
ends = st.tuples(st.sampled_from(["commit", "commit", "abort"]), st.integers(0, 3), st.just(0), st.just(0))
xids = st.tuples(st.sampled_from(["xid", "savepoint", "undo"]), st.integers(0, 3), st.just(0), st.just(0))
doing = st.one_of(publishes, publishes, ends, xids)
numbers = st.sets(st.sampled_from(PARTITIONS))
meddling = st.lists(doing, max_size=2)


class LogMachine(WorkerModel, RuleBasedStateMachine):
    @initialize(first_xid=st.sampled_from([5, 2**32 - 4, 2**32 + 700]), claimed=numbers)
    def start(self, first_xid: int, claimed: set[int]) -> None:
        self.begin(first_xid, claimed)

    # Publishers.

    @rule(what=st.lists(doing, min_size=1, max_size=6))
    def publishers(self, what: list[Doing]) -> None:
        self.publish(what)

    @rule(seed=st.integers(0, 2**32))
    def busy(self, seed: int) -> None:
        """A busy while: what takes many steps to come about is reached in one."""
        random = Random(seed)
        for _ in range(BUSY):
            what = random.choices(list(BUSY_WITH), list(BUSY_WITH.values()))[0]
            number = random.choice(PARTITIONS)
            match what:
                case "publish":
                    self.do((what, random.randrange(4), number, random.randrange(2)))
                case "step":
                    rooms = tuple(random.choice([0, 1, 3]) for _ in PARTITIONS)
                    in_look, after_look = self.few(random), self.few(random)
                    self.read_step(rooms, random.random() < 0.5, in_look, after_look, random.random() < 0.6)
                case "follow":
                    self.let_follow()
                case "look":
                    self.look(self.few(random))
                case "finish":
                    self.finish(random.randrange(4), random.random() < 0.15)
                case "save":
                    self.save(number, random.random() < 0.7)
                case "claim":
                    self.claim(number)
                case "drain" | "kill" | "reconnect":
                    self.trouble(what, random.random() < 0.5, {number})
                case _:
                    self.do((what, random.randrange(4), 0, 0))

    @staticmethod
    def few(random: Random) -> list[Doing]:
        slot = random.randrange(4)
        few = [("publish", slot, random.choice(PARTITIONS), 0), ("commit", slot, 0, 0)]
        return random.choice([[], [], few[:1], few[1:], few])

    # The reader.

    @rule(
        rooms=st.tuples(*[st.integers(0, 3)] * 2), backlog=st.booleans(), in_look=meddling, after_look=meddling,
        quickly=st.booleans(),
    )  # fmt: skip
    def step(
        self,
        rooms: tuple[int, ...],
        backlog: bool,
        in_look: list[Doing],
        after_look: list[Doing],
        quickly: bool,
    ) -> None:
        self.read_step(rooms, backlog, in_look, after_look, quickly)

    @rule(in_look=meddling)
    def idle_check(self, in_look: list[Doing]) -> None:
        self.look(in_look)

    @rule()
    def followers(self) -> None:
        self.let_follow()

    # Handlers.

    @rule(picks=st.lists(st.tuples(st.integers(0, 3), st.sampled_from([False, False, False, True])), min_size=1))
    def handlers(self, picks: list[tuple[int, bool]]) -> None:
        for pick, park in picks:
            self.finish(pick, park)

    # The saver.

    @rule(number=st.sampled_from(PARTITIONS), at_once=st.booleans())
    def save(self, number: int, at_once: bool) -> None:
        """The save in hand is committed, or a new one begins, and may be committed at once."""
        held = self.held.get(number)
        if held is None or held.batch is None:
            self.begin_save(number)
            if not at_once:
                return
        self.end_save(number)

    # Ownership.

    @rule(number=st.sampled_from(PARTITIONS))
    def claims(self, number: int) -> None:
        self.claim(number)

    @precondition(lambda self: self.held)
    @rule(what=st.sampled_from(["drain", "kill", "reconnect"]), committed=st.booleans(), numbers=numbers)
    def trouble(self, what: str, committed: bool, numbers: set[int]) -> None:
        if what == "kill":
            self.kill(committed, numbers)
        elif what == "reconnect":
            self.reconnect(committed)
        else:
            self.drain(numbers)

    # The end.

    def teardown(self) -> None:
        if not hasattr(self, "log"):
            return
        for number in PARTITIONS:
            self.leave(number)
            self.claim(number)
        self.check_open_transactions_delay_nothing()
        for transaction in list(self.log.open):  # each is late by itself, and nothing else happens
            for _ in range(CALM_STEPS):
                self.read_step((3, 3), False, [], [])
            self.log.end(transaction, commit=True)
        self.check_everything_is_delivered()
        # Drawn and committed between the last look and the last page: above the ceiling of that page.
        published: list[Doing] = [("publish", 0, 0, 0), ("commit", 0, 0, 0)]
        self.publish(published)
        self.read_step((3, 3), False, [], published)
        self.check_everything_is_delivered()

    def check_open_transactions_delay_nothing(self) -> None:
        """While only heartbeats end, a cut page always gets on: each range is searched once, not for ever."""
        for _ in range(QUIET_STEPS):
            heart = self.log.begin()
            self.log.draw_xid(heart)
            self.log.end(heart, commit=True)
            self.read_step((3, 3), False, [], [], quickly=False)
        beside = f"beside {len(self.log.open)} open transactions"
        for number, held in self.held.items():
            assert held.cursor.lockstep, f"partition {number} is never read whole {beside}"
        last = {number: held.cursor.last_id for number, held in self.held.items()}
        unread = [record.id for record in self.log.committed if record.id > last[record.partition]]
        assert not unread, f"not read {beside}: {unread}"

    def check_everything_is_delivered(self) -> None:
        self.settle_down()
        parked = set().union(*(saved.parked for saved in self.saved.values()))
        lost = {record.id for record in self.log.committed} - self.ran - parked
        assert not lost, f"lost: {sorted(lost)}"
        for number, saved in self.saved.items():
            assert saved.last_id == self.log.drawn, f"quiet partition {number} holds the log back at {saved.last_id}"

    def leave(self, number: int) -> None:
        """Let a partition that is to be released go."""
        held = self.held.get(number)
        for _ in range(QUIET_STEPS):
            if held is None or not held.draining or number not in self.held:
                return
            self.read_step((3, 3), False, [], [])
            self.begin_save(number)
            self.end_save(number)
        raise AssertionError(f"partition {number} is never released")

    def settle_down(self) -> None:
        """Read until the idle rule holds, finish everything, save it."""
        for _ in range(QUIET_STEPS):
            together = [held for held in self.held.values() if not held.cursor.fresh]
            if len(together) == len(PARTITIONS):
                if self.read_quickly(together, (3, 3), [], []):
                    self.let_follow()
                if not self.read(together, (3, 3), False, False, [], []):
                    break
            else:
                self.read_step((3, 3), False, [], [])
        else:
            raise AssertionError("the reader does not come to rest")
        while any(held.waiting for held in self.held.values()):
            self.finish(0, False)
        for number in PARTITIONS:
            self.end_save(number)
            self.begin_save(number)
            self.end_save(number)


@pytest.mark.parametrize(("cap", "stretch", "late_pages"), [(2, 5, 2), (1, 1_000_000, 1), (1_000, 1_000_000, 64)])
def test_nothing_is_lost_doubled_or_reordered(monkeypatch, cap, stretch, late_pages):
    """With small bounds every other late page is cut, and late pages are merged."""
    monkeypatch.setattr(cursor_rules, "CAP", cap)
    monkeypatch.setattr(cursor_rules, "STRETCH", stretch)
    monkeypatch.setattr(sweep_rules, "LEAST", 1)
    monkeypatch.setattr(progress_rules, "MOST_LATE_PAGES", late_pages)
    run_state_machine_as_test(LogMachine, settings=PROFILE)
