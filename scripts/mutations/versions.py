"""Events of classes: their versions, what handlers get of them, and what is taken for their owner's."""

from mutations.mutation import Mutation

VERSIONS, DEMANDS = "tests/events/test_versions.py", "tests/events/test_demands.py"
PUBLISHING, KIT = "tests/events/test_publishing.py", "tests/events/test_kit_of_classes.py"

MUTATIONS = (
    Mutation(
        "a-newer-version-is-poison",
        "An event that is newer than the code is dead at once, whatever on_unroutable says, in the midst of a deploy.",
        "partbox/worker/runners/endpoint.py",
        "if issubclass(type(result), NewerVersionError):",
        "if False:",
        (f"{VERSIONS}::test_a_function_as_on_unroutable_gets_the_event_of_a_newer_version_and_decides_its_outcome",),
    ),
    Mutation(
        "a-step-left-out",
        "Without the upcast of a version its payload is misread: fields keep their names and change their meaning.",
        "partbox/events/upcasts.py",
        "for each in range(version, declared.version):",
        "for each in range(max(version, declared.version - 1), declared.version):",
        (f"{VERSIONS}::test_every_chain_of_upcasts_runs_each_step_once_and_in_order",),
    ),
    Mutation(
        "an-upcast-of-what-others-see",
        "An upcast changes its payload in place, and an interceptor, or a second look, sees the changed one.",
        "partbox/events/reading.py",
        "upcasts.apply_upcasts(event.decode_payload(), ",
        "upcasts.apply_upcasts(event.payload, ",
        (f"{VERSIONS}::test_an_upcast_may_change_its_argument_in_place",),
    ),
    Mutation(
        "a-version-that-does-not-travel",
        "Without its version a payload is taken for one of version 1, and raised a second time.",
        "partbox/publish/fields.py",
        "if event.version or event.headers",
        "if event.headers",
        (f"{PUBLISHING}::test_an_instance_of_an_event_class_can_be_published_directly",),
    ),
    Mutation(
        "a-version-lost-under-a-name",
        "An instance that is published under the name of its class, as before that was an event, has its version.",
        "partbox/events/event.py",
        "return declared.version if declared is not None and declared.name == event.event_type else None",
        "return None",
        (f"{PUBLISHING}::test_a_payload_published_under_the_name_of_its_class_has_the_version_of_its_class",),
    ),
    Mutation(
        "an-instance-lent-to-hooks",
        "A hook keeps the payload of an event, and its owner changes it.",
        "partbox/publish/publisher.py",
        "event = build_event(given, payload, fields, is_borrowed=not self.hooks.has_any)\n        if not is_psycopg",
        "event = build_event(given, payload, fields, is_borrowed=True)\n        if not is_psycopg",
        (f"{PUBLISHING}::test_hooks_see_a_copy_of_the_payload_that_its_owner_cannot_change",),
    ),
    Mutation(
        "another-class-than-asked-for",
        "A handler is registered for one class and annotated with another, which its events cannot become.",
        "partbox/handlers/argument_plan.py",
        "return annotation if declared is None or declared.name == handler_input.event_type else None",
        "return annotation",
        (f"{DEMANDS}::test_a_demand_that_cannot_be_met_is_refused_with_the_remedy",),
    ),
    Mutation(
        "outcomes-of-other-events",
        "A list has an event that cannot be read, and the outcomes of those behind it are given to their neighbours.",
        "partbox/handlers/argument_adapters.py",
        "return [next(given) if error is None else error for error in self.errors]",
        "return [*given, *filter(None, self.errors)]",
        (f"{KIT}::test_an_unreadable_event_in_a_batch_fails_no_other_event",),
    ),
)
