"""Handlers: registration, routes, and their way into another process."""

import functools
import subprocess
import sys
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parcels import pack, unpack

from partbox import Outbox
from partbox.errors import RegistrationError
from partbox.handlers import Handlers
from partbox.handlers.handler import MAX_CACHED, Routes
from partbox.protocol.limits import Limit, Rate
from partbox.protocol.retry import Fixed
from partbox.settings import Settings


class Kind(Enum):
    PLACED = "OrderPlaced"
    PAID = 2


class Projection:
    event_type = Kind.PLACED
    aggregate_type = "Order"

    def __init__(self) -> None:
        self.seen: list[object] = []

    def handle(self, event: object) -> None:
        self.seen.append(event)


class AsyncProjection:
    async def handle(self, event: object) -> None: ...


class Callable:
    def __call__(self, event: object) -> str:
        return f"called with {event}"


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


def found(handlers, event_type, aggregate_type="Order", subscription="default", **settings):
    return handlers.build_routes(subscription, Settings(**settings))[event_type, aggregate_type]


def test_the_most_specific_handler_is_called(handlers):
    for pair in (("Placed", "Order"), ("Placed", None), ("*", "Order"), ("*", None)):
        handlers.register(lambda event: None, *pair, name=str(pair))
    names = {(t, a): found(handlers, t, a).name for t in ("Placed", "Paid") for a in ("Order", "Customer")}
    assert names == {
        ("Placed", "Order"): "('Placed', 'Order')",
        ("Placed", "Customer"): "('Placed', None)",
        ("Paid", "Order"): "('*', 'Order')",
        ("Paid", "Customer"): "('*', None)",
    }


PATTERNS = (("Placed", "Order"), ("Placed", None), ("*", "Order"), ("*", None))


@given(registered=st.sets(st.sampled_from(PATTERNS)), event=st.sampled_from(("Placed", "Paid")), of=st.just("Order"))
def test_a_route_shared_by_all_events_is_known_without_a_look_up(registered, event, of):
    routes = Routes({pair: str(pair) for pair in registered}, "nobody")
    assert routes.only_route == ("('*', None)" if registered == {("*", None)} else None)
    assert routes.only_route in (None, routes[event, of])


@given(registered=st.sets(st.sampled_from(PATTERNS)), event=st.sampled_from(("Placed", "Paid", "*")))
def test_the_route_of_an_event_type_is_known_unless_it_depends_on_the_aggregate_type(registered, event):
    routes = Routes({pair: str(pair) for pair in registered}, "nobody")
    found = {routes[event, "Order"], routes[event, "Customer"]}
    assert routes.find_by_type(event) == (found.pop() if len(found) == 1 else None)


def test_an_event_without_a_handler_is_treated_as_on_unroutable_says(handlers):
    handlers.register(Projection())
    assert found(handlers, "OrderPlaced").event_type == "OrderPlaced"
    assert found(handlers, "OrderPlaced", "Customer").name == "on_unroutable"
    assert found(handlers, "OrderPlaced", subscription="audit").name == "on_unroutable"


def test_the_decorator_leaves_the_function_as_it_is(handlers):
    @handlers.on("Placed")
    def confirm(event):
        return f"confirmed {event}"

    assert confirm(3) == "confirmed 3"
    assert found(handlers, "Placed").call is confirm


@pytest.mark.parametrize(
    "handler",
    [
        Projection(),
        AsyncProjection(),
        Callable(),
        functools.partial(print, "event"),
        [].append,
        lambda event, more=None: None,
    ],
)
def test_functions_objects_and_partials_are_handlers(handlers, handler):
    handlers.register(handler, "Placed")
    assert callable(found(handlers, "Placed").call)


def test_async_handlers_are_recognised(handlers):
    async def notify(event): ...

    class Awaited:
        async def __call__(self, event): ...

    for number, handler in enumerate([notify, AsyncProjection(), functools.partial(notify), Awaited()]):
        handlers.register(handler, f"async {number}")
        assert found(handlers, f"async {number}").is_async
    handlers.register(Projection(), "sync")
    assert not found(handlers, "sync").is_async


def bare_function(event): ...


class BareClass:
    def handle(self, event): ...


@pytest.mark.parametrize("decorator", ["on", "on_batch"])
@pytest.mark.parametrize(
    "bare", [bare_function, BareClass, BareClass(), staticmethod(bare_function), classmethod(bare_function)]
)
def test_a_decorator_without_parentheses_is_refused_with_the_remedy(handlers, decorator, bare):
    says = rf"^@outbox\.{decorator} stands above .*[Bb]are.* write @outbox\.{decorator}\(\"OrderPlaced\"\), or .*\*"
    for registry in (handlers, Outbox("postgresql://nowhere")):
        with pytest.raises(RegistrationError, match=says):
            getattr(registry, decorator)(bare)
    assert handlers.build_table() == []


