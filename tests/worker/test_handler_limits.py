"""The limits of a worker's handlers while it runs."""

import pytest

from partbox.handlers import Handlers
from partbox.observe import Observers
from partbox.protocol.limit_addresses import LimitAddress
from partbox.protocol.limits import Limit, Rate
from partbox.settings import Settings
from partbox.worker.engine.engine import Engine
from partbox.worker.handler_limits import HandlerLimits
from partbox.worker.runners.endpoint import Endpoint, RunKind

of = LimitAddress.of_handler


@pytest.fixture
def routes():
    handlers = Handlers()
    handlers.register(print, "charge", name="charge", rate="5/s", at_once=2, limit_by="tenant_id")
    handlers.register(print, "mail", name="mail", at_once=1)
    handlers.register(print, "ship", name="ship")
    handlers.register(lambda event, conn: None, "book", name="book", transactional=True)
    return handlers.build_routes("default", Settings()).map_handlers(
        lambda handler: Endpoint(handler, (), 100, Observers())
    )


def kinds(routes):
    return {each.handler.name: each.run_kind for each in routes.list_registered()}


def test_limits_given_while_a_worker_runs_replace_the_declared_ones_until_they_are_withdrawn(routes):
    limits = HandlerLimits(routes, Engine().limits)
    limits.override_limits({})
    declared = {"charge": Limit(Rate(5), 2, "tenant_id"), "mail": Limit(at_once=1)}
    assert limits.effective_limits == declared
    limits.override_limits(
        {
            of("charge"): Limit(Rate(7)),
            of("ship"): Limit(at_once=3),
            of("mail"): Limit(),
            of("book"): Limit(Rate(1)),
            of("x"): Limit(Rate(1)),
        }
    )
    assert limits.effective_limits == {"charge": Limit(Rate(7), None, "tenant_id"), "ship": Limit(at_once=3)}
    limited = {name for name, kind in kinds(routes).items() if kind is RunKind.LIMITED}
    assert limited == {"charge", "ship"}
    assert kinds(routes)["book"] is RunKind.TRANSACTIONAL
    limits.override_limits({})
    assert limits.effective_limits == declared
    assert kinds(routes)["ship"] is RunKind.SYNC
