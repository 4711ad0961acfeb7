"""Handlers that hang, and suspects: ways in which one event keeps all others waiting."""

from mutations.mutation import Mutation, scenario

MUTATIONS = (
    Mutation(
        "turns-never-taken-back",
        "An accused event that had its turn at a tick, which finds it due, would hold up all other suspects.",
        "partbox/worker/poller/poller.py",
        "        due.update(self._engine.parked_scheduler.take_keyless())\n",
        "",
        (scenario("turns_at_ticks"),),
    ),
    Mutation(
        "drain-behind-a-hang",
        "A draining partition starts nothing, so all its keys would wait for a handler that hangs.",
        "partbox/worker/engine/claims.py",
        "            if not partition.is_held_by_handler(now):\n",
        "            if True:\n",
        (scenario("release_behind_a_hang"),),
    ),
    Mutation(
        "beside-an-earlier-run",
        "An event would run a second time while its handler of an earlier ownership still runs.",
        "partbox/worker/engine/state.py",
        "if partition.may_begin(key):",
        "if True:",
        (scenario("owned_again_beside_a_hang"),),
    ),
    Mutation(
        "alone-for-ever",
        "An accused event whose handler hangs would keep all other suspects of its process waiting.",
        "partbox/worker/engine/poison.py",
        "return any(self._now < each.alone_until or not each.row.is_charged for each in rows)",
        "return any(True for each in rows)",
        ("tests/worker/engine/test_charges.py::test_a_suspect_that_hangs_keeps_the_others_waiting_for_a_bounded_time",),
    ),
    Mutation(
        "beside-an-unsaved-end",
        "A death would accuse a suspect that has ended well and is not saved yet.",
        "partbox/worker/engine/poison.py",
        "return any(self._now < each.alone_until or not each.row.is_charged for each in rows)",
        "return any(self._now < each.alone_until for each in rows)",
        (
            "tests/worker/engine/test_charges.py"
            "::test_a_suspect_that_has_ended_keeps_an_accused_one_waiting_until_its_save",
        ),
    ),
)
