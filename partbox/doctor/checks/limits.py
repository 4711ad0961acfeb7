"""A check for limits of handlers that hold back a backlog, or that no process applies."""

from collections.abc import Iterator

from partbox.db.delivery.limits import HandlerLimit
from partbox.db.inspect.stats import Cluster
from partbox.doctor.case import (
    Case,
    Severity,
    Symptom,
    list_hanging_handlers,
    list_working_processes,
    subscription_check,
)
from partbox.doctor.limits import LIMIT_WAIT
from partbox.doctor.phrases import is_copyable
from partbox.protocol.limit_addresses import LimitKind
from partbox.protocol.limits import Rate
from partbox.text.wording import format_age, format_count, format_time, shorten_text

FEW_PAUSES = 100  # a process reports no more
NAMED_VALUES = 5


@subscription_check("limit", Severity.WARNING, Severity.NOTE)
def limit(case: Case, cluster: Cluster) -> Iterator[Symptom]:
    """Report that a handler's limit has held back an event for over a minute, or a limit has no effect. In the first
    case more is published than the limit lets through, so the backlog grows. In the second case no living process has
    the handler, or the handler is transactional. What an operator has paused is a note. Events that wait
    because handlers hang are not the limit's."""
    # A process reports only some of many pauses.
    reports_all = sum(each.kind != LimitKind.HANDLER for each in cluster.limits) < FEW_PAUSES
    for each in cluster.limits:
        name = shorten_text(each.handler)
        if each.kind == LimitKind.CIRCUIT:
            continue
        is_known = each.processes or not list_working_processes(cluster)
        if each.is_paused and (is_known or (each.kind != LimitKind.HANDLER and not reports_all)):
            yield _describe_pause(case, each)
        elif each.is_paused and each.kind != LimitKind.HANDLER:
            yield Symptom(
                f"{shorten_text(each.name)} is paused, but no process applies it: none has such a handler, it divides "
                "its events by no value, or it is transactional",
                tuple(_limit_evidence(each)),
                (f"check `partbox handlers`, and reset the pause: {_reset_command(case, each)}",),
            )
        elif (each.waited or 0.0) > LIMIT_WAIT and not _waits_for_hanging(cluster, each.handler):
            yield Symptom(
                f"the limit of handler {name} holds back {format_count(each.waiting, 'event')}, the first for "
                f"{format_age(each.waited)}",
                tuple(_limit_evidence(each)),
                tuple(_list_remedies(case, each)),
                lasts=each.waited,
            )
        elif not is_known and (each.rate is not None or each.at_once):
            yield Symptom(
                f"a limit is set for handler {name}, but no process applies it: none has such a handler, or the "
                "handler is transactional",
                tuple(_limit_evidence(each)),
                (f"check the name in `partbox handlers`, and reset the limit: {_reset_command(case, each)}",),
            )


def _waits_for_hanging(cluster: Cluster, handler: str) -> bool:
    """Return True if the events that wait under a handler's limit wait for handlers that hang."""
    # A handler that hangs keeps its permit, and a thread of its process, which other handlers need as well.
    hanging = {each.instance_id: list_hanging_handlers(each) for each in list_working_processes(cluster)}
    if any(run.handler == handler for runs in hanging.values() for run in runs):
        return True
    return all(
        hanging.get(process.instance_id)
        for process in cluster.instances
        for each in process.limits
        if each.handler == handler and (each.waited or 0.0) > LIMIT_WAIT
    )


def _describe_pause(case: Case, each: HandlerLimit) -> Symptom:
    waiting = f": {format_count(each.waiting, 'event')} wait" if each.waiting else ""
    by = (
        ""
        if each.change is None
        else f" by {shorten_text(each.change.changed_by)} since {format_time(each.change.changed_at)}"
    )
    name = f"handler {shorten_text(each.name)}" if each.handler else shorten_text(each.name)
    return Symptom(
        f"{name} is paused{by}{waiting}",
        remedy=(f"let it go on: {_reset_command(case, each)}",),
        severity=Severity.NOTE,
    )


@subscription_check("value-circuit", Severity.WARNING)
def value_circuit(case: Case, cluster: Cluster) -> Iterator[Symptom]:
    """Report that the circuit of a value of a handler, such as a customer, has been open for over a minute. What the
    handler calls for this value is away. Its events wait, and one of them is tried now and then."""
    found = [each for each in cluster.limits if each.kind == LimitKind.CIRCUIT and (each.open_for or 0.0) > LIMIT_WAIT]
    if found:
        worst = sorted(found, key=lambda each: -each.waiting)
        yield Symptom(
            f"{format_count(len(found), 'value')} of handlers wait for their downstream: "
            f"{format_count(sum(each.waiting for each in found), 'event')}, no attempt is charged",
            tuple(
                f"{shorten_text(each.name)}: open for {format_age(each.open_for)}, "
                f"{format_count(each.waiting, 'event')} waiting, next probe in {format_age(each.probe_in)}"
                for each in worst[:NAMED_VALUES]
            ),
            (
                "repair what they call, or wait: the circuit closes with the first success",
                f"see all: {case.format_command('limit list', cluster.subscription)}",
            ),
            lasts=max(each.open_for or 0.0 for each in found),
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
    if not is_copyable(each.handler + each.value):
        return "`partbox limit reset`"
    handler = [each.handler] if each.handler else []
    options = [] if each.kind == LimitKind.HANDLER else [f"--{each.kind}={each.value}"]
    return case.format_command("limit reset", each.subscription, *handler, options=options)
