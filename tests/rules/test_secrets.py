"""What is taken out of texts before anybody sees them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partbox.rules.secrets import MASK, masked

# In its simplest form, which takes quadratic time.
IN_URL = re.compile(r"(\w+://[^:/@\s]*):\S*@")
AS_PAIR = re.compile(r"""(\w*password\s*=\s*)('(?:\\.|[^'\\])*'?|(?:[^\s&'"]|['"](?=\w))+)""", re.IGNORECASE)

PARTS = st.sampled_from(
    ["postgresql://", "u", ":", "p", "@", "/", " ", "\n", "password", "=", "'", "\\", "://", "sslpassword", "é", "x=1"]
)


def simply_masked(text):
    return AS_PAIR.sub(rf"\1{MASK}", IN_URL.sub(rf"\1:{MASK}@", text))


@given(st.lists(PARTS, max_size=30).map("".join))
def test_it_masks_what_the_simple_expressions_do(text):
    assert masked(text) == simply_masked(text)


@pytest.mark.parametrize(
    "part", ["a://b:", "a", "://", "a://b:c@", "password", "password=", "password='", "a:b@c/"], ids=str
)
def test_a_long_text_of_any_kind_is_masked_before_anybody_gives_up(part):
    """Quadratic time would be many minutes."""
    assert len(masked(part * 30_000)) > 0
