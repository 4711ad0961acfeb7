"""A finding of the diagnosis."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """The severity of a finding, the worst first."""

    PROBLEM = "problem"
    """Events wait or are lost until somebody does something: the exit code is 1."""

    WARNING = "warning"
    """It works, slower than it could or not for ever."""

    NOTE = "note"
    """Worth knowing; also what could not be looked at."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: in one sentence, what shows it, and what to do, commands in backticks.

    `cause` is the name of the check that found it. The texts are plain and may hold what events and errors say.
    """

    severity: Severity
    summary: str
    evidence: tuple[str, ...] = ()
    remedy: tuple[str, ...] = ()
    subscription: str | None = None
    cause: str = ""


def healthy(findings: Iterable[Finding]) -> bool:
    """True if nobody needs to act."""
    return all(each.severity is not Severity.PROBLEM for each in findings)
