"""The rounds, in which every peer has its turn and another one comes first each time."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from partbox.errors import PartboxError
from partbox.text.wording import shorten_text
from partbox_lab.bench.rounds import rotated
from partbox_lab.peers.install import Folder
from partbox_lab.peers.measure import disordered, drained, latency, published
from partbox_lab.peers.peer import Peer, PeerRun
from partbox_lab.peers.report import Result
from partbox_lab.peers.server import PeerServer

# The duration of a latency run, by rate.
SECONDS = {1: 30.0, 100: 20.0, 1_000: 10.0}
QUICK_SECONDS = {1: 3.0, 100: 2.0, 1_000: 1.0}
LEAST = 200  # events
LONGEST = 200  # characters of a reason


@dataclass(frozen=True, slots=True)
class Effort:
    """The sizes of a run."""

    events: int
    rounds: int
    seconds: dict[int, float]


def measure(place: PeerServer, folder: Folder, peers: Sequence[Peer], effort: Effort, results: list[Result]) -> None:
    """Install and measure all peers. `results` is filled in place, so an interrupted run keeps its results so far. A
    failing peer gets an error and does not stop the others."""
    cases = []
    for peer in peers:
        cases += _installed(peer, folder)
        results[:] = [result for _, result in cases]
    for number in range(effort.rounds):
        for peer, result in rotated(cases, number):
            if result.versions:
                say(f"round {number + 1}: {result.peer}, order {result.order}")
                for work in _turn(place, peer, result, effort):
                    _attempt(result, work)


def say(text: str) -> None:
    """Print a line with the time to stderr."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _installed(peer: Peer, folder: Folder) -> list[tuple[Peer, Result]]:
    say(f"installing {peer.name}")
    first, *others = results = [Result(peer.name, order, peer.settings) for order in peer.orders]

    def install() -> None:
        first.versions = peer.install(folder)

    _attempt(first, install)
    for each in others:
        each.versions, each.error = first.versions, first.error
    return [(peer, each) for each in results]


def _turn(place: PeerServer, peer: Peer, result: Result, effort: Effort) -> Iterator[Callable[[], None]]:
    """Yield the measurements of a round one after the other. Each may fail by itself."""
    order = result.order
    events = max(LEAST, int(effort.events * peer.orders[order]))
    yield lambda: result.published.append(published(place, peer, order, events))
    yield lambda: result.drained.append(drained(place, peer, PeerRun(order, 1), events))
    yield lambda: result.drained.append(drained(place, peer, PeerRun(order, 2), events))
    for rate, seconds in effort.seconds.items():
        yield partial(_latency, place, peer, result, rate, seconds)
    if not result.disorder:
        yield lambda: result.disorder.append(disordered(place, peer, order))


def _latency(place: PeerServer, peer: Peer, result: Result, rate: int, seconds: float) -> None:
    result.latencies.append(latency(place, peer, PeerRun(result.order, 1, watched=True), rate, seconds))


def _attempt(result: Result, work: Callable[[], None]) -> None:
    """Call `work`. The first failure becomes the error of the result."""
    try:
        work()
    except Exception as error:
        reason = shorten_text(str(error), LONGEST)
        said = reason if isinstance(error, PartboxError) else f"{type(error).__name__}: {reason}"
        result.error = result.error or said
        say(f"  {result.peer}: {said}")
