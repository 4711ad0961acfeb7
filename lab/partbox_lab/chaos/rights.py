"""Faults of the nodes' role and of the server's notification queue, on a server of the run's own. The role owns
nothing, as recommended, and everything taken from it is restored later."""

from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Final

import psycopg

from partbox.platform import boottime as now
from partbox_lab.chaos import statements
from partbox_lab.chaos.deferred_undo import DeferredUndo
from partbox_lab.chaos.explained_duplicates import Disturbance
from partbox_lab.chaos.fleet import ROLE
from partbox_lab.chaos.schedule import ScheduledFault
from partbox_lab.workspace import Workspace

# Tables or sequences, and the privilege on each that may be revoked.
PRIVILEGES: Final = (
    ("record", "select"),
    ("record_id_seq", "select"),
    ("partition", "select"),
    ("partition", "update"),
    ("parked", "select"),
    ("parked", "insert"),
    ("meta", "select"),
    ("subscription", "select"),
)
TABLES: Final = ("record", "partition", "parked", "instance", "subscription", "meta")
RETRY: Final = 0.2  # seconds until a restoration that met a lock is tried again


class Rights:
    """Faults that restrict the nodes' role. Each returns a log text, or None if it failed. `disturbances` get the times
    in which nodes could not save."""

    def __init__(self, place: Workspace, undo: DeferredUndo, disturbances: list[Disturbance]) -> None:
        self._place = place
        self._undo = undo
        self._disturbances = disturbances

    def take(self, step: ScheduledFault) -> str | None:
        """Revoke a privilege for a time."""
        relation, what = PRIVILEGES[int(step.how * len(PRIVILEGES))]
        return self._for_a_while(step, ("take", relation, what), ("give", relation, what), f"{what} on {relation}")

    def hide(self, step: ScheduledFault) -> str | None:
        """Enable row security without a policy on a table for a time, which hides all its rows from the nodes."""
        table = TABLES[int(step.how * len(TABLES))]
        return self._for_a_while(step, ("hide", table, ""), ("show", table, ""), table)

    def limit(self, step: ScheduledFault) -> str | None:
        """End every second session of the nodes, and limit the role to two sessions fewer than it had."""
        try:
            with self._place.connect("chaos") as conn:
                found = statements.sessions(conn, self._place.schema, self._place.named(ROLE))
                most = str(max(0, len(found) - 2))
                done = self._for_a_while(step, ("limit", "", most), ("limit", "", "-1"), f"at most {most} sessions")
                for pid in found[::2] if done else ():
                    statements.cut(conn, self._place.schema, pid)
                return done
        except psycopg.OperationalError:
            return None

    def fill(self, step: ScheduledFault) -> str | None:
        """Fill the server's notification queue for a time, behind a session that reads none."""
        close = ExitStack()
        try:
            stuck = close.enter_context(closing(self._place.connect("chaos")))
            with self._place.connect("chaos") as conn:
                statements.fill_queue(stuck, conn, self._place.schema)
        except psycopg.OperationalError:
            close.close()
            return None
        self._undo.after(step.lasts, close.close)
        return f"for {step.lasts:.1f} s"

    def _for_a_while(
        self, step: ScheduledFault, change: tuple[str, str, str], back: tuple[str, str, str], what: str
    ) -> str | None:
        at = now()
        if not self._change(*change):
            return None

        def give_back() -> None:
            if self._change(*back):
                self._disturbances.append(Disturbance(step.fault, at, now(), hinders=True))
            else:
                self._undo.after(RETRY, give_back)

        self._undo.after(step.lasts, give_back)
        return f"{what}, for {step.lasts:.1f} s"

    def _change(self, change: str, relation: str, what: str) -> bool:
        """Return False if the server is away, or a lock cannot be had in time."""
        try:
            with self._place.connect("chaos") as conn:
                statements.change_rights(conn, self._place.schema, change, relation, what)
        except psycopg.OperationalError:
            return False
        return True


# The faults of this module by name.
FAULTS: Final[dict[str, Callable[[Rights, ScheduledFault], str | None]]] = {
    "take-privilege": Rights.take,
    "row-security": Rights.hide,
    "no-reconnect": Rights.limit,
    "notify-full": Rights.fill,
}
