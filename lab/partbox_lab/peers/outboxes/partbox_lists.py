"""partbox with a handler of lists, as consumers of PgQ have."""

import sys
from collections.abc import Mapping
from typing import ClassVar

from partbox_lab.peers.outboxes.partbox import Partbox
from partbox_lab.peers.outboxes.programs import program
from partbox_lab.peers.peer import Order, PeerRun


class PartboxLists(Partbox):
    name = "partbox, lists"
    orders: ClassVar[Mapping[Order, float]] = {"key": 1.0}
    settings = "defaults, lists of up to 1,000"

    def commands(self, run: PeerRun) -> list[list[str]]:
        return [[sys.executable, program("work_partbox_lists.py")]]
