"""A check for limits of handlers that hold back a backlog, or that no process applies."""

from collections.abc import Iterator

from partbox.db.delivery.limits import HandlerLimit
from partbox.db.inspect.stats import Cluster
from partbox.doctor.case import Case, Severity, Symptom, list_working_processes, subscription_check
from partbox.doctor.limits import LIMIT_WAIT
from partbox.doctor.phrases import is_copyable
from partbox.protocol.limits import Rate
from partbox.text.wording import format_age, format_count, format_time, shorten_text


@subscription_check("limit", Severity.WARNING)
def limit(case: Case, cluster: Cluster) -> Iterator[Symptom]:
    """Report that a handler's limit has held back an event for over a minute, or a limit has no effect. In the first
    case more is published than the limit lets through, so the backlog grows. In the second case no living process has
    the handler, or the handler is transactional."""
    for each in cluster.limits:
        name = shorten_text(each.handler)
        if (each.waited or 0.0) > LIMIT_WAIT:
            yield Symptom(
                f"the limit of handler {name} holds back {format_count(each.waiting, 'event')}, the first for "
                f"{format_age(each.waited)}",
                tuple(_limit_evidence(each)),
                tuple(_list_remedies(case, each)),
                lasts=each.waited,
            )
        elif not each.processes and list_working_processes(cluster) and (each.rate or each.at_once):
            yield Symptom(
                f"a limit is set for handler {name}, but no process applies it: none has such a handler, or the "
                "handler is transactional",
                tuple(_limit_evidence(each)),
                (f"check the name in `partbox handlers`, and reset the limit: {_reset_command(case, each)}",),
            )


def _limit_evidence(each: HandlerLimit) -> Iterator[str]:
    for_each = f", for each {shorten_text(each.by)}" if each.by else ""
    yield f"in force: rate {each.rate_text}, at once {each.at_once_text}{for_each}"
    if each.change is not None:
        yield f"set {format_time(each.change.changed_at)} by {shorten_text(each.change.changed_by)}"
    if each.values:
        waiting_texts = (
            f"{shorten_text(worst.value, 60)} ({worst.waiting:,}, {format_age(worst.waited)})" for worst in each.values
        )
        yield f"these wait the longest: {', '.join(waiting_texts)}"


def _list_remedies(case: Case, each: HandlerLimit) -> Iterator[str]:
    if not is_copyable(each.handler):
        yield f"see the name of the handler: {case.format_command('limit list')}; then `partbox limit set`"
        return
    wider_options = [f"--rate={Rate(2 * each.rate)}"] if each.rate is not None else []
    wider_options += [f"--at-once={2 * each.at_once}"] if each.at_once is not None else []
    if wider_options:
        command = case.format_command("limit set", each.subscription, each.handler, options=wider_options)
        yield f"if what the handler calls can take more, raise the limit: {command}"
    if each.change is not None:
        yield f"or return to the limit in the code: {_reset_command(case, each)}"
    yield "otherwise publish fewer events, or let them wait"


def _reset_command(case: Case, each: HandlerLimit) -> str:
    if not is_copyable(each.handler):
        return "`partbox limit reset`"
    return case.format_command("limit reset", each.subscription, each.handler)
