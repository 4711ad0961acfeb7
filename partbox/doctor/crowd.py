"""One finding for many subscriptions that have the same trouble."""

from collections.abc import Iterable, Iterator, Sequence

from partbox.doctor.case import Case, waiting
from partbox.doctor.finding import Finding, Severity
from partbox.text.wording import in_short

FEW = 5  # subscriptions that have a finding each; of more as many are named


def gathered(case: Case, found: Iterable[Finding]) -> Iterator[Finding]:
    """The findings of one check; those of more than a few subscriptions as one, with the worst of them."""
    every = [*found]
    for severity in Severity:
        alike = [each for each in every if each.severity is severity]
        own = [each for each in alike if each.subscription is not None]
        yield from (alike if len(own) <= FEW else (*(each for each in alike if each not in own), _crowd(case, own)))


def _crowd(case: Case, alike: Sequence[Finding]) -> Finding:
    most = {each.subscription: waiting(each) for each in case.clusters}
    worst, *others = sorted(alike, key=lambda each: -most.get(each.subscription or "", 0))
    name = _name(worst)
    return Finding(
        worst.severity,
        f"{len(alike):,} subscriptions, the worst {name}: {worst.summary}",
        (
            *(f"{_name(each)}: {'; '.join((each.summary, *each.evidence[:1]))}" for each in (worst, *others)[:FEW]),
            f"and {len(alike) - FEW:,} more",
        ),
        (f"for {name}, and for each of the others with its own name:", *worst.remedy),
        cause=worst.cause,
    )


def _name(finding: Finding) -> str:
    return in_short(finding.subscription or "", 60)
