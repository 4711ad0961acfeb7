"""A check for limits of handlers that hold back a backlog, or that no process applies."""

from collections.abc import Iterator

from partbox.db.delivery.limits import HandlerLimit
from partbox.db.inspect.stats import Cluster
from partbox.doctor.case import Case, Severity, Symptom, subscription_check, working_processes
from partbox.doctor.limits import LIMIT_WAIT
from partbox.doctor.phrases import is_copyable
from partbox.protocol.limits import Rate
from partbox.text.wording import age, counted, in_short, moment


@subscription_check("limit", Severity.WARNING)
def limit(case: Case, cluster: Cluster) -> Iterator[Symptom]:
    """Report that a handler's limit has held back an event for over a minute, or a limit has no effect. In the first
    case more is published than the limit lets through, so the backlog grows. In the second case no living process has
    the handler, or the handler is transactional."""
    for each in cluster.limits:
        name = in_short(each.handler)
        if (each.waited or 0.0) > LIMIT_WAIT:
            yield Symptom(
                f"the limit of handler {name} holds back {counted(each.waiting, 'event')}, the first for "
                f"{age(each.waited)}",
                tuple(_limit_evidence(each)),
                tuple(_remedies(case, each)),
                lasts=each.waited,
            )
        elif not each.processes and working_processes(cluster) and (each.rate or each.at_once):
            yield Symptom(
                f"a limit is set for handler {name}, and no process keeps it: none has such a handler, or it is "
                "transactional",
                tuple(_limit_evidence(each)),
                (f"check its name in `partbox handlers`, and forget this: {_reset_command(case, each)}",),
            )


def _limit_evidence(each: HandlerLimit) -> Iterator[str]:
    for_each = f", for each {in_short(each.by)}" if each.by else ""
    yield f"in force: rate {each.rate_text}, at once {each.at_once_text}{for_each}"
    if each.change is not None:
        yield f"set {moment(each.change.changed_at)} by {in_short(each.change.changed_by)}"
    if each.values:
        waiting_texts = (
            f"{in_short(worst.value, 60)} ({worst.waiting:,}, {age(worst.waited)})" for worst in each.values
        )
        yield f"these wait the longest: {', '.join(waiting_texts)}"


def _remedies(case: Case, each: HandlerLimit) -> Iterator[str]:
    if not is_copyable(each.handler):
        yield f"see its name: {case.command('limit list')}; then `partbox limit set`"
        return
    wider_options = [f"--rate={Rate(2 * each.rate)}"] if each.rate is not None else []
    wider_options += [f"--at-once={2 * each.at_once}"] if each.at_once is not None else []
    if wider_options:
        command = case.command("limit set", each.subscription, each.handler, options=wider_options)
        yield f"if what it calls takes more, widen it: {command}"
    if each.change is not None:
        yield f"or forget what was set: {_reset_command(case, each)}"
    yield "else what is published has to become less, or wait"


def _reset_command(case: Case, each: HandlerLimit) -> str:
    if not is_copyable(each.handler):
        return "`partbox limit reset`"
    return case.command("limit reset", each.subscription, each.handler)
