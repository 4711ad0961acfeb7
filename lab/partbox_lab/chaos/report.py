"""The report of a chaos run, and the violations in it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.table import Table
from rich.text import Text

from partbox.terminal.cluster_view import build_summary_table
from partbox_lab.chaos.explained_duplicates import Judgement
from partbox_lab.chaos.journal import HandlerCall
from partbox_lab.chaos.oracle import LoggedEvent
from partbox_lab.chaos.segment_churn import Leftover
from partbox_lab.chaos.watcher import Regress

EXAMPLES = 5  # of each violation

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
class ChaosReport:  # one field for each entry of the JSON of a run
    """The result of a chaos run, with everything that its JSON contains."""

    seed: int
    seconds: float
    nodes: int
    processes: int
    published: int
    rolled_back: int  # events
    interrupted: int  # transactions whose outcome is unknown
    refused: int  # transactions that a full disk refused
    deliveries: int
    drained: bool  # everything was delivered in time
    drain_seconds: float
    interrupted_by_user: bool
    restarted: int  # nodes that had ended by themselves, as without a database at their start
    segments: Mapping[str, int]  # steps of maintenance, without killed steps
    remedies: int  # lines of the nodes' logs with a remedy for a full disk
    faults: Mapping[str, int]  # that happened, by name
    missed: Mapping[str, int]  # faults that found no target
    skipped: Mapping[str, str]  # the reason for each fault that is impossible here
    repeats: Mapping[str, int]  # duplicates by the disturbance that explains them
    in_flight: int  # stale calls that a freeze explains
    violations: Mapping[str, int]  # a count for each promise
    examples: Mapping[str, list[Any]] = field(default_factory=dict)
    kept: str | None = None  # the folder with the history

    @property
    def ok(self) -> bool:
        """True if everything was delivered and no promise was broken."""
        return self.drained and not any(self.violations.values())

    @property
    def code(self) -> int:
        """The exit code: 0 or 1."""
        return 0 if self.ok else 1

    def plain(self) -> dict[str, Any]:
        """Return the report as a dictionary for JSON."""
        return {"ok": self.ok, **asdict(self)}

    def table(self) -> Table:
        """Return the report as a table."""
        return build_summary_table(self._rows())

    def verdict(self) -> Text:
        """Return the last line: all promises kept, or the broken promises and the folder with the history."""
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
    """Return the findings that nothing excuses, by the keys of `WORDS`."""
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
    """Return the first `EXAMPLES` findings of each violation, as plain data."""
    return {name: [_plain(each) for each in those[:EXAMPLES]] for name, those in found.items() if those}


def _plain(found: HandlerCall | LoggedEvent | Regress | Leftover | tuple[Any, ...]) -> Any:
    return [_plain(each) for each in found] if isinstance(found, tuple) else asdict(found)
