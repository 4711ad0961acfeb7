"""Documents for other teams: AsyncAPI, the page, and the files of schemas."""

import dataclasses
import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Literal

import attrs
import jsonschema
import msgspec
import pytest
from forms import form
from pydantic import BaseModel, Field, create_model

from partbox.catalogue import schema_files
from partbox.catalogue.asyncapi import build_asyncapi, make_target_function
from partbox.catalogue.comparison import EventForm, compare_forms
from partbox.catalogue.entries import list_entries
from partbox.catalogue.event_form import build_event_form
from partbox.catalogue.page import render_page
from partbox.errors import PartboxError
from partbox.events.declaration import EventType
from partbox.handlers import Handlers
from partbox.settings.relay_target import RelayTarget

OFFICIAL = json.loads(gzip.decompress((Path(__file__).parent / "asyncapi-3.0.0.json.gz").read_bytes()))


class Line(BaseModel):
    sku: str
    price: Decimal


class OrderPlaced(BaseModel):
    """An order was placed, and paid."""

    order_id: int
    kind: Literal["web", "shop"] = Field("web", description="where it came from: web | shop")
    lines: list[Line]
    parent: "OrderPlaced | None" = None


@dataclasses.dataclass
class Shipped:
    number: str


@pytest.fixture
def types() -> list[EventType]:
    return [
        EventType("OrderPlaced", OrderPlaced, "Order", "order_id", None, 2),
        EventType("parcel/shipped", Shipped, "Parcel", ("number", "number"), "number", 1),
    ]


@pytest.fixture
def forms(types) -> list[EventForm]:
    return list(map(build_event_form, types))


def invalid(document) -> list[str]:
    return [error.message for error in jsonschema.Draft7Validator(OFFICIAL).iter_errors(document)]


def resolved(document, reference: str):
    place = document
    for step in reference.removeprefix("#/").split("/"):
        place = place[step.replace("~1", "/")]
    return place


def references(value):
    if isinstance(value, dict):
        yield from (each for name, each in value.items() if name == "$ref")
        for each in value.values():
            yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def test_the_asyncapi_document_is_valid_and_each_reference_resolves(forms):
    document = build_asyncapi("shop:outbox", forms, make_target_function([], None))
    assert invalid(document) == []
    assert {each for each in references(document) if resolved(document, each) is None} == set()
    assert invalid({**document, "channels": []})  # the official schema is asked indeed
    found = {name: each["address"] for name, each in document["channels"].items()}
    assert found == {"order-events": "order-events", "parcel-events": "parcel-events"}


def test_channels_are_the_topics_of_the_relay_and_headers_those_of_its_broker(forms):
    targets = [
        RelayTarget(types=("OrderPlaced",), to="nats://broker", topic="{tenant_id}.{event_type}"),
        RelayTarget(to="kafka://broker"),
    ]
    document = build_asyncapi("shop:outbox", forms, make_target_function(targets, None))
    assert invalid(document) == []
    by_address = {each["address"]: each for each in document["channels"].values()}
    assert set(by_address) == {"{tenant_id}.orderplaced", "parcel-events"}
    assert "tenant_id" in by_address["{tenant_id}.orderplaced"]["parameters"]
    headers = {each["name"]: each["headers"]["properties"] for each in document["components"]["messages"].values()}
    assert headers["OrderPlaced"]["ce-dataschema"] == {"const": "urn:partbox:OrderPlaced:2"}
    assert headers["parcel/shipped"]["ce_type"] == {"const": "parcel/shipped"}


def test_events_of_one_topic_share_its_channel(forms):
    document = build_asyncapi("shop:outbox", forms, make_target_function([], "all"))
    assert invalid(document) == []
    assert list(document["channels"]["all"]["messages"]) == ["OrderPlaced", "parcel_shipped"]


def test_the_page_shows_nested_fields_too_and_escapes_what_would_break_a_table(types, forms):
    text = render_page("shop:outbox", list_entries(types, []), forms)
    for line in (
        "An order was placed, and paid.",
        "- version: 2",
        "- key: number, number",
        "| `kind` | one of 'web', 'shop' | no | where it came from: web \\| shop |",
        "| `lines[].price` | text | yes |  |",
    ):
        assert line in text.splitlines()


def test_an_entry_names_the_handler_that_takes_the_event_in_each_subscription(types):
    handlers = Handlers()
    for number, (event, aggregate, subscription) in enumerate(
        [
            ("*", None, "default"),
            ("OrderPlaced", None, "default"),
            ("OrderPlaced", "Cart", "default"),
            ("*", "Order", "audit"),
            ("OrderPaid", "Order", "audit"),
        ]
    ):
        handlers.register(lambda event: None, event, aggregate, subscription, name=f"h{number}")
    found = {
        entry.name: [row.handler for row in entry.handlers] for entry in list_entries(types, handlers.build_table())
    }
    assert found == {"OrderPlaced": ["h3", "h1"], "parcel/shipped": ["h0"], "OrderPaid": ["h4", "h0"]}


def test_schema_files_are_written_and_read_back_unchanged(tmp_path, forms):
    folder = tmp_path / "new" / "schemas"
    assert schema_files.write_schemas(folder, forms) == (2, 0)
    assert sorted(path.name for path in folder.iterdir()) == ["OrderPlaced.v2.json", "parcel%2Fshipped.v1.json"]
    assert schema_files.write_schemas(folder, forms) == (0, 2)
    assert schema_files.find_changes(schema_files.read_schemas(folder), forms, {}) == []
    jsonschema.Draft202012Validator.check_schema(json.loads((folder / "OrderPlaced.v2.json").read_text()))


