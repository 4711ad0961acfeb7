import json

import psycopg
from mock_cluster import MockCluster
from readme_commands import url_of
from servers import new_database
from waiting import eventually

DOCSTRING = "An order was placed, and is to be charged once."


def without_docstring(document):
    """The docstring that old pydantics give a dataclass."""
    return json.loads(document, object_hook=lambda part: {name: part[name] for name in part if part[name] != DOCSTRING})


def test_each_order_is_charged_once_though_its_message_arrives_twice(example, server):
    cluster = MockCluster()
    cluster.create("order-events")
    with new_database(server.dsn, "template1") as billing:
        shop = example("kafka_relay", KAFKA=cluster.servers, BILLING=url_of(billing))
        init, init_inbox, sell, relay, consumer, describe, replay = shop.commands

        for command in (init, init_inbox, sell):
            shop.run(command)
        committed = shop.text("asyncapi.json")
        shop.run(describe)
        assert without_docstring(shop.text("asyncapi.json")) == without_docstring(committed)
        shop.start(relay)
        log = shop.start(consumer)
        eventually(lambda: log.read_text().count("is charged") >= 2)
        shop.run(replay)
        eventually(lambda: log.read_text().count("has come again") >= 2)

        with psycopg.connect(billing) as conn:
            charged = conn.execute("select order_id, total from charge order by 1").fetchall()
        assert charged == [("1", 42), ("2", 7)]
        shop.end()
