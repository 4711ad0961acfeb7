"""Events of entities that are lost, doubled or published though they were undone."""

from mutations.mutation import Mutation

COLLECTING = "tests/publish/test_collecting.py"
FILE = "partbox/sqlalchemy.py"

MUTATIONS = (
    Mutation(
        "undone-in-a-savepoint",
        "A savepoint is rolled back, and its events are published with the rest.",
        FILE,
        "            events.forget_after(mark)\n",
        "            pass\n",
        (f"{COLLECTING}::test_a_savepoint_that_is_rolled_back_takes_its_events_with_it",),
    ),
    Mutation(
        "undone-by-a-rollback",
        "Events of what a rollback has undone wait for the next transaction of the session.",
        FILE,
        "                events.clear()\n",
        "                pass\n",
        (f"{COLLECTING}::test_a_rollback_drops_the_events_of_known_entities_and_keeps_those_of_new_ones",),
    ),
    Mutation(
        "published-and-rolled-back",
        "COMMIT fails after the publish: whoever tries again saves the entity without its events.",
        FILE,
        "                    events.put_back(gathered)\n",
        "                    pass\n",
        (f"{COLLECTING}::test_a_commit_that_fails_after_publishing_publishes_when_it_is_tried_again",),
    ),
    Mutation(
        "an-entity-let-go",
        "The session holds unchanged entities weakly, and their events go with them.",
        FILE,
        "        self.waiting[id(events)] = events\n",
        "        pass\n",
        (f"{COLLECTING}::test_events_of_an_entity_that_was_loaded_and_not_kept_are_not_forgotten",),
    ),
    Mutation(
        "a-savepoint-left-open",
        "The commit of the whole is taken for the release of the savepoint that is open in it.",
        FILE,
        "return not self.marks and self.commits > 0",
        "return False",
        (f"{COLLECTING}::test_a_commit_releases_open_savepoints_first",),
    ),
    Mutation(
        "entity-by-entity",
        "Events are published in the order in which the session met their entities.",
        FILE,
        "events = sorted((each for _, some in taken for each in some), key=_number_of)",
        "events = [each for _, some in taken for each in some]",
        (f"{COLLECTING}::test_events_are_published_with_the_commit_once_and_in_the_order_in_which_they_were_gathered",),
    ),
    Mutation(
        "lost-by-a-refusal",
        "An event is refused, and all that were taken with it are gone from their lists.",
        FILE,
        "                gathered.restore_taken(taken)\n",
        "",
        (f"{COLLECTING}::test_a_refused_event_leaves_everything_as_it_was",),
    ),
    Mutation(
        "a-model-that-forgets",
        "A save fails after the events were taken: the next one publishes none.",
        "partbox/django/events.py",
        "                self.events.put_back(taken)\n",
        "",
        (
            "tests/django/test_model_events.py::test_a_rolled_back_save_publishes_nothing_and_a_failed_save_keeps_its_events",
        ),
    ),
)