def test_a_callable_object_is_accepted_as_an_event_type(handlers):
    class Called(Enum):
        PLACED = "OrderPlaced"

        def __call__(self): ...

    handlers.on(Called.PLACED)(print)
    assert found(handlers, "OrderPlaced").call is print


def test_a_handler_for_several_aggregate_types_is_registered_for_all_or_none(handlers):
    handlers.register(print, "Placed", "Order")
    with pytest.raises(RegistrationError, match="'Placed' of Order has a handler"):
        handlers.register_for(len, "Placed", ["Cart", "Order"])
    assert found(handlers, "Placed", "Cart").name == "on_unroutable"
    handlers.register_for(len, "Placed", ["Cart", "Bill"])
    assert [found(handlers, "Placed", each).call for each in ("Cart", "Bill", "Order")] == [len, len, print]


def test_an_object_may_carry_its_types_and_an_enum_may_name_them(handlers):
    projection = Projection()
    handlers.register(projection)
    handlers.register(print, Kind.PAID)
    found(handlers, "OrderPlaced").call("seen")
    assert projection.seen == ["seen"]
    assert found(handlers, "PAID").call is print


def test_options_that_a_handler_leaves_out_follow_the_settings(handlers):
    handlers.register(print, "plain")
    other = {"retry": "fixed:3", "max_attempts": None, "on_failure": "continue", "on_dead": "block", "timeout": "5m"}
    handlers.register(print, "own", **other)
    usual = {"retry": Fixed(1), "max_attempts": 4, "on_failure": "block", "on_dead": "continue", "handler_timeout": 9}
    plain, own = (found(handlers, name, **usual) for name in ("plain", "own"))
    assert (plain.retry, plain.max_attempts, plain.on_failure, plain.on_dead, plain.timeout) == (
        Fixed(1),
        4,
        "block",
        "continue",
        9,
    )
    assert (own.retry, own.max_attempts, own.on_failure, own.on_dead, own.timeout) == (
        Fixed(3),
        None,
        "continue",
        "block",
        300,
    )


def test_the_errors_of_a_circuit_follow_the_setting_unless_the_handler_says_otherwise(handlers):
    handlers.register(print, "plain")
    handlers.register(print, "more", circuit_on=KeyError)
    handlers.register(print, "own", circuit="ValueError", circuit_on=KeyError)
    handlers.register(print, "off", circuit="off", circuit_on=KeyError)
    names = ("plain", "more", "own", "off", "unknown")
    usual = [found(handlers, name).circuit for name in names]
    assert usual == [(OSError, TimeoutError), (OSError, TimeoutError, KeyError), (ValueError, KeyError), None, usual[0]]
    named = [found(handlers, name, circuit=[LookupError]).circuit for name in names]
    assert named == [(LookupError,), (LookupError, KeyError), (ValueError, KeyError), None, (LookupError,)]
    assert [found(handlers, name, circuit="off").circuit for name in names] == [None, None, usual[2], None, None]
    options = {row.event_type: row.options for row in handlers.build_table()}
    assert options["own"] == {"circuit": "ValueError", "circuit_on": "KeyError"}
    assert options["off"]["circuit"] == "off"


def test_every_kind_of_handler_may_declare_limits_but_a_transactional_one(handlers):
    handlers.on("one", rate="6000/m", at_once=5)(print)
    handlers.on_batch("list", at_once=2, limit_by="tenant_id", name="list")(print)
    handlers.register(print, "none", name="none")
    assert found(handlers, "one").limit == Limit(Rate(100), 5, None)
    assert found(handlers, "list").limit == Limit(None, 2, "tenant_id")
    assert found(handlers, "none").limit == found(handlers, "unknown").limit == Limit()
    options = {row.event_type: row.options for row in handlers.build_table()}
    assert options["one"] == {"rate": "100/s", "at_once": "5"}
    for limit in ({"rate": "1/s"}, {"at_once": 1}, {"limit_by": "tenant_id"}):
        with pytest.raises(RegistrationError, match=r"is transactional and has .* leave out"):
            handlers.on("own", transactional=True, **limit)(lambda event, conn: None)


def test_two_handlers_of_one_name_have_one_limit(handlers):
    handlers.register(print, "first", rate="60/m")
    handlers.register(print, "second", rate="1/s")
    assert found(handlers, "first").limit == found(handlers, "second").limit
    handlers.register(print, "third")
    with pytest.raises(RegistrationError, match="the same name but different limits"):
        handlers.build_routes("default", Settings())


def test_no_timeout_differs_from_the_timeout_of_the_settings(handlers):
    handlers.register(print, "slow", timeout=None)
    assert found(handlers, "slow", handler_timeout=9).timeout is None


