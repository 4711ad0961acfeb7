"""Bounds that operators have set for a handler are in force in a running worker, in place of those that it declares."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st
from waiting import eventually

from partbox import Outbox
from partbox.protocol.limit_addresses import LimitAddress
from partbox.protocol.limits import Limit, Rate
from partbox.worker.ownership.decision import merge_limits

of = LimitAddress.of_handler
DECLARED = {"charge": Limit(Rate(9.0), 4, "tenant_id"), "send": Limit(None, 2)}


def test_a_bound_that_is_set_replaces_the_declared_one_and_infinity_lifts_it() -> None:
    assert merge_limits({of("charge"): (3.0, None)}, DECLARED) == {of("charge"): Limit(Rate(3.0), 4, "tenant_id")}
    assert merge_limits({of("charge"): (inf, inf)}, DECLARED) == {of("charge"): Limit(None, None, "tenant_id")}
    assert merge_limits({of("send"): (None, 7.0)}, DECLARED) == {of("send"): Limit(None, 7)}
    assert merge_limits({of("other"): (1.5, None)}, DECLARED) == {of("other"): Limit(Rate(1.5))}


bounds = st.none() | st.just(inf) | st.integers(1, 9).map(float)


@given(st.dictionaries(st.sampled_from([of("charge"), of("send"), of("other")]), st.tuples(bounds, bounds)))
def test_only_the_bounds_that_are_set_differ_from_the_declared_ones(
    found: dict[LimitAddress, tuple[float | None, float | None]],
) -> None:
    given = merge_limits(found, DECLARED)
    assert given.keys() == found.keys()
    for address, (rate, at_once) in found.items():
        declared = DECLARED.get(address.handler, Limit())
        assert given[address].rate == (declared.rate if rate is None else None if rate == inf else rate)
        assert given[address].at_once == (declared.at_once if at_once is None else None if at_once == inf else at_once)
        assert given[address].by == declared.by


def test_a_running_worker_applies_a_change_and_a_reset_of_a_limit(dsn: str) -> None:
    outbox = Outbox(dsn, heartbeat="200ms")
    outbox.on("Paid", name="charge", rate="9/s", at_once=4)(print)
    outbox.limits.set("charge", rate="3/s")
    with outbox.worker() as worker:
        kept = worker._worker._context.limits  # type: ignore[union-attr]
        eventually(lambda: kept.effective_limits["charge"] == Limit(Rate(3.0), 4))
        outbox.limits.set("charge", rate="none", at_once=1)
        eventually(lambda: kept.effective_limits["charge"] == Limit(None, 1))
        outbox.limits.reset("charge")
        eventually(lambda: kept.effective_limits["charge"] == Limit(Rate(9.0), 4))
