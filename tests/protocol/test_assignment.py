"""Equal shares by the fewest moves, decided the same way by everybody."""

from collections import Counter
from uuid import UUID

from hypothesis import example, given
from hypothesis import strategies as st

from partbox.protocol.assignment import assign_partitions, needs_plan


def instance(number: int) -> UUID:
    # Scattered, so that no order of creation can hide in the order of the ids.
    return UUID(int=(number + 1) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128)


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[UUID | None], list[UUID]]:
    """Partitions held by the living, the gone and nobody, and the living in any order."""
    partitions = draw(st.sampled_from([1, 2, 7, 16, 256]))
    living = draw(st.integers(0, 300))
    holders = draw(st.integers(1, 300))
    offset = draw(st.integers(0, 300))
    random = draw(st.randoms(use_true_random=False))
    candidates = [None, *(instance(offset + n) for n in range(holders))]
    held = [random.choice(candidates) for _ in range(partitions)]
    instances = [instance(n) for n in range(living)]
    random.shuffle(instances)
    return held, instances


def moves(before: list[UUID | None], after: list[UUID | None]) -> int:
    return sum(old != new for old, new in zip(before, after, strict=True))


def fewest_moves(partitions: list[UUID | None], instances: list[UUID]) -> int:
    """At most `share` partitions of an instance can stay, one more for at most `larger` of them; the rest moves."""
    counts = Counter(partitions)
    share, larger = divmod(len(partitions), len(instances))
    can_stay = sum(min(counts[i], share) for i in instances)
    can_stay_larger = min(larger, sum(counts[i] > share for i in instances))
    return len(partitions) - can_stay - can_stay_larger


@given(situations())
def test_shares_differ_by_at_most_one_and_nothing_is_left_over(situation):
    partitions, instances = situation
    result = assign_partitions(partitions, instances)
    assert len(result) == len(partitions)
    if instances:
        counts = Counter(result)
        assert set(counts) <= set(instances)
        shares = [counts[i] for i in instances]
        assert max(shares) - min(shares) <= 1
        assert sum(shares) == len(partitions)


@given(situations())
def test_no_partition_moves_that_need_not(situation):
    partitions, instances = situation
    if instances:
        assert moves(partitions, assign_partitions(partitions, instances)) == fewest_moves(partitions, instances)


@given(situations(), st.randoms(use_true_random=False))
def test_every_instance_decides_on_the_same_plan(situation, random):
    partitions, instances = situation
    shuffled = random.sample(instances, len(instances))
    assert (
        assign_partitions(partitions, instances)
        == assign_partitions(partitions, shuffled)
        == assign_partitions(partitions, set(instances))
    )


@given(situations())
@example(([None] * 256, []))
def test_a_plan_applied_needs_no_further_plan(situation):
    partitions, instances = situation
    planned = assign_partitions(partitions, instances)
    assert assign_partitions(planned, instances) == planned
    assert not needs_plan(planned, instances)


@given(situations())
def test_a_plan_is_needed_exactly_when_an_assignee_is_missing_or_shares_are_uneven(situation):
    partitions, instances = situation
    counts = Counter(partitions)
    missing = any(assignee not in instances for assignee in partitions)
    uneven = bool(instances) and max(counts[i] for i in instances) - min(counts[i] for i in instances) > 1
    if instances:
        assert needs_plan(partitions, instances) == (missing or uneven)


@given(st.integers(1, 299))
def test_a_joining_instance_takes_only_its_share(living):
    before = assign_partitions([None] * 256, [instance(n) for n in range(living)])
    everybody = [instance(n) for n in range(living + 1)]
    after = assign_partitions(before, everybody)
    assert {new for old, new in zip(before, after, strict=True) if old != new} <= {instance(living)}


@given(st.integers(2, 300))
def test_a_leaving_instance_moves_only_its_own_partitions(living):
    before = assign_partitions([None] * 256, [instance(n) for n in range(living)])
    after = assign_partitions(before, [instance(n) for n in range(living - 1)])
    moved = {old for old, new in zip(before, after, strict=True) if old != new}
    assert moved <= {instance(living - 1)}


def test_every_partition_is_free_when_no_instance_is_alive():
    assert assign_partitions([instance(1)] * 256, []) == [None] * 256
    assert needs_plan([instance(1)] * 256, [])
    assert not needs_plan([None] * 256, [])


def test_a_balance_that_assign_would_not_have_chosen_is_left_alone():
    a, b = instance(0), instance(1)
    assert not needs_plan([b, a] * 128, [a, b])
    assert not needs_plan([a] * 3 + [b] * 4, [a, b])
    assert needs_plan([a] * 129 + [b] * 127, [a, b])


def test_more_instances_than_partitions_leaves_some_without_any():
    instances = [instance(n) for n in range(300)]
    counts = Counter(assign_partitions([None] * 256, instances))
    assert sorted(counts[i] for i in instances) == [0] * 44 + [1] * 256
