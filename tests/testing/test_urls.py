"""The URL of the kit's database: each library reaches it by the form that is its own."""

from collections.abc import Callable
from typing import Any

import asyncpg
import psycopg
import psycopg2
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.ext.asyncio import create_async_engine

from partbox import PartboxError
from partbox.testing import url_of

WHERE = "select current_database()"


@pytest.fixture
def name(partbox_dsn: str) -> Any:
    return conninfo_to_dict(partbox_dsn)["dbname"]


@pytest.fixture
async def role(conn: psycopg.Connection[Any]) -> Any:
    """A role whose name and password have every character that a URL uses itself."""
    conn.execute("""create role "a@b:/?#%&+ c" login password 'p@:/?#%&+ ü' superuser""")
    yield {"user": "a@b:/?#%&+ c", "password": "p@:/?#%&+ ü"}
    conn.execute('drop role "a@b:/?#%&+ c"')


def test_psycopg_and_psycopg2_reach_the_database_of_the_test(partbox_url: Callable[[Any], str], name: str) -> None:
    with psycopg.connect(partbox_url("psycopg")) as app:
        assert app.execute(WHERE).fetchone() == (name,)
    older = psycopg2.connect(partbox_url("psycopg2"))
    with older.cursor() as cursor:
        cursor.execute(WHERE)
        assert cursor.fetchone() == (name,)
    older.close()


async def test_asyncpg_reaches_the_database_of_the_test(partbox_url: Callable[[Any], str], name: str) -> None:
    app = await asyncpg.connect(partbox_url("asyncpg"))
    assert await app.fetchval(WHERE) == name
    await app.close()


@pytest.mark.parametrize("library", ["sqlalchemy", "sqlalchemy+psycopg2"])
def test_sqlalchemy_reaches_the_database_of_the_test(
    partbox_url: Callable[[Any], str], name: str, library: str
) -> None:
    engine = create_engine(partbox_url(library))
    with engine.connect() as app:
        assert app.scalar(text(WHERE)) == name
    engine.dispose()


@pytest.mark.parametrize("library", ["sqlalchemy", "sqlalchemy+asyncpg"])
async def test_sqlalchemy_reaches_it_asynchronously_too(
    partbox_url: Callable[[Any], str], name: str, library: str
) -> None:
    engine = create_async_engine(partbox_url(library))
    async with engine.connect() as app:
        assert await app.scalar(text(WHERE)) == name
    await engine.dispose()


async def test_names_and_passwords_may_have_any_character(partbox_dsn: str, role: dict[str, str]) -> None:
    dsn = make_conninfo(partbox_dsn, **role, sslmode="prefer", connect_timeout=5)
    with psycopg.connect(url_of(dsn, "psycopg")) as app:
        assert app.info.user == role["user"]
    for library in ("sqlalchemy", "sqlalchemy+asyncpg"):
        engine = create_async_engine(url_of(dsn, library))  # type: ignore[arg-type]
        async with engine.connect() as session:
            assert await session.scalar(text("select current_user")) == role["user"]
        await engine.dispose()
        assert make_url(url_of(dsn, library)).password == role["password"]  # type: ignore[arg-type]
    direct = await asyncpg.connect(url_of(dsn, "asyncpg"))
    assert await direct.fetchval("select current_user") == role["user"]
    await direct.close()


def test_a_library_without_a_form_of_its_own_is_refused(partbox_url: Callable[[Any], str]) -> None:
    with pytest.raises(PartboxError, match="no URL for 'mysql': name one of asyncpg, psycopg, psycopg2, sqlalchemy,"):
        partbox_url("mysql")
    assert url_of("host=db.example.org dbname=shop", "sqlalchemy") == "postgresql+psycopg:///shop?host=db.example.org"
