"""The limits of a worker's handlers while it runs."""

from partbox.protocol.limits import Limit, Rate
from partbox.worker.handler_limits import HandlerLimits


def test_what_is_given_while_it_runs_stands_for_what_is_declared_until_it_is_given_no_more():
    limits = HandlerLimits({"charge": Limit(Rate(5), 2, "tenant_id"), "mail": Limit(at_once=1)})
    limits.give({"charge": Limit(Rate(7)), "ship": Limit(at_once=3), "mail": Limit()})
    assert limits.in_force == {
        "charge": Limit(Rate(7), None, "tenant_id"),
        "ship": Limit(at_once=3),
        "mail": Limit(),
    }
    limits.give({})
    assert limits.in_force == limits.declared
