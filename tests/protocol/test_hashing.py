"""Partitions: the published vectors, and SQL equal to Python."""

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_size import examples

from partbox import PublishError, partition_of

VECTORS = json.loads((Path(__file__).parent / "murmur3.json").read_text(encoding="utf-8"))["vectors"]
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: ascii(vector["key"])[:40])
def test_a_published_vector_has_its_partition(vector: dict[str, Any]) -> None:
    assert partition_of(vector["key"]) == vector["partition"]


@given(TEXT)
def test_every_text_has_a_partition_from_0_to_255(text: str) -> None:
    assert 0 <= partition_of(text) <= 255


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (7, "aggregate id 7 is of type int, not text: convert it by str"),
        (b"7", "aggregate id b'7' is of type bytes"),
        (None, "aggregate id None is of type NoneType"),
        ("\ud800", "aggregate id .* holds a lone surrogate"),
    ],
)
def test_anything_but_text_is_refused_with_the_value_and_the_remedy(key: Any, said: str) -> None:
    with pytest.raises(PublishError, match=said):
        partition_of(key)


def test_sql_gives_the_published_vectors_their_partition(conn: psycopg.Connection[Any]) -> None:
    partitions = {each["key"]: each["partition"] for each in VECTORS if "\0" not in each["key"]}  # text has no NUL
    assert _in_sql(conn, [*partitions]) == [*partitions.values()]


@settings(
    max_examples=examples(50),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(texts=st.lists(TEXT, max_size=30))
def test_sql_and_python_agree_on_any_text(conn: psycopg.Connection[Any], texts: list[str]) -> None:
    assert _in_sql(conn, texts) == [partition_of(text) for text in texts]


def test_sql_and_python_agree_on_a_very_long_text(conn: psycopg.Connection[Any]) -> None:
    texts = ["é" * 10_001, "x" * 4_999]
    assert _in_sql(conn, texts) == [partition_of(text) for text in texts]


def _in_sql(conn: psycopg.Connection[Any], texts: list[str]) -> list[int]:
    rows = conn.execute(
        "select partbox.partition_of(key) from unnest(%s::text[]) with ordinality as t (key, place) order by place",
        (texts,),
    )
    return [partition for (partition,) in rows]
