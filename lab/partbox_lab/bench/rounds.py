"""Rounds in which all sides take turns, and ratios, quantiles and latencies of their results."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median, quantiles
from typing import TypeVar

from partbox_lab.bench.budget import Measured

Rates = Sequence[float]
T = TypeVar("T")


def ratio(ours: Rates, theirs: Rates) -> float:
    """Return the median of the ratios of the rounds."""
    return median(one / other for one, other in zip(ours, theirs, strict=True))


def compared(
    name: str, ours: tuple[str, Rates], theirs: tuple[str, Rates], note: str = "", cpu: float | None = None
) -> Measured:
    """Return the ratio of two named series of rates (per second) that were measured in turn."""
    (our_name, our_rates), (their_name, their_rates) = ours, theirs
    said = f"{our_name} {median(our_rates):,.0f}/s, {their_name} {median(their_rates):,.0f}/s"
    details = {our_name: [*our_rates], their_name: [*their_rates]}
    return Measured(name, ratio(our_rates, their_rates), said + in_rounds(len(our_rates)) + note, details, cpu)


def in_turn(
    rounds: int, *sides: Callable[[], T], begin: Callable[[int], object] = lambda _: None
) -> tuple[list[T], ...]:
    """Measure all sides in each round, and return the results of each. Another side comes first each time, and one
    round before the first does not count. `begin` gets the number of each round, 0 for the uncounted one."""
    found: list[tuple[Callable[[], T], list[T]]] = [(side, []) for side in sides]
    for number in range(rounds + 1):
        begin(number)
        for measure, values in rotated(found, number):
            values.append(measure())
    return tuple(values[1:] for _, values in found)


def rotated(sides: Sequence[T], number: int) -> list[T]:
    """Return the sides in the order of a round: another one comes first each time."""
    shift = number % len(sides)
    return [*sides[shift:], *sides[:shift]]


def in_rounds(rounds: int) -> str:
    """Return the number of rounds, worded for a note."""
    return f"; medians of {rounds} rounds" if rounds > 1 else "; one round"


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value at `share`. Fewer than 100 values are not interpolated: the next higher one counts."""
    ordered = sorted(values)
    if len(ordered) < 100:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
    return quantiles(ordered, n=100, method="inclusive")[round(share * 100) - 1]


def latencies(sent: Mapping[int, int], arrived: Mapping[int, int]) -> list[float]:
    """Return the milliseconds from commit to handler of the events that have arrived. Both times are nanoseconds by
    number."""
    return [(arrived[number] - at) / 1e6 for number, at in sent.items() if number in arrived]
