"""The quick poll: what counts, and the ids that it is planned for."""

from hypothesis import example, given
from hypothesis import strategies as st

from partbox.protocol import quick_poll as quick
from partbox.protocol.cursor import MAX_LATE, STRETCH
from partbox.protocol.horizon import Page

Ids = st.integers(0, 1 << 62)


@example(settled=5 * STRETCH, behind=STRETCH + 1, searched=STRETCH, place=0.0)
@example(settled=5 * STRETCH - 1, behind=0, searched=STRETCH, place=1.0)
@given(settled=Ids, behind=st.integers(0, 3 * STRETCH), searched=st.integers(0, STRETCH), place=st.floats(0, 1))
def test_the_planned_range_contains_every_id_that_a_valid_page_may_search(settled, behind, searched, place):
    lowest = max(0, settled - behind)
    page = Page("1:1:", settled, ((1, lowest),))
    floor = lowest + int((settled - lowest) * place)  # of those listed, some have ended
    drawn = floor + searched
    assert quick.has_found_all(MAX_LATE, floor, drawn)
    above, end = quick.compute_id_range(page)
    assert above <= page.floor <= floor
    assert drawn < end


@given(first=Ids, more=st.integers(0, 4 * STRETCH))
def test_a_quick_poll_is_planned_anew_once_for_each_stretch_of_ids(first, more):
    before, after = (quick.compute_id_range(Page("1:1:", settled)) for settled in (first, first + more))
    assert (before == after) == (first // STRETCH == (first + more) // STRETCH)


@given(settled=Ids)
def test_the_planned_range_ends_where_a_segment_may_end(settled):
    """So that it does not reach into the next one: both are whole stretches, and its end does not belong to it."""
    above, end = quick.compute_id_range(Page("1:1:", settled))
    assert above % STRETCH == end % STRETCH == 0
    assert end - above == 2 * STRETCH
