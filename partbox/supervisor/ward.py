"""A process of this node, as its membership knows it."""

from dataclasses import dataclass

from partbox.worker.owning.slot import STOPPING, Slot


@dataclass(slots=True, eq=False)
class Ward:
    """A process of this node. `vouched`: it works, so its row is to be renewed, or made; `left`: its row says that
    it is leaving."""

    slot: Slot
    pid: int
    draining: bool = False
    vouched: bool = True
    left: bool = False

    @property
    def leaving(self) -> bool:
        """True if it was told to end, by its supervisor or by a signal of its own."""
        return self.draining or self.slot[STOPPING] > 0
