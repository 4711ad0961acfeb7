"""What the pages on deployment, sizing and managed PostgreSQL say."""

import os
import re
import signal
from pathlib import Path

import psycopg
from kit import ROOT
from psycopg.conninfo import conninfo_to_dict
from waiting import eventually

DOCS = ROOT / "docs"
SHOP = """
from partbox import Outbox

outbox = Outbox()
outbox.on("OrderPlaced")(print)
"""


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def test_every_file_that_the_page_on_deploying_names_exists():
    named = re.findall(r"\bdeploy/[\w./@-]*[\w]", page("deploying.md"))
    assert len(set(named)) > 8
    assert [each for each in named if not (ROOT / each).exists()] == []


def test_every_variable_that_the_pages_name_is_a_setting():
    settings = page("settings.md")
    for name in ("deploying.md", "sizing.md", "managed-postgresql.md"):
        for variable in re.findall(r"PARTBOX_[A-Z_]*[A-Z]\b(?!…)", page(name)):
            assert f"`{variable}`" in settings, (name, variable)


def test_the_program_of_the_page_on_managed_postgresql_gives_a_token_as_password():
    (program,) = re.findall(r"^```python\n(.*?)^```", page("managed-postgresql.md"), re.MULTILINE | re.DOTALL)
    names: dict = {}
    exec(program, names)
    assert conninfo_to_dict(names["dsn"]())["password"] == names["token"]()


def test_a_node_has_no_more_connections_than_the_page_on_sizing_says(tmp_path, forks, fresh_dsn):
    assert "2 * processes + 2" in page("sizing.md")
    (tmp_path / "shop.py").write_text(SHOP)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PARTBOX_")}
    command = ["partbox", "worker", "shop:outbox", "--processes", "2"]
    env = kept | {"PARTBOX_DSN": fresh_dsn}
    process = forks.start_into(Path(tmp_path / "log"), *command, cwd=tmp_path, env=env)
    try:
        with psycopg.connect(fresh_dsn, autocommit=True) as conn:
            owners = "select count(distinct owner) from partbox.partition"
            eventually(lambda: conn.execute(owners).fetchone() == (2,))
            seen = conn.execute(
                "select application_name, count(*) from pg_stat_activity "
                "where datname = current_database() and pid <> pg_backend_pid() group by 1"
            ).fetchall()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
    assert dict(seen).keys() == {"partbox poller", "partbox saver", "partbox supervisor"}
    assert sum(dict(seen).values()) <= 2 * 2 + 2
