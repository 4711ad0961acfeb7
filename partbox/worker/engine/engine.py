"""The root object of a process's in-memory state, with one part for each of its callers."""

from partbox.codecs import Codecs
from partbox.events.delivered import STATELESS, ClaimContext, Decoder, ProcessState
from partbox.worker.engine.claims import Claims
from partbox.worker.engine.credits import Credits
from partbox.worker.engine.dead_letters import DeadLetterQueue
from partbox.worker.engine.intake import Intake
from partbox.worker.engine.limit_permits import LimitPermits
from partbox.worker.engine.outcomes import Outcomes
from partbox.worker.engine.parked_scheduler import ParkedScheduler
from partbox.worker.engine.read_budget import UNBOUNDED, ReadBounds, ReadBudget
from partbox.worker.engine.ready_queue import ReadyQueue, RunQueue
from partbox.worker.engine.saves import Saves
from partbox.worker.engine.scheduler import LaneScheduler
from partbox.worker.engine.state import EngineState
from partbox.worker.engine.transactions import Transactions

PLAIN = Codecs()


class Engine(EngineState):
    """The in-memory state of one worker process: its partitions, queued events, handler limits and unsaved work.

    It has one attribute for each group of operations. Every operation of an attribute takes the lock by itself.
    `shared_lanes` allows new events to share a lane, `transactional` means that some handlers are transactional,
    `dead_letters` that there is a dead-letter hook, and `notes` that progress notes are written."""

    def __init__(  # noqa: PLR0913  each comes from elsewhere, and none belongs to another
        self,
        concurrency: int = 1,
        bounds: ReadBounds = UNBOUNDED,
        queue: RunQueue | None = None,
        *,
        shared_lanes: bool = False,
        subscription: str = "default",
        codecs: Decoder = PLAIN,
        process: ProcessState = STATELESS,
        transactional: bool = False,
        dead_letters: bool = False,
        notes: bool = False,
    ) -> None:
        super().__init__(concurrency)
        budget = ReadBudget(bounds)
        ready = ReadyQueue(1) if queue is None else queue
        self.outcomes = outcomes = Outcomes(self)
        self.scheduler = scheduler = LaneScheduler(self, outcomes, concurrency, ready, shared_lanes=shared_lanes)
        self.claims = Claims(
            self, window=bounds.window, dead_letters=dead_letters, spill_after=bounds.spill_after, notes=notes
        )
        self.credits = Credits(self, scheduler, budget, transactional=transactional)
        claim = ClaimContext(0, subscription, codecs, process)
        self.intake = Intake(self, scheduler, claim, transactional=transactional)
        self.limits = LimitPermits(self, scheduler)
        self.dead_letters = DeadLetterQueue(self, has_hook=dead_letters)
        self.parked_scheduler = ParkedScheduler(self, scheduler, self.dead_letters, budget, claim)
        self.saves = Saves(self)
        self.transactions = Transactions(self, outcomes, scheduler)

    def is_quiet(self) -> bool:
        """Return True if the worker process has nothing left to do."""
        # No handler runs, no parked row is open, and every record that was read is saved.
        # All counts belong to one moment.
        with self.lock:
            owned = self.partitions.values()
            return not any(
                each.is_busy or each.parked.open_count or each.parked.spills.chains or each.progress.count_unsaved()
                for each in owned
            )
