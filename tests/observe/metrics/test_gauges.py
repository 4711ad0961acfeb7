"""What the database knows, as gauges."""

from overviews import ADA, BOB, GONE, cluster, instance, overview, partition
from prometheus_client import generate_latest
from prometheus_client.core import CollectorRegistry

from partbox.observe.metrics.families import LabelledOverview, build_database_families


class Once:
    """A collector of families that are there already."""

    def __init__(self, families):
        self.families = list(families)

    def collect(self):
        return self.families


def lines(*clusters, mine=()) -> list[str]:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Once(build_database_families("p", [LabelledOverview((), overview(*clusters), mine)])))
    return generate_latest(registry).decode().splitlines()


def test_an_owner_is_shown_by_its_rank_among_the_instances_sorted_by_node_and_pid():
    found = lines(
        cluster(
            [partition(0, BOB), partition(1, ADA), partition(2, None), partition(3, GONE)],
            [instance(BOB, "a", 20), instance(ADA, "a", 30), instance(GONE.__class__(int=9), "a", 4)],
        )
    )
    owners = [line for line in found if line.startswith("p_partition_owner{")]
    assert [line.rpartition(" ")[2] for line in owners] == ["2.0", "3.0", "0.0", "0.0"]
    assert f'{{instance="{BOB}",node="a",partition="0",subscription="default"}}' in owners[0]
    assert '{instance="",node="",partition="2",subscription="default"}' in owners[2]


def test_every_status_is_there_even_if_nothing_has_it():
    found = lines(cluster([partition(0, pending=5)], parked={"dead": 2}, completed=100))
    records = dict(line.rpartition(" ")[::2] for line in found if line.startswith("p_records{"))
    expected = {"pending": 5, "completed": 100, "retrying": 0, "deferred": 0, "scheduled": 0, "held": 0, "ready": 0}
    assert records == {
        f'p_records{{status="{status}",subscription="default"}}': f"{count:.1f}"
        for status, count in {**expected, "dead": 2, "discarded": 0}.items()
    }


def test_ages_are_zero_where_nothing_waits_and_the_mean_is_over_all_partitions():
    found = lines(cluster([partition(0), partition(1, pending=3, oldest_age=4.5)]))
    for line in (
        'p_oldest_pending_age_seconds{subscription="default"} 4.5',
        'p_partition_lag_seconds{partition="0",subscription="default"} 0.0',
        'p_partition_lag_seconds{partition="1",subscription="default"} 4.5',
        'p_partition_pending_avg{subscription="default"} 1.5',
        'p_partition_pending_max{subscription="default"} 3.0',
    ):
        assert line in found


def test_assigned_here_counts_the_partitions_of_this_nodes_processes():
    partitions = [partition(0, ADA), partition(1, ADA), partition(2, BOB), partition(3, None)]
    assert 'p_partitions_assigned_here{subscription="default"} 2.0' in lines(cluster(partitions), mine={ADA})
    assert 'p_partitions_unowned{subscription="default"} 1.0' in lines(cluster(partitions), mine={ADA})


def test_label_values_may_contain_any_characters():
    hostile = 'a"b\\c\nd\x1b[31m\u202e\udce4' + "x" * 10_000
    found = lines(cluster([partition(0, ADA)], [instance(ADA, hostile)], subscription=hostile))
    samples = [line for line in found if line.startswith("p_instance_partitions{")]
    assert len(samples) == 1
    assert 'node="a\\"b\\\\c\\nd' in samples[0]
