"""Checks for handlers that do not end, and for brokers and hooks that take nothing."""

from collections.abc import Iterator
from typing import NamedTuple

from partbox.db.delivery.traffic import SinkTraffic
from partbox.db.inspect.stats import Cluster, Instance, RunningHandler
from partbox.doctor.case import (
    Case,
    Severity,
    Symptom,
    group_by,
    list_hanging_handlers,
    list_working_processes,
    subscription_check,
)
from partbox.doctor.limits import HOOK_OUTAGE, SINK_OUTAGE
from partbox.doctor.phrases import TITLE_ERROR, format_error
from partbox.text.wording import format_age, format_brief_age, format_count, format_names, shorten_text

MAX_SHOWN = 5


class HangingHandler(NamedTuple):
    process: Instance
    running: RunningHandler


@subscription_check("hanging-handler", Severity.PROBLEM)
def hanging_handler(case: Case, cluster: Cluster) -> Iterator[Symptom]:
    """Report that a handler has run for over a minute without a timeout, or runs on after its timeout. The aggregate
    waits, and a rebalance and a stop would wait, too. If all handlers of a process hang, everything that the process
    owns waits."""
    hangs = [
        HangingHandler(process, each)
        for process in list_working_processes(cluster)
        for each in list_hanging_handlers(process)
    ]
    hangs.sort(key=lambda hang: -hang.running.seconds)
    if hangs:
        others = sum(process.running_more for process in {hang.process for hang in hangs})
        more = f", {others:,} more for long" if others else ""
        longest = hangs[0].running
        names = {hang.running.handler for hang in hangs}
        which = f"handler {shorten_text(longest.handler)}" if len(names) == 1 else format_count(len(names), "handler")
        times = f" {len(hangs):,} times" if len(hangs) > len(names) else ""
        yield Symptom(
            f"{which} running{times} without an end, for {format_age(longest.seconds)}{more}",
            (*_list_handler_rows(case, hangs), *_list_waiting_rows(case, cluster, hangs)),
            tuple(_list_remedies(case, hangs)),
            lasts=longest.seconds,
        )


def _list_handler_rows(case: Case, hangs: list[HangingHandler]) -> Iterator[str]:
    for name, found in list(group_by(hangs, lambda hang: hang.running.handler).items())[:MAX_SHOWN]:
        process, running = found[0]
        processes = format_count(len({hang.process for hang in found}), "process")
        how_often = f"{len(found):,} times in {processes}, the longest " if len(found) > 1 else ""
        limit = f" (timeout {format_age(running.timeout)})" if running.timeout is not None else ""
        key = f" of {shorten_text(f'{running.aggregate_type} {running.aggregate_id}')}" if running.aggregate_id else ""
        yield (
            f"{shorten_text(name)}, {how_often}for {format_age(running.seconds)}{limit}, in process {process.pid} on "
            f"{case.find_node_name(process)}: record {running.record_id} ({shorten_text(running.event_type, 60)}){key}"
        )


def _list_waiting_rows(case: Case, cluster: Cluster, hangs: list[HangingHandler]) -> Iterator[str]:
    # The rows count the records that wait in the partitions of the hanging events, and in all of their processes.
    numbers = {hang.running.partition for hang in hangs if hang.running.partition is not None}
    owners = {hang.process.instance_id for hang in hangs}
    pending = sum(each.pending for each in cluster.partitions if each.partition in numbers)
    mine = (each for each in case.evidence.parked_counts if each.subscription == cluster.subscription)
    held = sum(each.held for each in mine if each.partition in numbers)
    everywhere = sum(each.pending for each in cluster.partitions if each.owner in owners)
    if numbers:
        which = f"partition{'s' if len(numbers) > 1 else ''} {format_names([str(each) for each in sorted(numbers)], 8)}"
        yield f"waiting in {which}: {format_count(pending, 'record')} pending, {held:,} held"
    if everywhere > pending:
        yield f"in all partitions of {'these processes' if len(owners) > 1 else 'that process'}: {everywhere:,} pending"