def test_a_second_handler_of_a_pair_is_refused_naming_both_places(handlers):
    def first(event): ...
    def second(event): ...

    handlers.register(first, "Placed", "Order")
    handlers.register(second, "Placed", "Order", "audit")
    with pytest.raises(RegistrationError) as refused:
        handlers.register(second, "Placed", "Order")
    lines = [f"test_handlers.py:{f.__code__.co_firstlineno}" for f in (first, second)]
    assert all(line in str(refused.value) for line in lines)
    assert "another aggregate type or subscription" in str(refused.value)
    assert found(handlers, "Placed").call is first


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (42, "give a function"),
        (Projection, "register an instance"),
        (lambda: None, "exactly one positional argument"),
        (lambda event, connection: None, "exactly one positional argument"),
        (lambda event, *, key: None, "exactly one positional argument"),
        (lambda event: (yield), "generator"),
    ],
)
def test_an_object_that_cannot_take_an_event_is_refused_as_a_handler(handlers, handler, says):
    with pytest.raises(RegistrationError, match=says):
        handlers.register(handler, "Placed")
    assert handlers.build_table() == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_attempts": 0},
        {"max_attempts": 2.5},
        {"max_attempts": True},
        {"on_failure": "stop"},
        {"on_dead": ""},
        {"timeout": 0},
        {"timeout": "soon"},
        {"retry": "often"},
        {"circuit": 5},
        {"circuit": "a b"},
        {"circuit_on": int},
        {"rate": "often"},
        {"rate": 100},
        {"at_once": 0},
        {"at_once": True},
        {"limit_by": ""},
        {"limit_by": 5},
        {"name": 5},
        {"subscription": ""},
        {"event_type": ""},
        {"event_type": 5},
        {"aggregate_type": "a\0b"},
        {"retries": 3},
    ],
)
def test_a_wrong_option_is_refused_naming_option_value_and_place(handlers, wrong):
    ((option, value),) = wrong.items()
    with pytest.raises(RegistrationError) as refused:
        handlers.register(Projection().handle, **{"event_type": "Placed", **wrong})
    assert option in str(refused.value)
    assert "test_handlers.py" in str(refused.value)
    assert repr(value) in str(refused.value) or option == "retries"
    assert handlers.build_table() == []


def test_a_handler_without_event_type_is_refused(handlers):
    with pytest.raises(RegistrationError, match="event_type"):
        handlers.register(AsyncProjection())


def test_the_table_lists_every_handler_with_catch_alls_last(handlers):
    handlers.register(print, "*")
    handlers.register(AsyncProjection(), "Placed", max_attempts=3)
    handlers.register(Projection())
    handlers.register(print, "Placed", subscription="audit")
    rows = [(row.subscription, row.event_type, row.aggregate_type, row.kind) for row in handlers.build_table()]
    assert rows == [
        ("audit", "Placed", None, "sync"),
        ("default", "OrderPlaced", "Order", "sync"),
        ("default", "Placed", None, "async"),
        ("default", "*", None, "sync"),
    ]
    assert [row.options for row in handlers.build_table("default")] == [{}, {"max_attempts": "3"}, {}]
    assert [row.subscription for row in handlers.build_table("audit")] == ["audit"]


def test_endlessly_many_event_types_do_not_fill_the_memory(handlers):
    handlers.register(print, "Placed")
    routes = handlers.build_routes("default", Settings())
    for number in range(MAX_CACHED * 2 + 5):
        assert routes[f"unknown {number}", "Order"].name == "on_unroutable"
        assert routes["Placed", "Order"].call is print
        assert len(routes) <= MAX_CACHED


def test_a_registry_of_objects_closures_and_lambdas_can_be_pickled(handlers):
    prefix = "hello"
    handlers.register(Projection())
    handlers.register(lambda event: f"{prefix} {event}", "Greeted", retry=Fixed(2))
    copy = unpack(pack(handlers))
    assert found(copy, "Greeted").call("you") == "hello you"
    assert found(copy, "Greeted").retry == Fixed(2)
    found(copy, "OrderPlaced").call("seen")
    assert [row[:5] for row in copy.build_table()] == [row[:5] for row in handlers.build_table()]


MAIN = """
from multiprocess import get_context

from partbox.handlers import Handlers
from partbox.supervisor.job_pickling import PicklableJob, SpawnedWorker
from there import call_both

handlers = Handlers()
greeting = "hello"


@handlers.on("Greeted")
def greet(event):
    return f"{greeting} {event}"


class Shout:
    event_type = "Shouted"

    def handle(self, event):
        return event.upper()


handlers.register(Shout())


if __name__ == "__main__":
    received, sent = get_context("spawn").Pipe(duplex=False)
    process = SpawnedWorker(target=call_both, args=(PicklableJob(handlers), sent))
    process.start()
    sent.close()
    print(received.recv())
    process.join()
"""


THERE = """
from partbox.settings import Settings


def call_both(job, sent):
    routes = job.unpickle_job().build_routes("default", Settings())
    sent.send([routes[kind, "Any"].call("you") for kind in ("Greeted", "Shouted")])
"""


def test_handlers_of_the_main_program_run_in_a_spawned_process(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(MAIN)
    (tmp_path / "there.py").write_text(THERE)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "['hello you', 'YOU']", done.stderr
