"""Around a handler of batches: what runs, and what each part sees of the others."""

import pytest
from recording_interceptors import BOTH, EVENT, EVENTS, AwaitedLists, Broken, Layer, Lists, Plain, made, raising, run

from partbox.interceptors import check_interceptor


@pytest.mark.parametrize(("kind", "awaited"), [(Lists, False), (Lists, True), (AwaitedLists, True)])
@pytest.mark.parametrize(
    ("returned", "outcomes"),
    [
        ([1, 2, 3], [1, 2, 3]),
        ((1, 2, 3), [1, 2, 3]),
        (None, [None] * 3),
        ([1, 2], [None] * 3),
        (42, [42] * 3),
        ("abc", ["abc"] * 3),
    ],
)
def test_batch_methods_get_the_list_and_an_outcome_per_event(kind, awaited, returned, outcomes):
    journal = []
    assert run(lambda events: returned, [kind(journal)], EVENTS, awaited=awaited, is_batch=True) is returned
    assert journal == [("witness", "before_batch", *EVENTS), ("witness", "after_batch", EVENTS, outcomes, None)]


@BOTH
def test_interceptors_without_batch_methods_are_called_for_each_event(awaited):
    journal = []
    run(lambda events: [1, 2, 3], [Plain(journal)], EVENTS, awaited=awaited, is_batch=True)
    assert journal == [("witness", "before", event) for event in EVENTS] + [
        ("witness", "after", event, outcome, None) for event, outcome in (("c", 3), ("b", 2), ("a", 1))
    ]


@BOTH
def test_an_exception_among_the_outcomes_is_the_error_of_its_event(awaited):
    journal, error = [], ValueError("b")
    run(lambda events: [1, error, 3], [Plain(journal)], EVENTS, awaited=awaited, is_batch=True)
    assert [entry[2:] for entry in journal[3:]] == [("c", 3, None), ("b", None, error), ("a", 1, None)]


@BOTH
def test_an_interceptor_may_have_a_batch_method_beside_one_for_events(awaited):
    class Mixed:
        def before_batch(self, events):
            journal.append(("before", *events))

        def after(self, event, outcome, error):
            journal.append(("after", event))

    journal = []
    run(lambda events: None, [Mixed()], EVENTS, awaited=awaited, is_batch=True)
    assert journal == [("before", *EVENTS), ("after", "c"), ("after", "b"), ("after", "a")]


@BOTH
def test_the_error_of_a_batch_handler_is_passed_to_after_for_each_event(awaited):
    journal, error = [], ValueError("no")
    with pytest.raises(ValueError, match="no"):
        run(raising(error), [Lists(journal), Plain(journal)], EVENTS, awaited=awaited, is_batch=True)
    assert journal[4:] == [
        *(("witness", "after", event, None, error) for event in reversed(EVENTS)),
        ("witness", "after_batch", EVENTS, [None] * 3, error),
    ]


@BOTH
def test_a_failing_before_ends_its_batch_and_after_is_called_only_for_events_that_had_begun(awaited):
    class Choosy(Plain):
        def before(self, event):
            self.note("before", event)
            if event == "c":
                raise Broken("c")

    journal = []
    with pytest.raises(Broken):
        run(lambda events: journal.append("handled"), [Choosy(journal), Plain(journal, "inner")], EVENTS,
            awaited=awaited, is_batch=True)  # fmt: skip
    assert [entry[:3] for entry in journal] == [
        *(("witness", "before", event) for event in EVENTS), ("witness", "after", "b"), ("witness", "after", "a")
    ]  # fmt: skip


@BOTH
def test_after_batch_is_not_called_if_before_batch_failed(awaited):
    journal = []
    with pytest.raises(Broken):
        run(lambda events: None, [Lists(journal, fails=["before_batch"])], EVENTS, awaited=awaited, is_batch=True)
    assert journal == [("witness", "before_batch", *EVENTS)]


@BOTH
def test_batch_methods_that_modify_their_lists_change_no_outcome_and_no_batch(awaited):
    class Careless:
        def before_batch(self, events):
            events.clear()

        def after_batch(self, events, outcomes, error):
            events.clear()
            outcomes.clear()

    handled, outcomes = [], [1, 2, 3]
    run(lambda events: handled.extend(events) or outcomes, [Careless()], EVENTS, awaited=awaited, is_batch=True)
    assert handled == EVENTS == ["a", "b", "c"]
    assert outcomes == [1, 2, 3]


@BOTH
def test_an_after_batch_that_fails_is_logged_with_its_first_event(awaited, caplog):
    interceptor = Lists([], fails=["after_batch"])
    run(lambda events: None, [interceptor], EVENTS, awaited=awaited, is_batch=True)
    (record,) = caplog.records
    assert "3 events from a" in record.getMessage()


@BOTH
def test_an_after_that_fails_for_one_event_of_a_batch_is_called_for_the_others(awaited, caplog):
    journal = []
    run(lambda events: None, [Plain(journal, fails=["after"])], EVENTS, awaited=awaited, is_batch=True)
    assert len(caplog.records) == 3
    assert [entry[2] for entry in journal[3:]] == ["c", "b", "a"]


@BOTH
def test_a_context_manager_is_entered_for_each_event_of_a_batch_and_left_in_reverse(awaited):
    layer = Layer(True, awaited, *[False] * 3)
    journal = []
    interceptors = [made(layer, journal, "manager")]
    outcomes = run(lambda events: [*events], interceptors, EVENTS, awaited=awaited, is_batch=True)
    assert outcomes == EVENTS
    assert [entry[1:3] for entry in journal] == [
        ("before", "a"), ("before", "b"), ("before", "c"), ("after", "c"), ("after", "b"), ("after", "a")
    ]  # fmt: skip


def test_batch_methods_are_ignored_for_a_handler_of_single_events():
    class OnlyLists:
        async def before_batch(self, events): ...

    check_interceptor(OnlyLists())
    assert run(lambda event: 1, [OnlyLists()], EVENT) == 1
