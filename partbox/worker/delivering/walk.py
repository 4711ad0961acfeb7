"""A walk: a runner's turn over the lanes that it took."""

from partbox.worker.delivering.tally import Tally

LANE_TURN = 0.02  # seconds after which a lane's finished events are recorded and other lanes get their turn
TRUST_SPAN = 0.001  # the lease is looked at again when the wall clock has moved by this much; no longer than QUICK


class Walk:
    """`ends`: monotonic seconds; `looked_at`: Unix seconds of the last look at the
    lease; `tally` counts what is delivered, None where nobody wants to know."""

    __slots__ = ("ends", "looked_at", "tally")

    def __init__(self, began: float, looked_at: float, tally: Tally | None) -> None:
        self.ends = began + LANE_TURN
        self.looked_at = looked_at
        self.tally = tally