def test_the_file_of_an_older_version_asks_for_an_upcast_until_it_is_deleted(tmp_path, forms):
    schema_files.write_schemas(tmp_path, [form(OrderPlaced, version=1), *forms])
    kept = schema_files.read_schemas(tmp_path)
    assert [each.text for each in schema_files.find_changes(kept, forms, {}) if each.is_break] == [
        "OrderPlaced has version 2 instead of 1, and no upcast from version 1: breaks reading the log: "
        "write @outbox.upcast(OrderPlaced, from_version=1)"
    ]
    assert not any(each.is_break for each in schema_files.find_changes(kept, forms, {"OrderPlaced": {1}}))


def test_a_removed_event_and_a_new_event_are_named(tmp_path, forms):
    schema_files.write_schemas(tmp_path, forms[:1])
    assert [each.text for each in schema_files.find_changes(schema_files.read_schemas(tmp_path), forms[1:], {})] == [
        "OrderPlaced version 2 has no class any more: breaks reading the log: keep the class, and import its module, "
        f"while the log has such events; then delete {tmp_path}/OrderPlaced.v2.json",
        "parcel/shipped is new: breaks nothing",
    ]


@pytest.mark.parametrize(
    "content", ["{", "[]", "1", '{"type": "object"}', '{"x-partbox": {"name": "A"}}', '{"x-partbox": 1}']
)
def test_a_file_that_is_no_schema_of_an_event_is_named(tmp_path, content):
    (tmp_path / "other.json").write_text(content)
    with pytest.raises(PartboxError, match=r"other\.json is no schema that"):
        schema_files.read_schemas(tmp_path)


@pytest.mark.parametrize("schema", [{"$ref": "#/$defs/Gone"}, {"properties": 1}, {"$ref": "#"}])
def test_a_schema_that_cannot_be_read_is_named(tmp_path, forms, schema):
    ours = schema_files.build_document(forms[0])["x-partbox"]
    (tmp_path / "a.json").write_text(json.dumps({**schema, "x-partbox": ours}))
    with pytest.raises(PartboxError, match=r"a\.json holds no JSON Schema that can be read"):
        schema_files.find_changes(schema_files.read_schemas(tmp_path), forms, {})


def test_attrs_and_msgspec_classes_write_their_defaults_unless_a_struct_leaves_them_out():
    lines = msgspec.defstruct("Line", [("sku", str, "")])
    short = msgspec.defstruct("Line", [("sku", str, "")], omit_defaults=True)
    plain = attrs.make_class("Placed", {"id": attrs.field(type=int), "note": attrs.field(type=str, default="")})
    struct = msgspec.defstruct("Placed", [("id", int), ("lines", list[lines], ())])
    omitting = msgspec.defstruct("Placed", [("id", int), ("lines", list[short], ())])

    def required(cls) -> dict[str, list[str]]:
        found = form(cls)
        assert {name: each["required"] for name, each in found.schema["$defs"].items() if name == "Placed"} == {
            "Placed": ["id"]
        }
        return {name: each["required"] for name, each in found.written["$defs"].items()}

    assert required(plain) == {"Placed": ["id", "note"]}
    assert required(struct) == {"Placed": ["id", "lines"], "Line": ["sku"]}
    assert required(omitting) == {"Placed": ["id"], "Line": []}


def made(kind: str, **fields) -> type:
    """A class of this kind; by name its type, and its default if it has one (`...` is none)."""
    required = {name: each for name, (each, default) in fields.items() if default is ...}
    optional = {name: each for name, each in fields.items() if each[1] is not ...}
    if kind == "pydantic":
        return create_model("Placed", **fields)
    if kind == "dataclass":
        more = [(name, each, dataclasses.field(default=default)) for name, (each, default) in optional.items()]
        return dataclasses.make_dataclass("Placed", [*required.items(), *more])
    if kind == "msgspec":
        return msgspec.defstruct("Placed", [*required.items(), *((name, *each) for name, each in optional.items())])
    attributes = {name: attrs.field(type=each) for name, each in required.items()}
    return attrs.make_class(
        "Placed", attributes | {name: attrs.field(type=each, default=given) for name, (each, given) in optional.items()}
    )


@pytest.mark.parametrize("kind", ["pydantic", "dataclass", "msgspec", "attrs"])
def test_classes_of_each_kind_are_compared_alike(kind):
    old = form(made(kind, id=(int, ...), total=(int, ...)))
    breaking = form(made(kind, id=(int, ...), total=(str, ...), shop=(str, ...)))
    harmless = form(made(kind, id=(int, ...), total=(int, 0), shop=(str, "")))
    assert [(each.place, each.breaks_log, each.breaks_consumers) for each in compare_forms(old, breaking, ())] == [
        ("OrderPlaced.total", True, True),
        ("OrderPlaced.shop", True, False),
    ]
    assert [each.text for each in compare_forms(old, harmless, ())] == ["OrderPlaced.shop is new: breaks nothing"]


def test_a_folder_or_a_name_that_cannot_be_written_is_a_one_line_error(tmp_path, forms):
    long = EventType("€" * 200, Shipped, "Parcel", "number", None, 1)
    with pytest.raises(PartboxError, match=r"cannot write .*: File name too long: name a place"):
        schema_files.write_schemas(tmp_path, [build_event_form(long)])
