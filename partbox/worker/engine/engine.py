"""The engine of a process: its state, and the verbs by which its drivers ask, and answer."""

from partbox.worker.engine.state import EngineState


class Engine(EngineState):
    """Each attribute is a façade: the verbs for one driver, every one of which takes the lock by itself."""
