"""`op.partbox_upgrade()` in a project of Alembic's own, over each driver, online and as SQL."""

import subprocess
import textwrap
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from next_migration import known
from ownership import background
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from servers import binaries
from sqlalchemy import make_url
from test_patience import PUBLISH, hurry, open_publisher
from test_scripts import dumped
from waiting import eventually

from partbox.alembic import include_name, leaving_out
from partbox.db.schema import migrate as migrations
from partbox.db.schema.grants import Roles
from partbox.db.schema.migrate import check_schema_version, migrate
from partbox.errors import SchemaError
from partbox.segments import maintain_segments
from partbox.settings import load

DRIVERS = ("psycopg", "psycopg2", "asyncpg", "psycopg_async")
ENV = """
import asyncio
from alembic import context
from sqlalchemy import Column, Integer, MetaData, Table, create_engine, pool
from sqlalchemy.ext.asyncio import create_async_engine
import partbox.alembic

metadata = MetaData()
Table("orders", metadata, Column("id", Integer, primary_key=True))
config = context.config
url = config.get_main_option("sqlalchemy.url")
names = dict(include_schemas=True, {filter})

def run(connection):
    context.configure(connection=connection, target_metadata=metadata, **names)
    with context.begin_transaction():
        context.run_migrations()

async def run_async():
    engine = create_async_engine(url, poolclass=pool.NullPool)
    async with engine.connect() as connection:
        await connection.run_sync(run)
    await engine.dispose()

if context.is_offline_mode():
    context.configure(url=url, target_metadata=metadata, literal_binds=True)
    with context.begin_transaction():
        context.run_migrations()
elif "async" in url.split(":")[0]:
    asyncio.run(run_async())
else:
    engine = create_engine(url, poolclass=pool.NullPool, {engine})
    with engine.connect() as connection:
        run(connection)
"""
REVISION = """
from alembic import op
import sqlalchemy as sa
revision, down_revision = {revision!r}, {before!r}

def upgrade():
    {upgrade}

def downgrade():
    op.partbox_downgrade()
"""
TEMPLATE = '"""${message}"""\nrevision = ${repr(up_revision)}\ndown_revision = ${repr(down_revision)}\n\n' + (
    "def upgrade():\n    ${upgrades if upgrades else 'pass'}\n\n"
    "def downgrade():\n    ${downgrades if downgrades else 'pass'}\n"
)
ORDERS = 'op.create_table("orders", sa.Column("id", sa.Integer, primary_key=True))'


