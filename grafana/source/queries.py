"""The PromQL of the panels.

Every node exports the same numbers of the database, so they are merged by `max`; what a node counted itself is summed.
A dashboard shows one scrape job (one outbox) and any of its subscriptions. The label `database` is there only where a
node works for several databases; without it, it is as if nobody had named it.
"""

CHOSEN = 'job="$job", database=~"$database", subscription=~"$subscription"'
BY = ("database", "subscription")
OF_HANDLER = (*BY, "handler")
OF_PARTITION = (*BY, "partition")
OF_INSTANCE = (*BY, "node", "instance")
WHOSE = "{{subscription}} {{database}}"
"""The end of every legend."""


def series(metric: str, **labels: str) -> str:
    """The chosen series of a metric; a label's value is a pattern."""
    wanted = [CHOSEN, *(f'{name}=~"{value}"' for name, value in labels.items())]
    return f"partbox_{metric}{{{', '.join(wanted)}}}"


def database(metric: str, by: tuple[str, ...] = BY, **labels: str) -> str:
    """A number of the database."""
    return f"max by ({', '.join(by)}) ({series(metric, **labels)})"


def nodes(metric: str, by: tuple[str, ...] = BY, **labels: str) -> str:
    """A gauge of the processes, over all nodes."""
    return f"sum by ({', '.join(by)}) ({series(metric, **labels)})"


def rate(metric: str, by: tuple[str, ...] = BY, **labels: str) -> str:
    """What the nodes counted, a second."""
    return f"sum by ({', '.join(by)}) (rate({series(metric, **labels)}[$__rate_interval]))"


def increase(metric: str, by: tuple[str, ...] = BY, **labels: str) -> str:
    """What the nodes counted in each step of a panel, whose steps are of a minute or more."""
    return f"sum by ({', '.join(by)}) (increase({series(metric, **labels)}[$__interval]))"


def quantile(share: float, metric: str, by: tuple[str, ...] = BY, **labels: str) -> str:
    """Of a histogram: the value that so large a share of what was observed did not exceed."""
    return f"histogram_quantile({share}, {rate(f'{metric}_bucket', ('le', *by), **labels)})"


def quantiles(
    metric: str, legend: str, by: tuple[str, ...] = BY, shares: tuple[float, ...] = (0.5, 0.95, 0.99), **labels: str
) -> list[tuple[str, str]]:
    """Several quantiles, each with its legend, such as p50."""
    return [(quantile(share, metric, by, **labels), f"p{share * 100:g} {legend}") for share in shares]


def mean(metric: str, by: tuple[str, ...] = BY, **labels: str) -> str:
    """Of a histogram: the mean of what was observed."""
    return f"{rate(f'{metric}_sum', by, **labels)} / {rate(f'{metric}_count', by, **labels)}"


def in_order(expression: str) -> str:
    """The same with partitions as 000 to 255, as Prometheus sorts labels as texts."""
    once = f'label_replace({expression}, "partition", "00$1", "partition", "([0-9])")'
    return f'label_replace({once}, "partition", "0$1", "partition", "([0-9]{{2}})")'
