"""The words for several things in a line."""

import pytest

from partbox.text.wording import format_names


@pytest.mark.parametrize(
    ("count", "said"), [(0, ""), (2, "0, 1"), (3, "0, 1 and 1 more"), (1_236, "0, 1 and 1,234 more")]
)
def test_left_out_items_are_counted_in_the_usual_number_format(count, said):
    assert format_names([str(each) for each in range(count)], most=2) == said
