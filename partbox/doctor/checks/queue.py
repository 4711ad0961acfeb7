"""The server's notification queue, which is one for all its databases."""

from collections.abc import Iterator

from partbox.db.inspect.evidence import HALF
from partbox.db.inspect.facts import OpenSession
from partbox.doctor.case import Case, check
from partbox.doctor.finding import Finding, Severity
from partbox.doctor.words import ending, session
from partbox.text.wording import age

FULL = 0.9
SUSPECTS = 3  # sessions that are named if the server does not name one


@check("notification-queue", Severity.WARNING, Severity.PROBLEM)
def notification_queue(case: Case) -> Iterator[Finding]:
    """The server's notification queue is filling up, because a session that listens does not take what is sent to it:
    nobody wakes idle workers, or tells them of plans and commands. A problem when it is nearly full: then a transaction
    that notifies, of whatever program, fails at its COMMIT."""
    queue = case.evidence.queue
    if queue is None or queue.usage < HALF:
        return
    open_ = case.evidence.sessions
    named = [each for each in open_ if each.pid == queue.holder] if queue.holder else [*open_[:SUSPECTS]]
    unseen = queue.holder if not named else None
    yield Finding(
        Severity.PROBLEM if queue.usage >= FULL else Severity.WARNING,
        f"the server's notification queue is {queue.usage:.0%} full",
        (
            *((f"pid {unseen} keeps it from being emptied",) if unseen else ()),
            *(_holding(each, sure=queue.holder is not None) for each in named),
            "nobody rings meanwhile: an idle worker sees a new event within `poll_idle`, a plan or a command at a tick",
        ),
        tuple(
            f"let it end its transaction, or {ending(pid, application)}"
            for pid, application in [(unseen, None), *((each.pid, each.application) for each in named)]
            if pid
        ),
    )


def _holding(each: OpenSession, *, sure: bool) -> str:
    which = "keeps it from being emptied" if sure else "may keep it from being emptied, if it listens"
    return f"{session(each)} {which}, its transaction open for {age(each.age)}"
