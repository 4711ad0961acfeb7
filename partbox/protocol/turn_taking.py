"""Turns of the nodes of a subscription, in what any one of them does for all."""

AT_ONCE = 10  # nodes of which each does it every time
BEATING = 100  # nodes of which each beats every time
SLOWEST = 0.22  # of the lease, from one heartbeat to the next of more of them


def share(nodes: int) -> float:
    """The part of its turns that one of so many nodes takes: up to `AT_ONCE` all, and more of them as many together.

    Each draws by it anew, so who is left when others have gone takes its turns again at once.
    """
    return min(1.0, AT_ONCE / max(1, nodes))


def between_beats(nodes: int, heartbeat: float, lease: float) -> float:
    """Seconds from one heartbeat of a node to its next, where `heartbeat` is asked for and there are so many nodes.

    More than `BEATING` share as many beats: each is a commit of the server. What a lease promises stays: it is renewed
    four times while it lasts, and a node that has died is found late before another would have missed two beats.
    """
    return max(heartbeat, min(heartbeat * max(1.0, nodes / BEATING), SLOWEST * lease))
