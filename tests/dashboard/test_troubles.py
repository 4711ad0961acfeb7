"""The troubles of the page: alarms of the last look and doctor's findings, as one list."""

import shlex

from hypothesis import given
from hypothesis import strategies as st

from partbox.dashboard.alarms import CAUSES
from partbox.dashboard.problems import BAD, WARN, Problem, select_problems, split_remedy
from partbox.doctor.case import Finding, Severity
from partbox.doctor.checks import CHECKS
from partbox.text.wording import format_command

PROBLEM, WARNING, NOTE = Severity


def finding(severity, cause, subscription="default", **fields):
    return Finding(severity, f"something is {cause}", subscription=subscription, cause=cause, **fields)


def listed(alarms, findings):
    return [(each.level, each.name) for each in select_problems(alarms, findings, "default", CAUSES)]


def test_every_alarm_has_the_name_of_a_check_of_doctor():
    assert {each.name for each in CHECKS} >= CAUSES


def test_the_worst_problem_comes_first_and_general_problems_are_shown_for_every_subscription():
    findings = [finding(NOTE, "durability", None), finding(WARNING, "dead"), finding(PROBLEM, "braked")]
    alarms = [Problem(WARN, "paused", "It is paused.")]
    assert listed(alarms, findings) == [("bad", "braked"), ("warn", "paused"), ("warn", "dead"), ("note", "durability")]


def test_a_cause_that_explains_others_stands_above_what_it_causes():
    alarms = [Problem(BAD, "no-workers", "No worker process runs.")]
    findings = [finding(PROBLEM, "dead-flood"), finding(PROBLEM, "privileges", None), finding(PROBLEM, "no-workers")]
    assert [name for _, name in listed(alarms, findings)] == ["privileges", "no-workers", "dead-flood"]


def test_a_note_about_what_is_over_offers_no_action():
    actions = {each.name: each.actions for each in select_problems([], [finding(NOTE, "dead-flood")], "default", ())}
    assert actions == {"dead-flood": ()}


def test_an_alarm_takes_its_evidence_and_remedy_from_the_finding_of_doctor():
    doctors = finding(PROBLEM, "no-workers", evidence=("12 records pending",), remedy=("start `partbox worker`",))
    (trouble,) = select_problems([Problem(BAD, "no-workers", "No worker process runs.")], [doctors], "default", CAUSES)
    assert (trouble.text, trouble.evidence, trouble.remedy) == (
        "No worker process runs.",
        ("12 records pending",),
        ("start `partbox worker`",),
    )
    # It is over already: the look is newer.
    assert listed([], [doctors]) == []


def test_problems_of_other_subscriptions_are_one_line_each_that_leads_there():
    findings = [finding(PROBLEM, "braked", "audit"), finding(PROBLEM, "dead-flood", "audit"), finding(NOTE, "x", "b")]
    (trouble,) = select_problems([], findings, "default", CAUSES)
    assert (trouble.text, trouble.actions, trouble.subscription) == (
        "Subscription audit: something is braked, and 1 other problem.",
        ("choose",),
        "audit",
    )


def test_texts_of_problems_are_shortened_and_made_harmless_but_commands_are_unchanged():
    long = Finding(PROBLEM, "x" * 9_000 + "\u202e", ("postgresql://shop:hunter2@db \x1b[2J",), ("do `a  'b  c'`",))
    plain = select_problems([], [long], "default", CAUSES)[0].to_plain()
    assert len(plain["text"]) == 500
    assert plain["evidence"] == [r"postgresql://shop:***@db \x1b[2J"]
    assert plain["remedy"] == [[("do ", False), ("a  'b  c'", True)]]


def test_a_remedy_is_split_into_words_and_commands():
    assert list(split_remedy("see `partbox dead list`; a higher `max_parked` does not help")) == [
        ("see ", False),
        ("partbox dead list", True),
        ("; a higher ", False),
        ("max_parked", True),
        (" does not help", False),
    ]
    assert list(split_remedy("no command, node's log, a lone `")) == [("no command, node's log, a lone `", False)]


@given(st.text(alphabet="a `'\"$;", max_size=12))
def test_no_aggregate_name_in_a_remedy_can_form_another_command(name):
    found = list(split_remedy(f"at once: {format_command('blocked retry', 'partbox', None, 'Order', name)}"))
    assert [code for code, is_code in found if is_code] == [shlex.join(["partbox", "blocked", "retry", "Order", name])]
