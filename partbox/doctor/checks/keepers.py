"""Locks of what only one may do at a time: those who do it try them, and do without, so nobody is seen to wait."""

from collections.abc import Iterator

from partbox.doctor.case import Case, check
from partbox.doctor.finding import Finding, Severity
from partbox.doctor.words import ending
from partbox.text.wording import age, in_short

STOPS = {
    "subscription": "no plan is made: who joins gets nothing, and what a dead process had stays",
    "meta": "no purge, and no segment, is made",
    "archiving": "nothing is archived",
    "imports": "no import of one table is made",
    "the first migration": "no schema is made",
}
LONG = ("partbox archive", "partbox import", "partbox rebase")  # ours that hold theirs for as long as they work


@check("kept-lock", Severity.PROBLEM, Severity.WARNING)
def kept_lock(case: Case) -> Iterator[Finding]:
    """A session keeps a row of `subscription` or `meta` locked, or the advisory lock of imports or of a first
    migration, which anybody may take: nobody waits for it, and what takes that lock is not done meanwhile."""
    for each in case.evidence.keepers:
        if each.age is None or each.age < case.limits.lock_wait or each.application in LONG:
            continue
        who = ", ".join(f"{name} {in_short(said, 60)}" for name, said in _named(each.user, each.application) if said)
        yield Finding(
            Severity.PROBLEM if each.what == "subscription" else Severity.WARNING,
            f"pid {each.pid} keeps the lock of {each.what} for {age(each.age)}",
            (f"pid {each.pid} ({who})", f"{STOPS[each.what]} meanwhile"),
            (f"let it end its transaction, or {ending(each.pid, each.application)}",),
        )


def _named(user: str | None, application: str | None) -> tuple[tuple[str, str | None], ...]:
    return ("user", user), ("application", application)
