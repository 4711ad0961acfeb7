"""Problems as the page shows them: from the last overview, from doctor, or from both."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from partbox.dashboard.page_text import cut_text, escape_invisible
from partbox.doctor.case import Finding, Severity, group_by
from partbox.doctor.checks import CHECKS
from partbox.text.secrets import mask_secrets
from partbox.text.wording import format_count

BAD, WARN, NOTE = LEVELS = ("bad", "warn", "note")
# Alarms and findings are sorted by the order of doctor's checks, in which a cause comes before its consequences.
_ORDER = {each.name: place for place, each in enumerate(CHECKS)}
_LEVEL = {Severity.PROBLEM: BAD, Severity.WARNING: WARN, Severity.NOTE: NOTE}

FEW = 5  # subscriptions with a line each
LINE = 500  # characters of a sentence
# Characters of a remedy, whose commands must stay whole.
LONGEST = 2_000

# The buttons of a problem, by doctor's name of its cause.
_ACTIONS = {
    "dead": ("replay", "discard"),
    "dead-flood": ("replay", "discard"),
    "blocked-key": ("retry", "skip"),
    "blocked-by-dead": ("retry", "skip"),
}

# A command ends at the first backtick outside of its own quotes: names of events may contain any character.
_COMMAND = re.compile(r"`((?:'[^']*'|\"[^\"]*\"|[^`'\"])*)`")


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a subscription or database to show on the dashboard. `level` is "bad" if events wait until an
    operator acts, else "warn" or "note". `name` is doctor's name of the cause. Commands in `remedy` are in backticks.
    `actions` are the remedies on the page: "choose" the `subscription`, "resume" it, "retry" or "skip" its blocked
    aggregates, "replay" or "discard" its dead records."""

    level: str
    name: str
    text: str
    remedy: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    subscription: str | None = None
    since: datetime | None = None

    def to_plain(self) -> dict[str, Any]:
        """Return the problem as plain data for JSON, with its texts cut to a length for display."""
        # `split_remedy` divides each remedy into commands and texts.
        return asdict(self) | {
            "text": _format_line(self.text),
            "since": self.since and self.since.isoformat(),
            "evidence": [_format_line(each) for each in self.evidence],
            "remedy": [list(split_remedy(escape_invisible(each)[:LONGEST])) for each in self.remedy],
        }


def merge_alike(remote: Iterable[Problem], most: Mapping[str, int]) -> list[Problem]:
    """Merge a problem that many other subscriptions have, too, into a single entry."""
    # This is done for each kind of problem that more than FEW subscriptions have.
    # The problem of the subscription with the most waiting events stands for all.
    kinds = group_by(remote, lambda each: each.name.removesuffix(f"-{each.subscription}"))
    return [
        each for alike in kinds.values() for each in (alike if len(alike) <= FEW else [_merge_problems(alike, most)])
    ]


def _merge_problems(alike: Sequence[Problem], most: Mapping[str, int]) -> Problem:
    worst, *others = sorted(alike, key=lambda each: -most.get(each.subscription or "", 0))
    names = ", ".join(cut_text(each.subscription) or "" for each in others[: FEW - 1])
    more = f"{names} and {len(alike) - FEW:,} more"
    return replace(worst, text=f"{worst.text} The same is true of {len(others):,} other subscriptions: {more}.")


def select_problems(
    alarms: Iterable[Problem],
    findings: Sequence[Finding],
    subscription: str,
    live: Iterable[str],
    remote_problems: Sequence[Problem] = (),
) -> list[Problem]:
    """Return the problems to show to a viewer of `subscription`, the worst first, and causes before their effects."""
    # The list has the alarms, the alarms of other subscriptions (`remote_problems`), doctor's findings here and in
    # general, and one line for each other subscription with problems. A `live` cause is decided by alarms, because they
    # are newer. Doctor adds evidence and remedy.
    live = {*live}
    here = [
        each
        for each in findings
        # A finding without a subscription counts here, except a live cause of several subscriptions, which alarms
        # report.
        if each.subscription == subscription or (each.subscription is None and each.cause not in live)
    ]
    known = {each.cause: each for each in here if each.cause in live}
    first = [
        replace(alarm, evidence=found.evidence, remedy=found.remedy) if (found := known.get(alarm.name)) else alarm
        for alarm in alarms
    ]
    rest = [_problem_of(each) for each in here if each.cause not in known]
    others = [each for each in findings if each.cause not in live] if remote_problems else findings
    return sorted(
        [*first, *remote_problems, *rest, *_list_remote_findings(others, subscription)],
        key=lambda each: (LEVELS.index(each.level), _ORDER.get(each.name, len(_ORDER))),
    )


def split_remedy(remedy: str) -> Iterator[tuple[str, bool]]:
    """Yield the commands in a remedy's text, and the texts between them, in order."""
    # Each item is `(text, True for a command)`.
    end = 0
    for found in _COMMAND.finditer(remedy):
        if found.start() > end:
            yield remedy[end : found.start()], False
        yield found[1], True
        end = found.end()
    if end < len(remedy):
        yield remedy[end:], False


def _problem_of(finding: Finding) -> Problem:
    text = finding.summary[:1].upper() + finding.summary[1:]
    is_acted_on = finding.subscription is not None and finding.severity is not Severity.NOTE
    ways = _ACTIONS.get(finding.cause, ()) if is_acted_on else ()
    texts = text, finding.remedy, finding.evidence
    return Problem(_LEVEL[finding.severity], finding.cause, *texts, ways, since=finding.since)


def _list_remote_findings(findings: Sequence[Finding], subscription: str) -> Iterator[Problem]:
    problems = group_by(
        (each for each in findings if each.severity is Severity.PROBLEM), lambda each: each.subscription
    )
    for name in sorted({each for each in problems if each} - {subscription}):
        first, *more = problems[name]
        others = f", and {format_count(len(more), 'other problem')}" if more else ""
        text = f"Subscription {cut_text(name)}: {first.summary}{others}."
        since = min((each.since for each in problems[name] if each.since), default=None)
        yield Problem(BAD, f"elsewhere-{name}", text, actions=("choose",), subscription=name, since=since)


def _format_line(text: str) -> str:
    return cut_text(mask_secrets(text), LINE) or ""
