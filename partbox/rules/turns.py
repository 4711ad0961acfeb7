"""Turns of the nodes of a subscription, in what any one of them does for all."""

AT_ONCE = 10  # nodes of which each does it every time


def share(nodes: int) -> float:
    """The part of its turns that one of so many nodes takes: up to `AT_ONCE` all, and more of them as many together.

    Each draws by it anew, so who is left when others have gone takes its turns again at once.
    """
    return min(1.0, AT_ONCE / max(1, nodes))
