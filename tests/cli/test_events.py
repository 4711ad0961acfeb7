"""`partbox events`: the catalogue, and the gate."""

import json
import sys
from weakref import WeakValueDictionary

import pytest

SHOP = """
from dataclasses import dataclass

import partbox

outbox = partbox.Outbox()


@partbox.event(aggregate_type="Order", key="order_id")
@dataclass
class OrderPlaced:
    order_id: int
    total: int


@outbox.on("OrderPlaced")
def confirm(event): ...


@outbox.on("OrderPaid", "Order", subscription="audit")
def audit(event): ...
"""


@pytest.fixture(autouse=True)
def only_theirs(monkeypatch):
    """Classes of other tests are not declared, and modules of the same name are others."""
    monkeypatch.setattr("partbox.events.declaration._classes", WeakValueDictionary())
    monkeypatch.setattr(sys, "path", list(sys.path))
    sys.modules.pop("shop", None)
    yield
    sys.modules.pop("shop", None)


@pytest.fixture
def shop(here, monkeypatch):
    """Writes shop.py, changed as `shop(old, new)` says."""

    def write(old: str = "", new: str = "") -> None:
        (here / "shop.py").write_text(SHOP.replace(old, new))
        sys.modules.pop("shop", None)
        monkeypatch.setattr(sys, "dont_write_bytecode", True)  # two versions within a second have one .pyc

    write()
    return write


def test_the_table_shows_declared_events_and_events_that_only_handlers_name(partbox, shop):
    lines = partbox("events", "shop:outbox").out.splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["OrderPlaced", "1", "Order", "order_id", "shop.confirm"],
        ["OrderPaid", "-", "Order", "-", "shop.audit", "(audit)"],
    ]
    assert partbox("events", "list", "shop:outbox").out.splitlines() == lines


def test_json_has_all_that_the_table_has(partbox, shop):
    placed, paid = json.loads(partbox("events", "shop:outbox", "--json").out)
    assert placed == {
        "name": "OrderPlaced",
        "version": 1,
        "aggregate_type": "Order",
        "key": "order_id",
        "tenant": None,
        "class": "shop.OrderPlaced",
        "handlers": [{"subscription": "default", "handler": "shop.confirm", "place": "shop.py:16"}],
    }
    assert (paid["version"], paid["class"], paid["handlers"][0]["subscription"]) == (None, None, "audit")
    assert json.loads(partbox("events", "--json", "shop:outbox").out) == [placed, paid]


def test_documents_are_written_and_printed(partbox, shop, here):
    assert partbox("events", "shop:outbox", "--json-schema", "a/b").out == "1 schema written to a/b, 0 unchanged\n"
    assert partbox("events", "shop:outbox", "--json-schema", "a/b").out == "0 schemas written to a/b, 1 unchanged\n"
    assert partbox("events", "shop:outbox", "--asyncapi", "api.json", "--topic", "all").out == "api.json written\n"
    assert json.loads((here / "api.json").read_text())["channels"]["all"]["address"] == "all"
    assert json.loads(partbox("events", "shop:outbox", "--asyncapi", "-").out)["asyncapi"] == "3.0.0"
    assert "| `total` | an integer | yes |  |" in partbox("events", "shop:outbox", "--markdown").out


def test_check_ends_with_1_and_a_line_for_each_break_and_with_0_without_one(partbox, shop, here):
    partbox("events", "shop:outbox", "--json-schema", "schemas")
    before = (here / "schemas" / "OrderPlaced.v1.json").read_bytes()
    ran = partbox("events", "check", "shop:outbox", "--against", "schemas")
    assert (ran.code, ran.out) == (0, "all fits 1 schema of schemas\n")

    shop("total: int", "total: str\n    note: str = ''")
    ran = partbox("events", "check", "shop:outbox", "--against", "schemas")
    assert (ran.code, ran.out.splitlines()) == (
        1,
        [
            "OrderPlaced.total was an integer, and is text: breaks reading the log and consumers: leave it as it was, "
            "and add a field for the new form, or make version=2 with @outbox.upcast(OrderPlaced, from_version=1)",
            "OrderPlaced.note is new: breaks nothing",
            "1 change breaks a reader of 1 schema of schemas",
        ],
    )
    ran = partbox("events", "check", "shop:outbox", "--against", "schemas", "--json")
    first, second = json.loads(ran.out)
    assert ran.code == 1
    assert (first["place"], first["breaks_log"], first["breaks_consumers"]) == ("OrderPlaced.total", True, True)
    assert (second["place"], second["breaks_log"], second["remedy"]) == ("OrderPlaced.note", False, "")
    assert (here / "schemas" / "OrderPlaced.v1.json").read_bytes() == before


