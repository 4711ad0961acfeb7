"""The engine of a process: its state, and the verbs by which its drivers ask, and answer."""

from partbox.worker.engine.credits import Credits
from partbox.worker.engine.outcomes import Outcomes
from partbox.worker.engine.read_budget import UNBOUNDED, ReadBounds, ReadBudget
from partbox.worker.engine.state import EngineState


class Engine(EngineState):
    """Each attribute is a façade: the verbs for one driver, every one of which takes the lock by itself."""

    def __init__(self, concurrency: int = 1, bounds: ReadBounds = UNBOUNDED) -> None:
        super().__init__(concurrency)
        budget = ReadBudget(bounds)
        self.credits = Credits(self, budget)  # for whoever reads the log
        self.outcomes = Outcomes(self)  # what became of events
