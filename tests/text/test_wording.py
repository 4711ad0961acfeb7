"""The words for several things in a line."""

import pytest

from partbox.text.wording import format_names


@pytest.mark.parametrize(
    ("count", "said"), [(0, ""), (2, "0, 1"), (3, "0, 1 and 1 more"), (1_236, "0, 1 and 1,234 more")]
)
def test_what_is_left_out_is_counted_as_every_other_count_is_written(count, said):
    assert format_names([str(each) for each in range(count)], most=2) == said
