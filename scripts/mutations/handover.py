"""Handing over: what keeps a partition without an owner for longer than it takes."""

from mutations.mutation import Mutation

ANNOUNCED = "tests/supervisor/test_plans_are_announced.py"

MUTATIONS = (
    Mutation(
        "waiting-for-nobody",
        "What another process releases would be claimed only at the next of four ticks a second.",
        "partbox/worker/ownership/ownership.py",
        "awaits_release = any(row.is_assigned and not row.is_owned and not row.is_free for row in "
        "seen.partitions or ())",
        "awaits_release = False",
        (
            "tests/engine/test_owned_partitions.py::test_a_process_awaits_the_release_of_an_assigned_partition_that_another_owns",
        ),
    ),
    Mutation(
        "impatient-for-ever",
        "Who waits for a handler of hours would ask the server a hundred times a second for as long.",
        "partbox/protocol/intervals.py",
        "max(AWAIT_TICK, awaited / AWAIT_DIVISOR)",
        "AWAIT_TICK",
        (
            "tests/protocol/test_ticks.py::test_a_process_that_awaits_a_partition_ticks_often_at_first_and_later_at_the_usual_interval",
        ),
    ),
    Mutation(
        "a-plan-that-is-news-for-ever",
        "A process without an identity would tick at each of its looks.",
        "partbox/worker/ownership/ownership.py",
        "        self._plan_count, self._wakeup.has_changes = self._slot[PLAN_COUNT], False\n        if "
        "self.instance_id is None:\n",
        "        if self.instance_id is None:\n",
        (
            "tests/engine/test_owned_partitions.py::test_a_new_plan_stops_being_news_at_the_next_tick_of_a_process_without_an_identity",
        ),
    ),
    Mutation(
        "a-plan-that-rings-nobody",
        "A process that sleeps for two seconds sees after that what it is to take or to give.",
        "sql/functions/plan.sql",
        "    perform {schema}.tell('changed ' || plan.subscription);\n",
        "",
        ("tests/db/operator/test_changes_are_told.py::test_workers_are_notified_of_a_change_once_it_is_committed",),
    ),
    Mutation(
        "late-as-it-has-not-beaten-since-the-last-look",
        "Of hundreds of nodes one always beats just after a look, and everybody looks at each heartbeat.",
        "partbox/supervisor/membership.py",
        "since if self.node_count <= FULL_SHARE_NODES else None",
        "since",
        (
            "tests/db/delivery/test_watch.py::test_one_of_many_nodes_is_not_late_for_lack_of_a_heartbeat_since_the_last_observation",
        ),
    ),
    Mutation(
        "beats-as-rare-as-there-are-nodes",
        "A thousand nodes would beat less often than their lease asks for, and be buried alive.",
        "partbox/protocol/intervals.py",
        "min(heartbeat * max(1.0, nodes / FULL_BEAT_NODES), MAX_BEAT_OF_LEASE * lease)",
        "heartbeat * max(1.0, nodes / FULL_BEAT_NODES)",
        ("tests/protocol/test_intervals.py::test_more_nodes_send_heartbeats_less_often_but_still_four_times_a_lease",),
    ),
    Mutation(
        "a-plan-after-a-death-kept-secret",
        "Partitions of a process that died would wait a quarter of a second longer for its neighbours.",
        "partbox/supervisor/membership.py",
        "            self._publish_plans(others)\n",
        "",
        (f"{ANNOUNCED}::test_surviving_processes_are_notified_of_the_plan_after_a_death",),
    ),
    Mutation(
        "a-release-that-rests",
        "A partition that is dirty when it begins to drain would be released only after the rest from the save before.",
        "partbox/worker/engine/state.py",
        "        if partition.is_draining and not partition.running_count:\n            self.wakes.interrupt_saver()\n",
        "            if partition.is_draining and not partition.running_count:\n                "
        "self.wakes.interrupt_saver()\n",
        (
            "tests/engine/test_owned_partitions.py::test_the_next_save_is_hurried_as_soon_as_a_partition_may_be_released",
        ),
    ),
)
