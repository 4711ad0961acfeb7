"""The engine of a process: its state, and the verbs by which its drivers ask, and answer."""

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
    """Each attribute is a façade: the verbs for one driver, every one of which takes the lock by itself.

    `queue` has the lanes that are ready; `shared_lanes`: handlers are of kinds for which new events may stand in line.
    `transactional`: some of the handlers are. `dead_letters`: dead events are owed to a hook. `notes`: progress is
    noted.
    """

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
        self.outcomes = outcomes = Outcomes(self)  # for runners: what became of events
        self.scheduler = scheduler = LaneScheduler(
            self, outcomes, concurrency, ready, shared_lanes=shared_lanes
        )  # for runners: who runs which lane
        self.claims = Claims(self, window=bounds.window, dead_letters=dead_letters, notes=notes)  # for ownership
        self.credits = Credits(self, scheduler, budget, transactional=transactional)  # for whoever reads the log
        claim = ClaimContext(0, subscription, codecs, process)
        self.intake = Intake(self, scheduler, claim, transactional=transactional)  # what was read
        self.limits = LimitPermits(self, scheduler)  # for whoever limits handlers
        self.dead_letters = DeadLetterQueue(self, has_hook=dead_letters)  # for whoever tells of dead events
        self.parked_scheduler = ParkedScheduler(
            self, scheduler, self.dead_letters, budget, claim
        )  # for whoever fetches parked records
        self.saves = Saves(self)  # for the saver
        self.transactions = Transactions(self, outcomes, scheduler)  # for the transactor

    def is_quiet(self) -> bool:
        """True if no handler runs, nothing that was read is not saved, and nothing that is parked is trouble."""
        with self.lock:  # all counts are of one moment
            owned = self.partitions.values()
            return not any(each.is_busy or each.parked.open or each.progress.unsaved() for each in owned)
