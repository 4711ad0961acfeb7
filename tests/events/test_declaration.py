"""`@partbox.event`: what it keeps of a class, and what it refuses."""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from enum import Enum
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator
from shapes import ORDERS, DataOrder

import partbox
from partbox.errors import PublishError, RegistrationError
from partbox.events.declaration import EventType, dataschema_of, event_type_of, list_event_types


def declared(cls: Any) -> EventType:
    found = event_type_of(cls)
    assert found is not None
    return found


@pytest.mark.parametrize("cls", ORDERS)
def test_each_kind_of_class_can_be_declared_as_an_event_and_is_not_changed(cls: Any) -> None:
    kept = declared(cls)
    assert (kept.name, kept.cls, kept.aggregate_type, kept.version) == (cls.__name__, cls, "Order", 2)
    assert [each for each in list_event_types() if each.name == cls.__name__] == [kept]
    order = cls(order_id=7, total=1, shop="s")
    assert (kept.read_aggregate_id(order), kept.read_tenant_id(order)) == (7, "s")


@pytest.mark.parametrize("cls", ORDERS)
def test_each_kind_of_class_has_a_schema_that_its_payload_fits(cls: Any) -> None:
    validator = Draft202012Validator(declared(cls).build_json_schema())
    assert validator.is_valid({"order_id": 7, "total": "1.20", "shop": None})
    assert not validator.is_valid({"total": "1.20"})
    assert not validator.is_valid({"order_id": "seven", "total": "1.20"})


def test_the_event_type_is_a_text_an_enum_or_by_default_the_name_of_the_class() -> None:
    class Kind(Enum):
        ORDER = "Order"

    @partbox.event
    @dataclasses.dataclass
    class Bare:
        x: int

    @partbox.event(name="order.moved", aggregate_type=Kind.ORDER, key=lambda moved: moved.x * 2)
    @dataclasses.dataclass
    class Moved:
        x: int

    assert (declared(Bare).name, declared(Bare).version, declared(Bare).key) == ("Bare", 1, None)
    assert (declared(Moved).name, declared(Moved).aggregate_type) == ("order.moved", "Order")
    assert declared(Moved).read_aggregate_id(Moved(4)) == 8


def test_a_key_of_several_attributes_keeps_their_values_apart() -> None:
    @partbox.event(key=("region", "number"))
    @dataclasses.dataclass
    class Numbered:
        region: str
        number: str

    keys = {
        declared(Numbered).read_aggregate_id(Numbered(*each)) for each in (("a/b", "c"), ("a", "b/c"), ("a%2Fb", "c"))
    }
    assert keys == {"a%2Fb/c", "a/b%2Fc", "a%252Fb/c"}
    with pytest.raises(PublishError, match=r"\(region, number\) of Numbered is None, and it is the key: flush first"):
        declared(Numbered).read_aggregate_id(Numbered("a", None))  # type: ignore[arg-type]


def test_a_property_may_be_the_key_and_its_error_is_reported() -> None:
    @partbox.event(key="whole")
    @dataclasses.dataclass
    class Halved:
        half: int

        @property
        def whole(self) -> int:
            return self.half * 2

    assert declared(Halved).read_aggregate_id(Halved(2)) == 4
    with pytest.raises(PublishError, match=r"the key of Halved, whole, cannot be read: TypeError"):
        declared(Halved).read_aggregate_id(Halved(None))  # type: ignore[arg-type]


def test_a_subclass_is_no_event_until_it_is_declared_one() -> None:
    class Gift(DataOrder): ...

    assert event_type_of(Gift) is None
    assert event_type_of(DataOrder(1, 2)) is None  # type: ignore[arg-type]  # an instance is no class


@dataclasses.dataclass
class Undeclared:
    x: int


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (lambda: partbox.event(int), "int cannot be an event: make it a dataclass, a pydantic model"),
        (lambda: partbox.event(7), "7 cannot be an event"),  # type: ignore[type-var]
        (
            lambda: partbox.event(key="id")(Undeclared),
            "key of the event Undeclared cannot be 'id', which the class lacks",
        ),
        (lambda: partbox.event(tenant=("x", "y"))(Undeclared), "the tenant of the event Undeclared cannot be 'y'"),
        (lambda: partbox.event(key=())(Undeclared), r"cannot be \(\): give the name of an attribute, a tuple"),
        (lambda: partbox.event(version=0)(Undeclared), "version of the event Undeclared cannot be 0: give a whole num"),
        (lambda: partbox.event(version=True)(Undeclared), "cannot be True"),
        (lambda: partbox.event(name="")(Undeclared), "of the event Undeclared, name is empty: name it"),
        (lambda: partbox.event(aggregate_type="x" * 256)(Undeclared), "256 characters, above 255: shorten it"),
        (
            lambda: partbox.event(name="DataOrder")(Undeclared),
            r"'DataOrder' is the event shapes.DataOrder",
        ),
    ],
)
def test_a_class_that_cannot_be_an_event_is_refused_and_stays_undeclared(
    declare: Callable[[], object], said: str
) -> None:
    with pytest.raises(RegistrationError, match=said):
        declare()
    assert event_type_of(Undeclared) is None
    assert declared(DataOrder).cls is DataOrder


def test_a_redefined_class_replaces_the_old_one() -> None:
    def make() -> type:
        @partbox.event
        class Local(msgspec.Struct):
            x: int

        return Local

    first, second = make(), make()
    assert [each for each in list_event_types() if each.name == "Local"] == [declared(second)]
    assert declared(first).cls is first


def test_a_version_has_a_uri() -> None:
    assert dataschema_of("Order placed/ä", 2) == "urn:partbox:Order%20placed%2F%C3%A4:2"


PROGRAM = """
import json, sys
from dataclasses import dataclass
import partbox

@partbox.event(key="x")
@dataclass
class Point:
    x: int

print(json.dumps(sorted(sys.modules)))
"""


def test_a_domain_module_that_declares_events_loads_no_library_but_its_own() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    loaded = json.loads(ended.stdout)
    assert "partbox.events.declaration" in loaded
    assert [each for each in ("pydantic", "msgspec", "attr", "psycopg", "partbox.outbox") if each in loaded] == []
