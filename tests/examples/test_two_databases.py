from readme_commands import url_of
from servers import new_database
from waiting import eventually


def test_one_command_confirms_the_orders_of_both_databases(example, server, empty_dsn):
    with new_database(server.dsn, "template1") as other:
        shop = example("two_databases", PARTBOX_DSN="", NORTH=url_of(empty_dsn), SOUTH=url_of(other))
        *before, worker = shop.commands

        for command in before:
            shop.run(command)
        log = shop.start(worker)

        eventually(lambda: log.read_text().count("is confirmed") >= 2)
        shop.end()
    confirmed = [line for line in log.read_text().splitlines() if line.endswith("is confirmed")]
    assert sorted(confirmed) == ["order 1 of the north is confirmed", "order 1 of the south is confirmed"]
