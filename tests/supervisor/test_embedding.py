"""The nodes of an outbox: what an application may ask for, and what only the command line has."""

import inspect

import pytest

from partbox import Outbox

MOST = 4  # keywords of what an application embeds


@pytest.mark.parametrize("name", ["worker", "drain", "supervisor", "run"])
def test_the_methods_that_an_application_embeds_take_few_keywords(name):
    given = inspect.signature(getattr(Outbox, name)).parameters
    assert len(given) - 1 <= MOST


def test_command_line_flags_override_settings_without_changing_the_outbox():
    outbox = Outbox("host=own", schema="own", lease="9s")
    database = outbox._database.with_flags({"dsn": "host=flag", "schema": "flag", "lease": None})
    assert (database.dsn, database.settings.schema_name, database.settings.lease) == ("host=flag", "flag", 9)
    assert (outbox._database.dsn, outbox.settings.schema_name) == ("host=own", "own")
    assert outbox._make_nodes(database).build_supervisor().settings is database.settings


def test_flags_without_a_dsn_keep_the_dsn_callable():
    def source() -> str:
        return "host=vault"

    assert Outbox(source)._database.with_flags({"lease": "20s"}).dsn is source


@pytest.mark.parametrize("name", ["processes", "concurrency"])
def test_an_invalid_number_is_refused_before_anything_starts(name):
    with pytest.raises(Exception, match=f"{name} = 0 is invalid: give a whole number from 1"):
        Outbox("postgresql://nowhere").supervisor(**{name: 0})
