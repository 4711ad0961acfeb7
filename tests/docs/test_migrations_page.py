"""What docs/migrations.md says is done: the commands, and the revision in a project of Alembic's."""

import re
import shlex
from pathlib import Path

import psycopg
import pytest
from alembic import command
from alembic.config import Config
from psycopg.conninfo import conninfo_to_dict

from partbox.cli import main
from partbox.db.schema.migrate import check_schema_version
from partbox.errors import SchemaError

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "migrations.md").read_text(encoding="utf-8")
ENV, REVISION = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [shlex.split(line) for line in re.findall(r"^\$ partbox (.*)$", PAGE, re.MULTILINE)]
AROUND = """
from alembic import context
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import MetaData, create_engine, make_url, pool

metadata = MetaData()
given = conninfo_to_dict(context.config.attributes["dsn"])
place = dict(host=given["host"], port=str(given["port"]))
url = make_url("postgresql+psycopg://").set(username=given["user"], database=given["dbname"], query=place)
with create_engine(url, poolclass=pool.NullPool).connect() as connection:
    {env}
    with context.begin_transaction():
        context.run_migrations()
"""


def test_the_alembic_revision_on_the_page_creates_the_schema_in_the_environment_on_the_page(tmp_path, empty_dsn):
    assert conninfo_to_dict(empty_dsn)
    (tmp_path / "versions").mkdir()
    (tmp_path / "env.py").write_text(AROUND.replace("{env}", ENV.replace("\n", "\n    ")))
    (tmp_path / "versions" / "one.py").write_text(f"revision, down_revision = 'one', None\n{REVISION}")
    config = Config(attributes={"dsn": empty_dsn})
    config.set_main_option("script_location", str(tmp_path))
    config.set_main_option("path_separator", "os")

    command.upgrade(config, "head")
    command.check(config)
    with pytest.raises(SchemaError):
        command.downgrade(config, "base")

    with psycopg.connect(empty_dsn) as conn:
        check_schema_version(conn)


@pytest.mark.parametrize("words", [words for words in COMMANDS if "--sql" in words], ids=" ".join)
def test_a_command_of_the_page_prints_sql(words, capsys):
    with pytest.raises(SystemExit) as exit:
        main(words)
    assert exit.value.code == 0
    assert "pg_advisory_xact_lock" in capsys.readouterr().out


def test_the_version_of_the_schema_is_stored_where_the_page_says(conn):
    (statement,) = re.findall(r"`(select value from partbox\.meta [^`]+)`", PAGE)
    assert int(conn.execute(statement).fetchone()[0]) >= 7
