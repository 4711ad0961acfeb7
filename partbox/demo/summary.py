"""The result of the demo."""

from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from partbox.terminal.cluster_view import build_summary_table

LOST = 1
# The exit code that shells use for Ctrl-C.
CUT_SHORT = 130


@dataclass(frozen=True, slots=True)
class Summary:
    """The result of a demo run: counts of events and errors, and the delivery lags.

    - `published`: by the shop's table
    - `delivered`: by the handlers' records
    - `made_up`: events that were delivered although rolled back
    - `cut_short`: the last events were not awaited"""

    published: int
    delivered: int
    duplicates: int
    unexplained: int
    out_of_order: int
    lost: int
    rolled_back: int
    made_up: int
    kills: int
    joins: int
    leaves: int
    moves: int
    seconds: float
    lag_p50_ms: float | None
    lag_p99_ms: float | None
    cut_short: bool

    @property
    def is_ok(self) -> bool:
        return not (self.out_of_order or self.made_up or (self.lost and not self.cut_short))

    @property
    def exit_code(self) -> int:
        return LOST if not self.is_ok else CUT_SHORT if self.cut_short else 0

    def to_plain(self) -> dict[str, Any]:
        return asdict(self) | {"ok": self.is_ok}

    def build_table(self) -> Table:
        each = self.published / self.seconds if self.seconds else 0
        repeats = "all of them after a kill, of events not yet saved as handled"
        if self.unexplained:
            repeats = f"{self.unexplained:,} of them without a kill, which should not happen"
        rows = (
            ("published", self.published, f"in {self.seconds:.1f} s: {each:,.0f} a second"),
            ("delivered", self.delivered, ""),
            ("lost", *((0, f"{self.lost:,} were on their way") if self.cut_short and self.lost else (self.lost, ""))),
            ("out of order", self.out_of_order, ""),
            ("duplicates", self.duplicates, repeats if self.duplicates else ""),
            ("rolled back", self.rolled_back, f"{self.made_up:,} of them delivered"),
            ("kills", self.kills, f"{self.joins:,} joined, {self.leaves:,} left"),
            ("moves", self.moves, "partitions changed owner"),
        )
        counts = ((name, f"{count:,}", Text(remark, "bright_black")) for name, count, remark in rows)
        median, most = self.lag_p50_ms, self.lag_p99_ms
        lag = ("-", "")
        if median is not None and most is not None:
            lag = f"{median:.1f} ms", f"median from publish to handler; 99 % within {most:.1f} ms"
        return build_summary_table([*counts, ("lag", *lag)])

    def render_verdict(self) -> Text:
        if self.is_ok and not self.cut_short:
            return Text("published = delivered, 0 out of order", style="bold green")
        if self.is_ok:
            return Text("ended at once, without waiting for the last events; 0 out of order", style="bold yellow")
        return Text(
            f"BROKEN: {self.lost:,} lost, {self.out_of_order:,} out of order, "
            f"{self.made_up:,} delivered although rolled back",
            style="bold red",
        )
