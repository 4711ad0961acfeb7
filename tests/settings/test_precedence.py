"""Settings among the variables of an environment, and the warning about variables that only look like settings."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partbox.settings.precedence import MOST, sort_variables, strays_text

KNOWN = ("lease", "schema", "http", "http_token", "dsn")
KUBERNETES = [
    "PARTBOX_SERVICE_HOST",
    "PARTBOX_SERVICE_PORT",
    "PARTBOX_SERVICE_PORT_HTTP",
    "PARTBOX_PORT",
    "PARTBOX_PORT_8080_TCP",
    "PARTBOX_PORT_8080_TCP_PROTO",
    "PARTBOX_PORT_8080_TCP_PORT",
    "PARTBOX_PORT_8080_TCP_ADDR",
    "PARTBOX_PORT_53_UDP_ADDR",
    "PARTBOX_LEASE_KEEPER_SERVICE_HOST",
]
NAMES = st.text(string.ascii_letters + string.digits + "_é\n", max_size=30).map("PARTBOX_{}".format)


def test_variables_are_told_apart_as_settings_and_unknown_ones_and_empty_ones_count_as_not_set():
    variables = {
        "PATH": "/bin",
        "PARTBOX_LEASE": "9s",
        "PARTBOX_schema": "orders",
        "PARTBOX_DSN": "",
        "PARTBOX_LEESE": "1",
        "PARTBOX_A": "",
        "PARTBOX_CONFIG": "x.toml",
        "PARTBOX_PYTHON": "python3",
        "PARTBOX_TEST_ANYTHING": "1",
    }
    found = sort_variables(variables, KNOWN)
    assert found.settings == {"lease": ("9s", "PARTBOX_LEASE"), "schema": ("orders", "PARTBOX_schema")}
    assert found.strays == ["PARTBOX_LEESE"]


def test_without_unknown_variables_there_is_no_warning():
    assert strays_text([], KNOWN) is None


def test_a_mistyped_variable_is_named_with_the_setting_that_was_meant():
    said = strays_text(["PARTBOX_HTPP_TOKEN", "PARTBOX_LEESE", "PARTBOX_ZZZ"], KNOWN)
    assert said == (
        "ignored environment variables that are not settings: PARTBOX_HTPP_TOKEN (did you mean PARTBOX_HTTP_TOKEN?), "
        "PARTBOX_LEESE (did you mean PARTBOX_LEASE?), PARTBOX_ZZZ; `partbox config` lists all settings"
    )


@pytest.mark.parametrize("variable", KUBERNETES)
def test_for_variables_that_kubernetes_adds_for_a_service_the_switch_to_disable_them_is_named(variable):
    said = strays_text([variable], KNOWN)
    assert variable in said
    assert "did you mean" not in said
    assert "enableServiceLinks: false" in said


def test_of_many_unknown_variables_some_are_named_and_the_others_counted():
    said = strays_text([f"PARTBOX_ZZ{number:03}" for number in range(100)], KNOWN)
    assert "PARTBOX_ZZ007 and 92 more;" in said
    assert MOST == 8


@given(st.dictionaries(NAMES, st.text(max_size=3)))
def test_every_variable_is_a_setting_or_unknown_or_ignored_and_the_warning_is_short(variables):
    found = sort_variables(variables, KNOWN)
    assert {variable for _, variable in found.settings.values()}.isdisjoint(found.strays)
    assert found.strays == sorted(found.strays)
    assert set(found.settings) <= set(KNOWN)
    said = strays_text(found.strays, KNOWN)
    assert (said is None) == (not found.strays)
    assert said is None or (said.isprintable() and len(said) < 1_000)
