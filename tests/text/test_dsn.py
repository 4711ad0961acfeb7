"""A DSN that cannot be read: the remedy is told, and nothing of the DSN."""

import pytest

from partbox.errors import SettingsError
from partbox.text.dsn import parse_dsn


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg", "psycopg2"])
@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_a_sqlalchemy_url_is_refused_with_the_advice_to_drop_its_driver(scheme, driver):
    with pytest.raises(SettingsError, match=rf"names a driver, .* drop \+{driver}, as in postgresql://") as refused:
        parse_dsn(f"{scheme}+{driver}://user:secret@host/shop")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("dsn", "meant"),
    [
        ("postgresql://u:secret@h/d?sslmod=require", "sslmode"),
        ("postgresql://h/d?sslmode=prefer&aplication_name=secret", "application_name"),
        ("host=h dbnam=secret", "dbname"),
        ("postgresql://h/d?secret=1", None),
        ("postgresql://h/d?sslmode", None),
    ],
)
def test_a_misspelt_key_of_a_dsn_is_refused_with_the_key_that_was_meant(dsn, meant):
    with pytest.raises(SettingsError) as refused:
        parse_dsn(dsn)
    said = str(refused.value)
    assert (f"(did you mean {meant!r}?)" in said) if meant else ("did you mean" not in said)
    assert "secret" not in said


def test_a_valid_dsn_is_read():
    assert parse_dsn("postgresql://u@h:5433/d?sslmode=require") == {
        "user": "u", "host": "h", "port": "5433", "dbname": "d", "sslmode": "require",
    }  # fmt: skip
