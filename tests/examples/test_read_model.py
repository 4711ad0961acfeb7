import psycopg
from waiting import eventually

REVENUE = ["ada: 8 from 1", "bob: 7 from 1"]


def test_the_read_model_is_correct_before_and_after_a_rebuild(example, empty_dsn):
    model = example("read_model")
    init, create, sell, worker, show, pause, replay, clear, resume, _ = model.commands

    def shown() -> bool:
        return bool(model.run(show).splitlines() == REVENUE)

    for command in (init, create, sell):
        model.run(command)
    model.start(worker)
    eventually(shown, interval=0.2)
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        conn.execute("update revenue set total = 0")
    assert not shown()

    for command in (pause, replay, clear):
        model.run(command)
    assert model.run(show) == ""
    model.run(resume)
    eventually(shown, interval=0.2)
    model.end()
