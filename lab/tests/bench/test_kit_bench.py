"""The kit's own benchmark prints what a test costs."""

from partbox_lab.bench import kit


def test_the_bench_of_the_kit_prints_the_cost_of_each_step_and_of_the_whole(server, capsys):
    kit.main(["3", server.dsn])
    *lines, verdict = capsys.readouterr().out.splitlines()
    steps = [line[:32].rstrip() for line in lines]
    assert steps == [
        "ms", "a fresh database", "publish", "drain", "put the database back", "the test, without its handler",
    ]  # fmt: skip
    assert verdict.startswith("3 tests, load ")
    assert "; bound 20 ms: " in verdict
