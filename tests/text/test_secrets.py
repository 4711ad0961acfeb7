"""Secrets are taken out of texts before anybody sees them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partbox.text.secrets import MASK, masked, masked_url

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


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("amqp://u:p@h/v?exchange=e", "amqp://u:***@h/v?exchange=e"),
        ("nats://token@a,b:1", "nats://***@a,b:1"),
        ("redis://:p@h:1/0?maxlen=7", "redis://:***@h:1/0?maxlen=7"),
        (
            "kafka://h?sasl.password=a/b&linger.ms=5&ssl.key.pem=x",
            "kafka://h?sasl.password=***&linger.ms=5&ssl.key.pem=***",
        ),
        ("https://h/a?b=c&d", "https://h/a?b=***&***"),
        ("https://h/a", "https://h/a"),
        ("stdout:", "stdout:"),
    ],
)
def test_of_a_url_everything_is_shown_but_what_may_be_secret(url, seen):
    assert masked_url(url) == seen


def test_the_secret_of_a_webhook_is_masked_wherever_it_stands():
    assert masked("signed with whsec_MDEy+/==, and sent") == "signed with ***, and sent"
