"""Whatever a file, a variable or a keyword says: the settings load, or one line names the setting and the remedy."""

import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from run_size import examples

from partbox.errors import SettingsError
from partbox.settings import Settings, load, names

REAL = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
LONGEST_LINE = 2_500  # 200 characters of a value, each escaped
PASSWORD = "hunter2-hunter2"

NAMES = st.sampled_from([*names()])
UNITS = (
    "0",
    "1",
    "-1",
    "250ms",
    "6s",
    "1e3",
    "1e999",
    "nan",
    "inf",
    "64MiB",
    "none",
    "off",
    "true",
    "block",
    "dead",
    "",
)
TEXTS = st.sampled_from(UNITS) | st.text(st.characters(codec="utf-8"), max_size=30)
VARIABLES = TEXTS.filter(lambda text: "\0" not in text)
ATOMS = st.one_of(TEXTS, st.integers(-(2**70), 2**70), st.floats(), st.booleans())
VALUES = st.recursive(ATOMS, lambda inner: st.lists(inner, max_size=3), max_leaves=4)


@pytest.fixture(autouse=True)
def nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable and no file of this machine; a password in the DSN, which no line may show."""
    for variable in [name for name in os.environ if name.startswith("PARTBOX_")]:
        monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PARTBOX_DSN", f"postgresql://u:{PASSWORD}@h/d")


def loaded(**keywords: Any) -> Settings | None:
    """The settings; None where they were refused as they should be."""
    try:
        done = load(**keywords)
    except SettingsError as error:
        said = str(error)
        assert said.isprintable(), said
        assert 0 < len(said) <= LONGEST_LINE
        assert PASSWORD not in said
        return None
    for name in names():
        assert PASSWORD not in done.shown(name)
    return done


def toml(value: Any) -> str:
    """`value` as TOML writes it."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            escaped = "".join(
                f"\\U{ord(each):08x}" if each in '"\\' or not each.isprintable() else each for each in value
            )
            return f'"{escaped}"'
        case list():
            return f"[{', '.join(map(toml, value))}]"
        case _:
            return str(value)


@settings(REAL, max_examples=examples(150))
@given(
    given_values=st.dictionaries(NAMES | st.text("abc_", min_size=1, max_size=5), VALUES, max_size=4),
    table=st.booleans(),
)
def test_a_file_of_any_values_loads_or_is_refused_in_one_line(given_values: dict[str, Any], table: bool) -> None:
    lines = [f"{name} = {toml(value)}" for name, value in given_values.items()]
    Path("partbox.toml").write_text("\n".join(["[partbox]"] * table + lines), encoding="utf-8")
    done = loaded()
    for name in given_values if done else ():
        assert done is not None
        assert done.origins[name] == ("PARTBOX_DSN" if name == "dsn" else "partbox.toml")


@settings(REAL, max_examples=examples(100))
@given(content=st.binary() | st.text(st.characters(codec="utf-8")).map(str.encode))
@example(content=b"[[partbox]]\n")
@example(content=b"[partbox]\nretry = {a = 1}\n")
@example(content=b"[partbox.lease]\n")
@example(content=b"lease = 2024-01-01\n")
@example(content=b"[partbox]\ndsn = ['postgresql://u:hunter2-hunter2@h/d']\n")
@example(content=b"\xff\xfe")
@example(content=b"a = " + b"[" * 2_000)
@example(content=b"lease = 1" + b"0" * 5_000)
def test_a_file_of_any_bytes_loads_or_is_refused_in_one_line(content: bytes) -> None:
    Path("partbox.toml").write_bytes(content)
    loaded()


@settings(REAL, max_examples=examples(200))
@given(variables=st.dictionaries(NAMES | st.text("abc_", min_size=1, max_size=5), VARIABLES, max_size=4))
def test_variables_of_any_text_load_or_are_refused_in_one_line(variables: dict[str, str]) -> None:
    with patch.dict(os.environ, {f"PARTBOX_{name.upper()}": text for name, text in variables.items()}):
        loaded()


@settings(REAL, max_examples=examples(100))
@given(name=NAMES, data=st.binary().filter(lambda data: b"\0" not in data))
def test_variables_of_any_bytes_load_or_are_refused_in_one_line(name: str, data: bytes) -> None:
    with patch.dict(os.environ, {f"PARTBOX_{name.upper()}": os.fsdecode(data)}):
        loaded()


@settings(REAL, max_examples=examples(200))
@given(keywords=st.dictionaries(NAMES, VALUES | st.none() | st.binary() | st.dictionaries(TEXTS, ATOMS), max_size=3))
def test_keywords_of_any_kind_load_or_are_refused_in_one_line(keywords: dict[str, Any]) -> None:
    loaded(**keywords)


@REAL
@given(before=TEXTS, after=TEXTS)
def test_a_password_beside_garbage_is_never_shown(before: str, after: str) -> None:
    for dsn in (f"postgresql://u:{PASSWORD}@{after}", f"host=h password={PASSWORD} {after}"):
        done = loaded(dsn=dsn)
        assert done is None or PASSWORD not in repr(done)
    loaded(dsn=[before, f"postgresql://u:{PASSWORD}@h/d"])


@pytest.mark.parametrize("name", [*names()])
def test_a_long_wrong_value_makes_no_long_error(name: str) -> None:
    loaded(**{name: "x" * 100_000})
    loaded(**{name: ["x" * 100_000]})
