"""A check that passes what breaks a reader."""

from mutations.mutation import Mutation

COMPARISON = "tests/catalogue/test_comparison.py"
NAMED = f"{COMPARISON}::test_a_breaking_change_is_named_with_its_field_the_readers_that_it_breaks_and_the_remedy"
MISFITS = "partbox/catalogue/misfits.py"

MUTATIONS = (
    Mutation(
        "consumers-lose-a-field",
        "A field that consumers read is gone, and only what they require is looked for.",
        MISFITS,
        "if name not in writer.properties and not self.from_log:",
        "if False:",
        (NAMED,),
    ),
    Mutation(
        "a-required-field-of-old-events",
        "Old events lack what the new class requires: each of them is dead when it is read again.",
        MISFITS,
        "elif name in reader.required and name not in writer.required:",
        "elif False:",
        (NAMED,),
    ),
    Mutation(
        "a-default-was-always-there",
        "A field that came with a default is taken for one of every event, and may be required next.",
        "partbox/catalogue/event_form.py",
        "return _build_pydantic_schema(event, always=False), _build_pydantic_schema(event, always=True)",
        "return _build_pydantic_schema(event, always=True), _build_pydantic_schema(event, always=True)",
        (f"{COMPARISON}::test_a_field_that_was_added_with_a_default_may_never_lose_it",),
    ),
    Mutation(
        "any-alternative-will-do",
        "A union fits as soon as one of its alternatives does.",
        MISFITS,
        "found = [\n"
        "                each\n"
        "                for option in writer.list_alternatives()\n"
        "                for each in self._find_best_match(option, writer, reader, path)\n"
        "            ]",
        "found = min((self._find_best_match(each, writer, reader, path) for each in "
        "writer.list_alternatives()), key=len)",
        (NAMED,),
    ),
    Mutation(
        "rules-unread",
        "A bound or pattern that is tighter than before refuses old events.",
        MISFITS,
        "        yield from _find_rule_misfits(writer, reader, path)\n",
        "",
        (NAMED,),
    ),
    Mutation(
        "a-gap-between-upcasts",
        "An upcast from one version is taken for one from all: events of the version without one are dead.",
        "partbox/catalogue/comparison.py",
        "missing_versions = [version for version in range(old.version, new.version) if version not in upcasts]",
        "missing_versions = [] if upcasts else [old.version]",
        (f"{COMPARISON}::test_a_new_version_may_change_everything_if_every_earlier_version_has_an_upcast",),
    ),
    Mutation(
        "a-key-that-moves",
        "Under another key events of one aggregate are in no order, and the schema is the same.",
        "partbox/catalogue/comparison.py",
        "changes = [*_find_order_changes(old, new), *_find_field_changes(old, new)]",
        "changes = [*_find_field_changes(old, new)]",
        (f"{COMPARISON}::test_a_version_may_change_neither_its_key_nor_its_aggregate_type",),
    ),
)