class Project:
    """A folder with env.py and revisions, each of which runs a line."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.folder, self.dsn = folder, dsn
        (folder / "versions").mkdir()
        (folder / "script.py.mako").write_text(TEMPLATE)
        self.env()
        self.before: str | None = None

    def env(self, filter: str = "include_name=partbox.alembic.include_name", engine: str = "") -> None:
        text = ENV.replace("{filter}", filter).replace("{engine}", engine)
        (self.folder / "env.py").write_text(textwrap.dedent(text))

    def revision(self, upgrade: str = "op.partbox_upgrade()") -> None:
        revision = f"r{len(list((self.folder / 'versions').glob('*.py'))) + 1}"
        text = REVISION.format(revision=revision, before=self.before, upgrade=upgrade)
        (self.folder / "versions" / f"{revision}.py").write_text(text)
        self.before = revision

    def config(self, driver: str = "psycopg", output: Any = None) -> Config:
        given = conninfo_to_dict(self.dsn)
        url = make_url(f"postgresql+{driver}://").set(
            username=str(given["user"]),
            database=str(given["dbname"]),
            query={"host": str(given["host"]), "port": str(given["port"])},
        )
        config = Config(output_buffer=output)
        config.set_main_option("script_location", str(self.folder))
        config.set_main_option("path_separator", "os")
        config.set_main_option("sqlalchemy.url", url.render_as_string(False).replace("%", "%%"))
        return config

    def upgrade(self, driver: str = "psycopg", to: str = "head") -> None:
        command.upgrade(self.config(driver), to)


@pytest.fixture
def project(tmp_path: Path, empty_dsn: str) -> Project:
    folder = tmp_path / "migrations"
    folder.mkdir()
    return Project(folder, empty_dsn)


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_revision_makes_the_schema_and_a_later_one_finds_nothing_to_do(
    project: Project, dsn: str, driver: str
) -> None:
    project.revision(ORDERS)
    project.revision()
    project.revision("op.partbox_upgrade()")
    project.upgrade(driver)
    assert dumped(project.dsn) == dumped(dsn)
    with psycopg.connect(project.dsn) as conn:
        check_schema_version(conn)
        assert conn.execute("select xmin = xid::xid from partbox.meta where key = 'marker'").fetchone() == (True,)
        assert conn.execute("select version_num from alembic_version").fetchall() == [("r3",)]
    project.upgrade(driver)


def test_a_revision_that_fails_later_leaves_no_schema(project: Project) -> None:
    project.revision()
    project.revision('op.execute("select 1 / 0")')
    with pytest.raises(Exception, match="division by zero"):
        project.upgrade()
    with psycopg.connect(project.dsn) as conn:
        assert conn.execute("select to_regnamespace('partbox'), to_regclass('alembic_version')").fetchone() == (
            None,
            None,
        )


def test_the_settings_of_an_upgrade_do_not_affect_a_later_revision(project: Project) -> None:
    project.revision()
    project.revision("op.execute(\"create function wrong() returns int language sql as 'select nothing'\")")
    with pytest.raises(Exception, match='column "nothing" does not exist'):
        project.upgrade()


def test_an_upgrade_takes_a_schema_name_and_roles_and_later_ones_remember_the_roles(project: Project) -> None:
    schema, role = "Order's %(x)s :y", "o'pub :x %s"
    with psycopg.connect(project.dsn, autocommit=True) as conn:
        conn.execute(sql.SQL("create role {}").format(sql.Identifier(role)))
        try:
            project.revision(f"op.partbox_upgrade({schema!r}, publisher_roles=[{role!r}])")
            project.revision(f"op.partbox_upgrade({schema!r})")
            project.upgrade()
            check_schema_version(conn, schema)
            may = conn.execute("select has_schema_privilege(%s, %s, 'usage')", [role, schema]).fetchone()
            assert may == (True,)
            assert migrate(project.dsn, schema, roles=Roles((role,))) == []
        finally:
            conn.execute(sql.SQL("drop owned by {}").format(sql.Identifier(role)))
            conn.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))


@pytest.mark.parametrize("times", [1, 2])
def test_the_sql_that_alembic_prints_runs_through_psql(project: Project, dsn: str, tmp_path: Path, times: int) -> None:
    project.revision(ORDERS)
    for _ in range(times):
        project.revision()
    place = tmp_path / "upgrade.sql"
    with place.open("w", encoding="ascii") as output:
        command.upgrade(project.config(output=output), "head", sql=True)
    psql = [binaries() / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", project.dsn, "-f", place]
    ran = subprocess.run(psql, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert dumped(project.dsn) == dumped(dsn)


def test_autogenerate_sees_nothing_of_partbox(project: Project) -> None:
    project.revision(ORDERS)
    project.revision()
    project.upgrade()
    with psycopg.connect(project.dsn, autocommit=True) as conn:
        conn.execute("create table stray (id int)")  # so that something is seen
    assert len(maintain_segments(lambda: project.dsn, load()).made) == 3
    command.revision(project.config(), "generated", autogenerate=True)
    script = ScriptDirectory.from_config(project.config()).get_revision("head")
    assert script is not None
    text = Path(script.path).read_text()
    assert "drop_table('stray')" in text
    assert "partbox" not in text
    with psycopg.connect(project.dsn, autocommit=True) as conn:
        conn.execute("drop table stray")
    Path(script.path).unlink()
    command.check(project.config())


@pytest.mark.filterwarnings("ignore:Did not recognize type")
def test_autogenerate_would_drop_the_schema_without_the_filter(project: Project) -> None:
    project.env("")
    project.revision(ORDERS)
    project.revision()
    project.upgrade()
    with pytest.raises(Exception, match="New upgrade operations detected"):
        command.check(project.config())


def test_a_filter_of_the_project_decides_on_all_other_schemas_and_tables() -> None:
    ours = leaving_out("partbox", "billing", then=lambda name, kind, parents: name != "legacy")
    table = {"schema_name": "billing"}
    seen = [
        ours("billing", "schema", {}),
        ours("record", "table", table),
        ours("legacy", "table", {"schema_name": None}),
    ]
    assert seen == [False, False, False]
    assert ours("orders", "table", {"schema_name": None})
    assert include_name(None, "schema", {})
    assert not include_name("partbox", "schema", {})


def test_a_downgrade_is_refused_and_changes_nothing(project: Project) -> None:
    project.revision()
    project.upgrade()
    with pytest.raises(SchemaError, match="only go forward: leave the schema as it is"):
        command.downgrade(project.config(), "base")
    with psycopg.connect(project.dsn) as conn:
        check_schema_version(conn)


@pytest.mark.parametrize("driver", DRIVERS)
def test_an_upgrade_that_an_open_transaction_holds_up_says_so_and_goes_on_when_it_has_ended(
    project: Project, driver: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hurry(monkeypatch)
    migrate(project.dsn)
    project.revision(ORDERS)
    project.revision()
    said = ""

    def told() -> bool:
        nonlocal said
        said += capsys.readouterr().err
        other.execute(PUBLISH)  # others publish meanwhile
        return said.count("(a job), open for") >= 2

    monkeypatch.setattr(migrations, "migrations", known)
    with psycopg.connect(project.dsn, autocommit=True) as other, background() as run:
        with open_publisher(project.dsn) as job:
            upgrading = run(project.upgrade, driver)
            eventually(told)
            job.rollback()
            upgrading.result()
        check_schema_version(other)
        assert other.execute("select to_regclass('public.orders') is not null").fetchone() == (True,)
    assert "schema 'partbox' is not migrated yet, the transaction of pid" in said


def test_an_upgrade_in_a_connection_that_commits_each_statement_is_refused(project: Project) -> None:
    migrate(project.dsn)
    project.revision()
    project.env(engine="isolation_level='AUTOCOMMIT'")
    with pytest.raises(SchemaError, match="these statements must run in one transaction"):
        project.upgrade()


def test_a_connection_that_commits_each_statement_or_sees_an_old_snapshot_is_refused(project: Project) -> None:
    project.revision()
    project.env(engine="isolation_level='AUTOCOMMIT'")
    with pytest.raises(Exception, match="these statements must run in one transaction"):
        project.upgrade()
    project.env(engine="isolation_level='REPEATABLE READ'")
    with pytest.raises(SchemaError, match="of Alembic is REPEATABLE READ, and partbox_upgrade needs READ"):
        project.upgrade()
    with psycopg.connect(project.dsn) as conn:
        assert conn.execute("select to_regnamespace('partbox')").fetchone() == (None,)
