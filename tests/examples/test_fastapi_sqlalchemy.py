import httpx
import psycopg
from brokers import free_port
from readme_commands import answers
from waiting import eventually


def test_orders_that_are_posted_are_confirmed_and_a_commit_that_fails_answers_500(example, empty_dsn):
    shop = example("fastapi_sqlalchemy")
    init, check, application, worker = shop.commands
    port = free_port()
    url = f"http://127.0.0.1:{port}"

    shop.run(init)
    assert shop.run(check) == "all fits 1 schema of schemas\n"
    shop.start(application.replace("8000", str(port)))
    log = shop.start(worker)
    eventually(lambda: answers(f"{url}/openapi.json"))
    placed = httpx.post(f"{url}/orders", json={"reference": "A-1", "total": 42})
    refused = httpx.post(f"{url}/orders", json={"reference": "A-1", "total": 7})

    assert (placed.status_code, placed.json()) == (201, {"id": 1})
    assert refused.status_code == 500
    eventually(lambda: "order 1 over 42 is confirmed" in log.read_text())
    with psycopg.connect(empty_dsn) as conn:
        assert conn.execute("select count(*) from orders").fetchone() == (1,)
        assert conn.execute("select count(*) from partbox.record").fetchone() == (1,)
    shop.end()
