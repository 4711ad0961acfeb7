import httpx
import psycopg
from brokers import free_port
from readme_commands import answers
from waiting import eventually


def test_orders_that_are_posted_are_confirmed_and_a_request_that_fails_leaves_no_event(example, empty_dsn):
    shop = example("django_shop")
    init, migrate, server, worker = shop.commands
    url = f"http://127.0.0.1:{(port := free_port())}/orders"

    shop.run(init)
    shop.run(migrate)
    shop.start(server.replace("8000", str(port)))
    shop.start(worker)
    eventually(lambda: answers(url))
    placed = httpx.post(url, data={"total": 42})
    failed = httpx.post(url, data={"total": -1})

    assert (placed.status_code, placed.json()) == (201, {"id": 1})
    assert failed.status_code == 500
    confirmed = [{"id": 1, "total": 42, "confirmed": True}]
    eventually(lambda: httpx.get(url).json()["orders"] == confirmed, interval=0.1)
    shop.end()
    with psycopg.connect(empty_dsn) as conn:
        assert conn.execute("select count(*) from partbox.record").fetchone() == (1,)
