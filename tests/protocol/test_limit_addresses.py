"""Under which key an event waits: something closed first, and then its handler's limit."""

from hypothesis import given
from hypothesis import strategies as st

from partbox.protocol.limit_addresses import WAITS, EventKeys, LimitAddress, LimitKind, describe_wait
from partbox.protocol.limit_values import format_limit_value

values = st.sampled_from([None, "a", "4711", 4711, True, ("a", 1)])
events = st.builds(
    EventKeys,
    st.sampled_from(["send", "ship"]),
    values,
    st.sampled_from(["Paid", "Sent"]),
    st.sampled_from([None, "a", "b"]),
    st.booleans(),
    values,
)
texts = st.sampled_from(["none", "a", "4711", "True", "('a', 1)"])
addresses = st.one_of(
    st.builds(LimitAddress, st.just(LimitKind.VALUE), st.sampled_from(["send", "ship"]), texts),
    st.builds(LimitAddress, st.just(LimitKind.TYPE), st.just(""), st.sampled_from(["Paid", "Sent"])),
    st.builds(LimitAddress, st.just(LimitKind.TENANT), st.just(""), st.sampled_from(["a", "b"])),
    st.builds(LimitAddress, st.just(LimitKind.CIRCUIT), st.sampled_from(["send", "ship"]), values),
)


def holds(address: LimitAddress, event: EventKeys) -> bool:
    """True if the event may not start while this is closed, said in another way than the rule does."""
    match address:
        case (LimitKind.TYPE, _, value):
            return value == event.event_type
        case (LimitKind.TENANT, _, value):
            return value == event.tenant_id
        case (LimitKind.CIRCUIT, handler, value):
            return event.has_circuit and (handler, value) == (event.handler, event.circuit_value)
    found = [event.limit_value, event.circuit_value] if event.has_circuit else [event.limit_value]
    return address.handler == event.handler and address.value in map(format_limit_value, found)


@given(events, st.frozensets(addresses, max_size=4))
def test_an_event_waits_for_something_closed_that_holds_it_or_else_under_its_handlers_limit(
    event: EventKeys, closed: frozenset[LimitAddress]
) -> None:
    name, value = event.find_key(closed)
    holding = {each for each in closed if holds(each, event)}
    if holding:
        assert (name in holding, value) == (True, None)
    else:
        assert (name, value) == (event.handler, event.limit_value)


@given(st.one_of(addresses, st.just("send")), st.booleans())
def test_the_reason_of_every_wait_is_known_by_its_beginning(name: LimitAddress | str, is_closed: bool) -> None:
    assert describe_wait((name, None), is_closed=is_closed).startswith(WAITS)