def _list_remedies(case: Case, hangs: list[HangingHandler]) -> Iterator[str]:
    process = hangs[0].process
    yield f"see what the handler waits for: `py-spy dump --pid {process.pid}` on {case.find_node_name(process)}"
    if any(hang.running.timeout is None for hang in hangs):
        yield (
            "give handlers a timeout, `@outbox.on(…, timeout=30)` or for all PARTBOX_HANDLER_TIMEOUT=30s: a process "
            "whose handler exceeds the timeout is replaced, and the event is tried again"
        )
    yield (
        f"or end the process: `kill {process.pid}` on {case.find_node_name(process)}; its supervisor replaces it, and "
        "its running events are "
        "delivered again (an embedded worker ends with its application)"
    )


@subscription_check("sink", Severity.PROBLEM, Severity.NOTE)
def sink(case: Case, cluster: Cluster) -> Iterator[Symptom]:
    """Report that a broker has acknowledged nothing for ten seconds, and messages to it fail. The events wait in the
    log. As a note: the messages that each sink has sent since its processes started, and the average time until
    acknowledgement."""
    sinks = [each for each in cluster.sinks if not each.takes_dead_letters]
    failing = _list_failing_sinks(sinks, SINK_OUTAGE)
    if failing:
        yield Symptom(
            "the broker of "
            f"{format_names([shorten_text(each.sink) for each in failing])} has acknowledged nothing for "
            f"{format_age(failing[0].failing)}: {format_error(failing[0].error, TITLE_ERROR)}",
            (
                *(
                    f"{shorten_text(each.sink)}, for {format_age(each.failing)}: {format_error(each.error)}"
                    for each in failing
                ),
                *map(_format_sink, sinks),
            ),
            (
                "bring back the broker, or the connection between it and the workers: waiting events are then "
                "sent in order, and nothing is lost meanwhile",
            ),
            lasts=failing[0].failing,
        )
    elif sinks:
        yield Symptom(
            f"{format_count(len(sinks), 'sink')} at work", tuple(map(_format_sink, sinks)), severity=Severity.NOTE
        )


@subscription_check("dead-letters", Severity.PROBLEM)
def dead_letters(case: Case, cluster: Cluster) -> Iterator[Symptom]:
    """Report that the dead-letter hook, or the target of `--dead-to`, has failed or not returned for five seconds. Dead
    events wait for it, and nothing else does."""
    owed = case.evidence.owed_dead_letters.get(cluster.subscription, 0)
    failing = _list_failing_sinks([each for each in cluster.sinks if each.takes_dead_letters], HOOK_OUTAGE)
    if failing and owed:
        yield Symptom(
            f"{format_count(owed, 'dead event')} not passed on, for {format_age(failing[0].failing)}: "
            f"{shorten_text(failing[0].sink)}, {format_error(failing[0].error, TITLE_ERROR)}",
            tuple(
                f"{shorten_text(each.sink)}, for {format_age(each.failing)}: {format_error(each.error)}"
                for each in failing
            ),
            (
                "repair what the hook calls, or bring back the target: the dead events wait and are then passed on, "
                "one at a time at first; handlers go on meanwhile",
                "give the calls of the hook a timeout: a call that hangs cannot be ended, and its thread stays behind",
                f"or see the events: {case.format_command('dead list', cluster.subscription)}",
            ),
            lasts=failing[0].failing,
        )


def _list_failing_sinks(sinks: list[SinkTraffic], over: float) -> list[SinkTraffic]:
    failing = [each for each in sinks if (each.failing or 0.0) > over]
    return sorted(failing, key=lambda each: -(each.failing or 0.0))


def _format_sink(each: SinkTraffic) -> str:
    took = "" if each.mean is None else f", acknowledged in {format_brief_age(each.mean)} on average"
    again = f", {each.retries:,} sent again" if each.retries else ""
    return f"{shorten_text(each.sink)}: {each.sent:,} sent{took}, {each.in_flight:,} in flight{again}"
