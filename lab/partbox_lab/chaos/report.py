"""The result of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.table import Table
from rich.text import Text

from partbox.terminal.cluster_view import summary_table
from partbox_lab.chaos.explained_duplicates import Judgement
from partbox_lab.chaos.journal import HandlerCall
from partbox_lab.chaos.oracle import LoggedEvent
from partbox_lab.chaos.segment_churn import Leftover
from partbox_lab.chaos.watcher import Regress

EXAMPLES = 5

WORDS = {
    "lost": "published, and never handled to its end",
    "made_up": "handled, and never committed",
    "too_early": "started before an earlier event of its aggregate had been handled",
    "backwards": "one owner went back in an aggregate",
    "overlaps": "two handlers of one aggregate at the same time",
    "after_lease": "started after a later owner of the partition had begun",
    "stale_saves": "a cursor or an epoch went back",
    "left_over": "nobody needs it any more, and no purge takes it away",
    "unexplained_repeats": "delivered again though nothing had happened to its owner",
}


@dataclass(frozen=True, slots=True)
class ChaosReport:  # all that the JSON of a run says
    """`restarted` nodes had ended by themselves, as one does that finds no database when it starts. `faults` are those
    that happened, by name; `missed` ones found no victim, `skipped` has the reason for each that is impossible here.
    `refused` transactions found no room on the server's disk, and `remedies` lines of the nodes' logs say what to do
    about that. `segments` of the log went through these steps, those not counted that were killed in one.
    `violations` has a count for each promise; `repeats` the excused ones by their cause."""

    seed: int
    seconds: float
    nodes: int
    processes: int
    published: int
    rolled_back: int
    interrupted: int
    refused: int
    deliveries: int
    drained: bool
    drain_seconds: float
    interrupted_by_user: bool
    restarted: int
    segments: Mapping[str, int]
    remedies: int
    faults: Mapping[str, int]
    missed: Mapping[str, int]
    skipped: Mapping[str, str]
    repeats: Mapping[str, int]
    in_flight: int
    violations: Mapping[str, int]
    examples: Mapping[str, list[Any]] = field(default_factory=dict)
    kept: str | None = None

    @property
    def ok(self) -> bool:
        """True if every promise was kept."""
        return self.drained and not any(self.violations.values())

    @property
    def code(self) -> int:
        """The exit code."""
        return 0 if self.ok else 1

    def plain(self) -> dict[str, Any]:
        """The report as JSON shows it."""
        return {"ok": self.ok, **asdict(self)}

    def table(self) -> Table:
        """The report as a table."""
        return summary_table(self._rows())

    def verdict(self) -> Text:
        """One line: every promise was kept, or those that were broken."""
        if self.ok:
            return Text(f"every promise was kept (seed {self.seed})", style="bold green")
        broken = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in self.violations.items() if count)
        if not self.drained:
            broken = f"not everything was delivered in time; {broken}".rstrip("; ")
        where = f"; the history is in {self.kept}" if self.kept else ""
        return Text(f"BROKEN: {broken} (seed {self.seed}){where}", style="bold red")

    def _rows(self) -> list[tuple[str, str, str]]:
        return [
            ("published", f"{self.published:,}", f"{self.rolled_back:,} more rolled back"),
            ("deliveries", f"{self.deliveries:,}", f"all done {self.drain_seconds:.1f} s after the last was published"),
            ("restarted", f"{self.restarted:,}", "nodes that had ended by themselves"),
            *([("refused", f"{self.refused:,}", "transactions while the disk was full")] if self.refused else []),
            *([("remedies", f"{self.remedies:,}", "lines about that in the nodes' logs")] if self.remedies else []),
            *((f"segments {name}", f"{count:,}", "") for name, count in self.segments.items()),
            *((f"fault {name}", f"{count:,}", "") for name, count in self.faults.items()),
            *((f"no {name}", "", reason) for name, reason in self.skipped.items()),
            *(("repeats", f"{count:,}", f"excused: {cause}") for cause, count in self.repeats.items()),
            *((name.replace("_", " "), f"{count:,}", WORDS[name]) for name, count in self.violations.items()),
        ]


def violations(
    judgement: Judgement, stale_saves: list[Regress], left_over: Sequence[Leftover] = ()
) -> dict[str, list[Any]]:
    """Everything that is not excused, by promise."""
    verdict = judgement.verdict
    return {
        "lost": verdict.lost,
        "made_up": verdict.unknown,
        "too_early": verdict.too_early,
        "backwards": verdict.backwards,
        "overlaps": verdict.overlaps,
        "after_lease": verdict.stale,
        "stale_saves": stale_saves,
        "left_over": list(left_over),
        "unexplained_repeats": judgement.unexplained,
    }


def examples(found: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """The first violations of each promise."""
    return {name: [_plain(each) for each in those[:EXAMPLES]] for name, those in found.items() if those}


def _plain(found: HandlerCall | LoggedEvent | Regress | Leftover | tuple[Any, ...]) -> Any:
    return [_plain(each) for each in found] if isinstance(found, tuple) else asdict(found)