UPCAST = """

@outbox.upcast(OrderPlaced, from_version=1)
def as_text(old):
    return {**old, "total": str(old["total"])}
"""


def test_a_new_version_passes_with_an_upcast_and_does_not_without(partbox, shop, here):
    partbox("events", "shop:outbox", "--json-schema", "schemas")
    shop(
        'key="order_id")\n@dataclass\nclass OrderPlaced:\n    order_id: int\n    total: int',
        ('key="order_id", version=2)\n@dataclass\nclass OrderPlaced:\n    order_id: int\n    total: str'),
    )
    ran = partbox("events", "check", "shop:outbox", "--against", "schemas")
    assert (ran.code, ran.out.splitlines()[0]) == (
        1,
        "OrderPlaced has version 2 instead of 1, and no upcast from version 1: breaks reading the log: "
        "write @outbox.upcast(OrderPlaced, from_version=1)",
    )
    with (here / "shop.py").open("a") as file:
        file.write(UPCAST)
    sys.modules.pop("shop")
    ran = partbox("events", "check", "shop:outbox", "--against", "schemas")
    assert (ran.code, ran.out.splitlines()[0]) == (
        0,
        "OrderPlaced has version 2 instead of 1, with an upcast: breaks nothing",
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check", "shop:outbox", "--against", "nowhere"], "there is no folder nowhere: write it with"),
        (["check", "shop:outbox", "--against", "empty"], "folder empty has no schema of an event: write it with"),
        (["check", "shop:outbox", "--against", "shop.py"], "there is no folder shop.py"),
        (["shop:outbox", "--json-schema", "shop.py"], "cannot write shop.py/OrderPlaced.v1.json: "),
        (["shop:outbox", "--asyncapi", "empty"], "cannot write empty: Is a directory: name a place"),
        (["shop:outbox", "--asyncapi", "a.json", "--topic", "{shop}"], "topic '{shop}' names {shop}"),
        (["shop:other"], "module 'shop' has no 'other'"),
        (["shopp:outbox"], "there is no module 'shopp'"),
    ],
)
def test_an_impossible_request_is_reported_in_one_line_and_changes_nothing(partbox, shop, here, arguments, said):
    (here / "empty").mkdir()
    before = sorted(path for path in here.rglob("*") if "__pycache__" not in path.parts)
    assert said in partbox("events", *arguments).error
    assert sorted(path for path in here.rglob("*") if "__pycache__" not in path.parts) == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check", "shop:outbox"], "events check needs --against: for example `partbox events check shop:outbox"),
        (["shop:outbox", "--topic", "a"], "--topic is for --asyncapi, which is missing"),
        (["shop:outbox", "--markdown", "--json"], "--markdown and --json both print"),
        (["shop:outbox", "--json", "--json-schema", "a"], "--json prints, and another option writes a file"),
        (["shop:outbox", "--jsn"], "has no option --jsn: did you mean --json?"),
    ],
)
def test_wrong_usage_is_one_line_with_the_remedy(partbox, shop, here, arguments, said):
    ran = partbox("events", *arguments)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert said in ran.err
    assert not (here / "a").exists()


def test_without_an_event_class_no_documents_are_written(partbox, shop, here):
    shop('@partbox.event(aggregate_type="Order", key="order_id")\n', "")
    assert "no module that shop:outbox imports declares an event" in (
        partbox("events", "shop:outbox", "--json-schema", "schemas").error
    )
    assert not (here / "schemas").exists()
    (here / "shop.py").write_text("import partbox\n\noutbox = partbox.Outbox()\n")
    sys.modules.pop("shop")
    assert partbox("events", "shop:outbox").out.startswith("shop:outbox knows no event: decorate a class")
