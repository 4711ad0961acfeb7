from waiting import eventually


def test_committed_orders_are_confirmed_and_a_rolled_back_one_is_not(example, empty_dsn):
    plain = example("plain")
    init, shop, worker = plain.commands

    plain.run(init)
    assert plain.run(shop) == "not placed: a total of -1\n"
    log = plain.start(worker)

    eventually(lambda: log.read_text().count("is confirmed") >= 2)
    plain.end()
    confirmed = [line for line in log.read_text().splitlines() if line.endswith("is confirmed")]
    assert sorted(confirmed) == ["order 1 over 42 is confirmed", "order 2 over 7 is confirmed"]
