"""Ownership: the fence of a save, claim, bury, plan, lock order, trust."""

from mutations.mutation import Mutation, on_a_server, scenario

SAVE = "sql/functions/save.sql"
CLAIM = "sql/functions/claim.sql"
BURY = "sql/functions/bury.sql"
DRAINING = "tests/db/delivery/test_bury_draining.py"
UNCHARGED = "tests/worker/runners/test_shutdowns_uncharged.py"
SAVES = "tests/db/delivery/test_saves.py"
OWNED = "partbox/worker/ownership/ownership.py"
CLAIMS = "partbox/worker/engine/claims.py"
TICKS = "tests/engine/on_a_server/test_tick_statements.py"
LEASE = "partbox/protocol/lease.py"
LEASES = "tests/protocol/test_lease.py"
IDLE_LEASES = (
    "tests/cluster/test_idle_process.py::"
    "test_an_idle_process_is_killed_after_its_handler_and_its_successor_owns_nothing_until_it_can_read"
)
OWNERSHIP = "tests/db/delivery/test_ownership.py"

MUTATIONS = (
    Mutation(
        "a-plan-that-waits-for-its-lock",
        "Whoever holds it keeps every supervisor from its next tick.",
        "sql/functions/plan.sql",
        "for no key update skip locked",
        "for no key update",
        ("tests/db/delivery/test_plans.py::test_a_plan_beside_another_is_not_made_and_does_not_wait",),
    ),
    Mutation(
        "idle-process-kept",
        "A process that cannot connect again ticks for ever, and its partitions stand beside idle processes.",
        LEASE,
        "    idle = signs.idle_for >= IDLE_LEASES * patience.lease\n",
        "    idle = False\n",
        (
            f"{LEASES}::test_a_child_that_neither_reads_nor_saves_for_two_leases_is_killed_unless_a_handler_runs",
            IDLE_LEASES,
        ),
    ),
    Mutation(
        "idle-process-goes-on",
        "It would work off what it has in memory, none of which can be saved, and its partitions stand meanwhile.",
        "partbox/worker/slot.py",
        "if (limit := self[IDLE_LIMIT]) and boottime() - self.worked_at > limit:\n",
        "if False:\n",
        (IDLE_LEASES,),
    ),
    Mutation(
        "owner-that-never-read",
        "What replaces a process that cannot connect cannot connect either, and would own its partitions again.",
        LEASE,
        "    if not signs.has_read:\n",
        "    if False:\n",
        (
            f"{LEASES}::test_a_child_that_neither_reads_nor_saves_for_two_leases_is_killed_unless_a_handler_runs",
            IDLE_LEASES,
        ),
    ),
    Mutation(
        "session-under-the-old-epoch",
        "What a connection had sent before it was given up may arrive later, take cursors back, and park again.",
        "sql/queries/cursors.sql",
        "set epoch = greatest(p.epoch + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint)\n      from mine",
        "set epoch = p.epoch\n      from mine",
        (on_a_server("late_save"),),
    ),
    Mutation(
        "late-claim-not-found",
        "A claim whose answer was lost and that arrives later leaves a partition that its owner does not know of.",
        "partbox/worker/ownership/ownership.py",
        "        if decision.unknown_partitions:",
        "        if False:",
        (scenario("late_claim"),),
    ),
    Mutation(
        "tick-without-the-version",
        "A command has changed parked rows: their owner reads them at the next tick, or never.",
        "sql/queries/cursors.sql",
        "p.owner is null as free, p.epoch, p.parked_version\n      from",
        "p.owner is null as free, p.epoch, 0::bigint as parked_version\n      from",
        (f"{TICKS}::test_a_tick_sees_any_change_of_one_partition",),
    ),
    Mutation(
        "calm-whatever-is-drawn",
        "A worker that is told that all is calm does not read what was published.",
        "sql/functions/is_calm.sql",
        "{drawn} = is_calm.drawn",
        "is_calm.drawn is not null",
        (f"{TICKS}::test_the_cheaper_statement_leaves_every_relevant_change_to_a_whole_tick",),
    ),
    Mutation(
        "calm-whatever-is-due",
        "Parked rows run when they are due, or at the next tick that something else calls for.",
        "sql/functions/is_calm.sql",
        "where k.subscription = is_calm.subscription and k.due_at is not null);",
        "where false);",
        (f"{TICKS}::test_the_cheaper_statement_leaves_every_relevant_change_to_a_whole_tick",),
    ),
    Mutation(
        "calm-of-another-life",
        "After a crash ids are given out again: a fence of the life before says what is not so.",
        OWNED,
        "self._idle_check = self._last_check = None",
        "self._last_check = None",
        (f"{TICKS}::test_a_new_session_forgets_the_idle_check_of_the_last_session",),
    ),
    Mutation(
        "tick-settled-too-soon",
        "What a tick could not do is left undone for as long as the rows say the same.",
        CLAIMS,
        "self.is_settled = same and all(_matches_row(",
        "self.is_settled = True or all(_matches_row(",
        (
            f"{TICKS}::test_a_partition_to_give_up_that_cannot_drain_yet_is_checked_again_at_the_next_tick",
            f"{TICKS}::test_rows_that_could_not_be_read_are_read_at_a_later_tick",
        ),
    ),
    Mutation(
        "save-without-the-epoch",
        "An owner that lost a partition and got it back would save what it knew before.",
        SAVE,
        "on sent.partition = held.partition and sent.epoch = held.epoch",
        "on sent.partition = held.partition",
        (f"{SAVES}::test_the_same_instance_after_losing_and_claiming_again_is_fenced_by_the_epoch",),
    ),
    Mutation(
        "save-without-the-owner",
        "Whoever guesses the epoch could save.",
        SAVE,
        "where held.owner = save.me;",
        "where held.owner is not null;",
        (f"{SAVES}::test_another_instance_with_the_same_epoch_saves_nothing",),
    ),
    Mutation(
        "save-without-the-row-lock",
        "Looking is no fence: a bury and a claim pass between the look and the commit.",
        SAVE,
        "             order by p.partition\n               for no key update) held",
        "             order by p.partition) held",
        ("tests/worker/saver/test_saver.py::test_a_park_that_meets_a_takeover_waits_for_it_and_is_not_written",),
    ),
    Mutation(
        "save-of-what-is-left",
        "If one partition is lost, parks and deletions of it would be written with the others.",
        SAVE,
        "if cardinality(mine) < cardinality(save.partitions) then",
        "if cardinality(mine) = 0 then",
        (f"{SAVES}::test_if_one_partition_is_lost_nothing_at_all_is_written",),
    ),
    Mutation(
        "claim-without-its-own-row-s-lock",
        "A bury that has looked already does not see the claim: the partition belongs to nobody alive.",
        CLAIM,
        "where i.instance_id = claim.me for key share;",
        "where i.instance_id = claim.me;",
        (f"{OWNERSHIP}::test_a_bury_waits_for_an_open_claim_and_frees_what_it_took",),
    ),
    Mutation(
        "claim-of-the-buried",
        "A buried instance would claim and never be buried again.",
        CLAIM,
        "if not found then",
        "if false then",
        (f"{OWNERSHIP}::test_a_buried_instance_claims_nothing",),
    ),
    Mutation(
        "epoch-that-may-repeat",
        "After a crash lost the last claim the next one would give the same epoch out again.",
        CLAIM,
        "epoch = greatest(p.epoch + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint)",
        "epoch = p.epoch + 1",
        (f"{OWNERSHIP}::test_an_epoch_rises_even_if_a_crash_has_lost_the_last_one",),
    ),
    Mutation(
        "bury-in-one-statement",
        "A statement sees what was there when it began: what a claim took meanwhile stays with the dead for ever.",
        BURY,
        """    with gone as (
        delete from {schema}.instance i
         where i.instance_id = any (victims) and (known_dead or i.heartbeat_at + i.lease < moment)
        returning i.instance_id, i.draining, i.pid || ' on ' || i.node as name
    )
    select coalesce(array_agg(gone.instance_id), '{{}}'), array_agg(gone.instance_id) filter (where gone.draining),
           array_agg(gone.name)
      into buried, drained, names from gone;

    select array_agg(locked) into orphans
      from (select p.*
              from {schema}.partition p
             where p.owner is not null and p.owner not in (select i.instance_id from {schema}.instance i)
             order by p.subscription, p.partition
               for no key update) locked;
""",
        """    with gone as (
        delete from {schema}.instance i
         where i.instance_id = any (victims) and (known_dead or i.heartbeat_at + i.lease < moment)
        returning i.instance_id
    ), held as (
        select p from {schema}.partition p where p.owner in (select gone.instance_id from gone)
    )
    select coalesce((select array_agg(gone.instance_id) from gone), '{{}}'), (select array_agg(held.p) from held)
      into buried, orphans;
""",
        (
            f"{OWNERSHIP}::test_a_bury_frees_orphans_of_any_cause_and_marks_them_suspect",
            f"{OWNERSHIP}::test_a_claim_held_up_at_a_partition_and_a_bury_behind_it_leave_no_orphan",
        ),
    ),
    Mutation(
        "suspects-of-a-shutdown",
        "Deploys would charge what outlives the drain timeout, until it is dead.",
        BURY,
        "suspect_until_id = case when p.owner = any (drained) then p.suspect_until_id",
        "suspect_until_id = case when false then p.suspect_until_id",
        (
            f"{DRAINING}::test_an_instance_that_drained_when_it_ended_leaves_no_suspects_and_takes_its_charges_back",
            f"{UNCHARGED}::test_no_stop_counts_an_attempt_however_often_the_handler_outlives_it",
        ),
    ),
    Mutation(
        "charges-kept-by-a-shutdown",
        "What ran with a charge when its process was stopped would have lost an attempt.",
        BURY,
        "set attempts = k.attempts - 1, started_at = null",
        "set attempts = k.attempts",
        (
            f"{DRAINING}::test_an_instance_that_drained_when_it_ended_leaves_no_suspects_and_takes_its_charges_back",
            f"{UNCHARGED}::test_no_stop_counts_an_attempt_of_an_event_that_was_parked_before",
        ),
    ),
    Mutation(
        "a-shutdown-that-absolves-what-others-accused",
        "What ran when an earlier owner died would be forgotten, and poison found one death later.",
        BURY,
        "               and k.started_at >= o.claimed_at;",
        "               and k.started_at is not null;",
        (f"{DRAINING}::test_suspects_of_an_earlier_crash_stay_suspect_when_the_next_owner_leaves_cleanly",),
    ),
    Mutation(
        "a-drain-taken-back",
        "A heartbeat that was on its way when a process began to drain would say that it does not.",
        "sql/functions/heartbeat.sql",
        "draining = i.draining or sent.draining",
        "draining = sent.draining",
        (f"{DRAINING}::test_a_heartbeat_that_was_on_its_way_does_not_take_a_drain_back",),
    ),
    Mutation(
        "a-drain-taken-back-by-a-node-of-one-process",
        "The same, by the statement of a node that has no other process.",
        "sql/queries/instances.sql",
        "draining = i.draining or %(draining)s::boolean",
        "draining = %(draining)s::boolean",
        (f"{DRAINING}::test_a_heartbeat_that_was_on_its_way_does_not_take_a_drain_back",),
    ),
    Mutation(
        "a-drain-only-its-supervisor-tells",
        "Processes whose supervisor died would be accused of what they left while they drained.",
        "partbox/worker/poller/poller.py",
        "        self.ownership.note_leaving(conn)\n",
        "",
        (f"{UNCHARGED}::test_a_worker_whose_membership_is_gone_marks_itself_as_draining_when_it_is_stopped",),
    ),
    Mutation(
        "bury-of-the-living",
        "Whoever is slow to look would take partitions from processes that trust their lease.",
        BURY,
        "(known_dead or i.heartbeat_at + i.lease < moment)\n        returning",
        "true\n        returning",
        (f"{OWNERSHIP}::test_a_bury_removes_only_instances_whose_lease_is_over",),
    ),
    Mutation(
        "bury-by-the-database-s-clock-alone",
        "A step of the database's clock would end everybody's lease at once.",
        "partbox/protocol/lease.py",
        "return max(instance.lease_left, instance.lease - (now - since))",
        "return instance.lease_left",
        ("tests/protocol/test_burial.py", "tests/protocol/test_silence.py"),
    ),
    Mutation(
        "locks-in-another-order",
        "Two who lock several rows in different orders wait for each other for ever.",
        SAVE,
        "             order by p.partition\n               for no key update) held",
        "             order by p.partition desc\n               for no key update) held",
        ("tests/db/delivery/test_lock_order.py::test_saves_plans_claims_buries_and_heartbeats_at_once_never_deadlock",),
    ),
    Mutation(
        "plan-without-the-comparison",
        "Two who plan from different views would undo each other.",
        "sql/functions/plan.sql",
        ") or plan.seen is distinct from (",
        ") or false and plan.seen is distinct from (",
        ("tests/db/delivery/test_plans.py::test_a_plan_changes_nothing_when_an_assignee_is_not_as_it_was_seen",),
    ),
    Mutation(
        "plan-when-shares-differ-by-one",
        "Shares that differ by one are even enough: to plan them anew moves partitions for nothing, for ever.",
        "partbox/protocol/assignment.py",
        "    return sum(held.values()) < len(partitions) or max(held.values()) - min(held.values()) > 1\n",
        "    return sum(held.values()) < len(partitions) or max(held.values()) - min(held.values()) > 0\n",
        ("tests/protocol/test_assignment.py::test_a_balance_that_assign_would_not_have_chosen_is_left_alone",),
    ),
    Mutation(
        "trust-by-one-clock",
        "A paused virtual machine may stop the clock since boot: the wall clock must end trust too.",
        "partbox/worker/slot.py",
        "return self[DEADLINE] > boottime() and self[WALL_DEADLINE] > time.time()",
        "return self[DEADLINE] > boottime()",
        ("tests/worker/ownership/test_release.py::test_trust_ends_by_either_clock",),
    ),
    Mutation(
        "trust-to-the-last-moment",
        "Between the check and the handler's start the lease may end.",
        "partbox/protocol/lease.py",
        "return sent_at + lease * (1 - LEASE_MARGIN)",
        "return sent_at + lease",
        ("tests/protocol/test_lease.py::test_trust_ends_before_the_lease_does_and_after_most_of_it",),
    ),
    Mutation(
        "silence-vouched-for",
        "A process that is stopped would keep its partitions for as long as its handler may run.",
        "partbox/protocol/lease.py",
        "        not signs.is_stopped and signs.handler_seconds is not None",
        "        signs.handler_seconds is not None",
        ("tests/protocol/test_lease.py::test_a_silent_child_is_renewed_only_while_a_handler_runs_within_its_time",),
    ),
    Mutation(
        "starting-after-the-lease",
        "An owner that froze and thaws would start handlers for what is others' by now.",
        "partbox/worker/runners/lane_runner.py",
        "if self._slot.version != self._engine.version or not self._slot.is_trusted():",
        "if self._slot.version != self._engine.version:",
        ("tests/worker/ownership/test_release.py::test_no_handler_starts_without_trust",),
    ),
    Mutation(
        "a-late-take-up-takes",
        "One that arrives after the next session's would raise epochs under the hands of its own process.",
        "sql/queries/cursors.sql",
        "        on p.partition = seen.partition and p.epoch = seen.epoch\n",
        "        on p.partition = seen.partition\n",
        (on_a_server("late_take_up"),),
    ),
)
