"""Naming an outbox on the command line, and what stands in the way; `partbox handlers` and the flags of `worker`."""

import ast
import json
import sys

import pytest

SHOP = """
from partbox import Outbox

outbox = Outbox()
number = 5


class Recording(Outbox):
    def _make_nodes(self, database, *, load_handlers, **wanted):
        self.before = self.settings
        self.flagged, self.load_handlers, self.wanted = database.settings, load_handlers, wanted
        return self

    def run(self, dsns, *, pages, until_empty):
        print(self.wanted | {"until_empty": until_empty, "dsns": list(dsns)})
        given = [name for name, origin in self.flagged.origins.items() if origin != "default"]
        print({name: self.flagged.shown(name) for name in given})
        assert self.settings is self.before  # options are the command's, and not the outbox's ...
        assert self.load_handlers() == (self.handlers, self.codecs)
        assert self.settings == self.flagged  # ... but where a worker process has loaded it
        return 3


recording = Recording("host=keyword", schema="keyword", concurrency=2, window=7)


@outbox.on("OrderPlaced", "Order")
def confirm(event): ...


@outbox.on("OrderPlaced", max_attempts=3)
async def notify(event): ...


@outbox.on("*", subscription="audit")
def audit(event): ...


served = Recording("host=keyword", schema="keyword", concurrency=2, window=7)
served.handlers = outbox.handlers
"""


@pytest.fixture(autouse=True)
def fresh_modules(here):
    """A module of the same name in another test is another module."""
    path = list(sys.path)
    yield
    sys.path[:] = path
    for name, module in list(sys.modules.items()):
        if str(here) in (getattr(module, "__file__", None) or str(list(getattr(module, "__path__", ())))):
            del sys.modules[name]


@pytest.fixture
def shop(here):
    (here / "shop.py").write_text(SHOP)


def test_handlers_lists_which_handler_takes_which_event(partbox, shop):
    lines = partbox("handlers", "shop:outbox").out.splitlines()
    assert lines[0].split("  ")[0] == "subscription"
    assert [line.split() for line in lines[1:]] == [
        ["audit", "*", "any", "shop.audit"],
        ["shop.py:35"],
        ["default", "OrderPlaced", "Order", "shop.confirm"],
        ["shop.py:27"],
        ["default", "OrderPlaced", "any", "shop.notify", "(async)"],
        ["shop.py:31"],
        ["max_attempts", "=", "3"],
    ]
    assert "audit" not in partbox("handlers", "shop:outbox", "--subscription", "default").out


def test_handlers_as_json_is_the_whole_table(partbox, shop):
    rows = json.loads(partbox("handlers", "shop:outbox", "--json").out)
    assert [(row["event_type"], row["aggregate_type"], row["kind"]) for row in rows] == [
        ("*", None, "sync"),
        ("OrderPlaced", "Order", "sync"),
        ("OrderPlaced", None, "async"),
    ]
    assert rows[2]["options"] == {"max_attempts": "3"}


def test_an_outbox_without_handlers_says_how_to_register_one(partbox, shop):
    assert "@outbox.on" in partbox("handlers", "shop:recording").out


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("shop", "target 'shop' must be MODULE:OUTBOX, such as shop:outbox"),
        ("shop:", "must be MODULE:OUTBOX"),
        ("shop.py:outbox", "write shop:outbox"),
        ("./app/shop.py:outbox", "write app.shop:outbox"),
        ("nowhere:outbox", "there is no module 'nowhere'"),
        ("shop.orders:outbox", "there is no module 'shop.orders'"),
        ("shop:outbx", "module 'shop' has no 'outbx': did you mean shop:outbox?"),
        ("shop:number", "shop:number is of type int, not an Outbox: did you mean shop:"),
        ("shop:Recording", "is of type type, not an Outbox"),
    ],
)
def test_an_invalid_outbox_target_is_reported_in_one_line_with_the_remedy(partbox, shop, target, says):
    assert says in partbox("handlers", target).error
    assert says in partbox("worker", target).error


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import json\nimport kafka_missing", "(broken.py:2): ModuleNotFoundError: No module named 'kafka_missing'"),
        ("x = (\ny = 2", "(broken.py:1): SyntaxError: '(' was never closed"),
        ("def f():\n    return 1 / 0\nf()", "(broken.py:2): ZeroDivisionError: division by zero; correct that line"),
        ("raise SystemExit('no\\nthanks')", "(broken.py:1): SystemExit: no thanks"),
        (
            "from shop import outbox\n\noutbox.register(print, 'OrderPlaced', 'Order')",
            "(broken.py:3): 'OrderPlaced' of Order has a handler in subscription 'default', shop.confirm (shop.py:27)",
        ),
        ("from partbox import Outbox\noutbox = Outbox(leese=3)", "(broken.py:2): unknown setting 'leese'"),
    ],
)
def test_a_module_that_does_not_import_names_its_innermost_cause(partbox, shop, here, code, says):
    (here / "broken.py").write_text(code)
    error = partbox("handlers", "broken:outbox").error
    assert error.startswith("partbox: module 'broken' cannot be imported ")
    assert says in error


def test_worker_hands_its_flags_to_the_outbox_and_ends_with_its_code(partbox, shop):
    plain = partbox("worker", "shop:served")
    assert plain.code == 3
    assert ran(plain.out) == (
        {"subscription": "default", "dead_to": None, "until_empty": False, "dsns": []},
        {"dsn": "host=keyword", "schema": "keyword", "concurrency": "2", "window": "7"},
    )
    full = partbox(
        "worker",
        "shop:served",
        "--processes",
        "2",
        "--concurrency",
        "8",
        "--subscription",
        "audit",
        "--until-empty",
        "--dsn",
        "a",
        "--dsn",
        "b",
        "--schema",
        "orders",
        "--lease",
        "20s",
        "--pooler",
    )
    assert ran(full.out) == (
        {"subscription": "audit", "dead_to": None, "until_empty": True, "dsns": ["a", "b"]},
        {
            "dsn": "host=keyword",
            "schema": "orders",
            "processes": "2",
            "concurrency": "8",
            "window": "7",
            "lease": "20s",
            "pooler": "true",
        },
    )


def test_a_single_dsn_on_the_command_line_becomes_the_dsn_of_the_outbox(partbox, shop):
    given, settings = ran(partbox("worker", "shop:served", "--dsn", "host=flag").out)
    assert (given["dsns"], settings["dsn"]) == ([], "host=flag")


def ran(out: str) -> tuple[dict[str, object], dict[str, str]]:
    """What a recording outbox was asked for, and its settings."""
    given, settings = map(ast.literal_eval, out.splitlines())
    return given, settings
