"""The list in which an entity gathers events."""

import copy
import pickle

from hypothesis import given
from hypothesis import strategies as st

from partbox.events.gathering import EventList, EventsMixin, draw_number

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers()),
        st.tuples(st.just("insert"), st.integers(-3, 3)),
        st.tuples(st.just("pop"), st.integers(-3, 3)),
        st.tuples(st.just("set"), st.integers(-3, 3)),
        st.tuples(st.just("cut"), st.integers(-3, 3)),
        st.tuples(st.just("replace"), st.integers(-3, 3)),
    )
)


@given(ACTIONS)
def test_an_event_list_behaves_like_a_list_under_any_operations(actions):
    ours, plain = EventList(), []
    for number, (action, value) in enumerate(actions):
        for each in (ours, plain):
            try:
                match action:
                    case "append":
                        each.append(value)
                    case "insert":
                        each.insert(value, number)
                    case "pop":
                        each.pop(value)
                    case "set":
                        each[value] = number
                    case "cut":
                        del each[value:]
                    case "replace":
                        each[value:] = [number, number]
            except IndexError:
                continue
        assert ours == plain
        assert (len(ours), repr(ours), ours[1:]) == (len(plain), repr(plain), plain[1:])


def test_events_of_several_lists_have_one_common_order_and_later_ones_can_be_dropped():
    one, other = EventList(), EventList()
    one.append("a")
    other.append("b")
    mark = draw_number()
    one.append("c")
    one.forget_after(mark)
    assert one == ["a"]
    taken = sorted([*one.take_events(), *other.take_events()], key=lambda each: each.number)
    assert [each.event for each in taken] == ["a", "b"]
    assert one == other == []
    one.append("d")
    one.put_back(taken)
    assert one == ["a", "b", "d"]


def test_each_instance_has_its_own_event_list_however_it_was_created():
    class Order(EventsMixin): ...

    one, other = Order(), Order.__new__(Order)
    one.events.append("a")
    assert (one.events, other.events) == (["a"], [])
    assert one.events is one.events


def test_a_copy_of_an_event_list_has_the_events_and_notifies_no_observer():
    noticed = []
    events = EventList(["a"], noticed.append)
    for made in (copy.copy(events), copy.deepcopy(events), pickle.loads(pickle.dumps(events))):
        assert made == ["a"]
        made.append("b")
    assert events == ["a"]
    assert len(noticed) == 1
