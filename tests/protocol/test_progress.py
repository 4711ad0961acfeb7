"""The cursor that may be saved."""

from sys import getsizeof

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partbox.protocol import progress as rules
from partbox.protocol.horizon import Page
from partbox.protocol.progress import Progress

P0, P1, P2, P3 = (Page(f"{n}:{n}:", n) for n in range(4))


def progress(last_id: int = 0) -> Progress:
    return Progress(P0, last_id)


def done(progress: Progress, *ids: int) -> None:
    progress.finish([*ids], [b"%d" % id for id in ids])


def target(progress: Progress) -> tuple[Page, int]:
    made = progress.find_save_target()
    return made.page, made.last_id


def test_the_last_id_is_that_of_the_finished_prefix():
    made = progress()
    made.take_page(P1, [], [1, 2, 3])
    done(made, 3, 1)
    assert target(made) == (P1, 1)
    assert made.list_unfinished() == [2]
    done(made, 2)
    assert target(made) == (P1, 3)
    assert made.list_unfinished() == []


def test_the_highest_record_that_was_read_may_be_unfinished_or_finished_out_of_order():
    """A note of it says from when on an event was being handled. The passed position alone would say a later time."""
    made = progress()
    made.take_page(P1, [], [1, 2, 3])
    assert made.find_highest_read() == 3
    done(made, 3)
    assert (made.last_id, made.find_highest_read()) == (0, 3)
    done(made, 1, 2)
    assert made.find_highest_read() == 3


def test_a_late_record_that_is_unfinished_keeps_the_page_before_it():
    made = progress(10)
    made.take_page(P1, [], [11])
    made.take_page(P2, [5, 6], [12])
    done(made, 11, 12, 5)
    assert target(made) == (P1, 12)
    done(made, 6)
    assert target(made) == (P2, 12)


def test_a_late_record_above_the_saved_last_id_counts_as_a_new_one():
    made = progress()
    made.take_page(P1, [], [1, 3])
    made.take_page(P2, [2], [])
    assert target(made) == (P2, 0)
    done(made, 1)
    assert target(made) == (P2, 1)
    done(made, 3)
    assert target(made) == (P1, 3)


def test_an_unfinished_late_record_of_any_earlier_page_holds_back_the_saved_page():
    made = progress(10)
    made.take_page(P1, [5], [])
    made.take_page(P2, [6], [])
    made.take_page(P3, [], [11])
    done(made, 6, 11)
    assert target(made) == (P0, 11)
    done(made, 5)
    assert target(made) == (P3, 11)


def test_late_records_of_later_pages_do_not_hold_back_a_page():
    made = progress(10)
    made.take_page(P1, [5], [])
    made.take_page(P2, [6], [])
    done(made, 5)
    assert target(made) == (P1, 10)


def test_a_cut_page_is_saved_when_its_last_piece_is_finished():
    made = progress(10)
    made.take_piece(P1, [3], last=False)
    done(made, 3)
    assert target(made) == (P0, 10)
    made.take_piece(P1, [7], last=True)
    assert target(made) == (P0, 10)
    done(made, 7)
    assert target(made) == (P1, 10)


def test_an_unfinished_cut_holds_back_its_page_even_if_the_piece_has_no_records():
    made = progress(10)
    made.take_piece(P1, [], last=False)
    assert target(made) == (P0, 10)
    made.take_piece(P1, [], last=True)
    assert target(made) == (P1, 10)


def test_a_raised_last_id_is_saved_when_everything_below_it_is_finished():
    made = progress()
    made.take_page(P1, [], [1, 2], raised_to=9)
    done(made, 2)
    assert target(made) == (P1, 0)
    assert made.list_unfinished() == [1]
    done(made, 1)
    assert target(made) == (P1, 9)
    assert made.count_unsaved() == 2, "a raise is no record"


def test_more_than_enough_late_pages_are_merged_and_lose_nothing(monkeypatch):
    monkeypatch.setattr(rules, "MAX_LATE_PAGES", 2)
    made = progress(10)
    pages = [Page(f"{n}:{n}:", n) for n in range(1, 6)]
    for id, page in enumerate(pages, start=1):
        made.take_page(page, [id], [])
    assert len(made.late_pages) == 2
    done(made, 1, 3, 4, 5)
    assert target(made) == (pages[0], 10)
    done(made, 2)
    assert target(made) == (pages[-1], 10)


def test_a_record_that_was_read_counts_as_unsaved_until_it_is_saved():
    made = progress()
    made.take_page(P1, [], [1, 2, 3])
    done(made, 1, 2)
    saved = made.find_save_target()
    assert made.count_unsaved() == 3
    done(made, 3)
    made.note_saved(saved)
    assert made.count_unsaved() == 1
    assert [id for id, _ in made.list_done()] == [3]


def test_a_parked_record_is_finished_but_not_done():
    made = progress()
    made.take_page(P1, [], [1, 2])
    made.finish([1], [b""])
    done(made, 2)
    assert target(made) == (P1, 2)
    assert made.list_done() == [(2, b"2")]


def test_a_late_record_above_the_saved_last_id_is_remembered_though_its_page_is_saved():
    """An heir of that cursor reads it again, as a new one."""
    made = progress()
    made.take_page(P1, [], [1, 3])
    made.take_page(P2, [2], [])
    done(made, 2)
    assert target(made) == (P2, 0)
    made.note_saved(made.find_save_target())
    assert [id for id, _ in made.list_done()] == [2]
    done(made, 1, 3)
    made.note_saved(made.find_save_target())
    assert made.list_done() == []


def test_a_new_record_that_the_saved_snapshot_may_not_see_is_remembered_though_the_last_id_is_above_it():
    """An heir of that cursor reads it again, as a late one."""
    made = progress(10)
    made.take_page(P1, [], [11])
    made.take_page(P2, [5], [12])
    done(made, 11, 12)
    assert target(made) == (P1, 12)
    made.note_saved(made.find_save_target())
    assert made.count_unsaved() == 0
    assert [id for id, _ in made.list_done()] == [12]
    done(made, 5)
    made.note_saved(made.find_save_target())
    assert made.list_done() == []


def test_a_release_passes_everything_up_to_the_highest_finished_id():
    made = progress()
    made.take_page(P1, [], [1, 2, 3, 4])
    made.take_page(P2, [], [5])
    done(made, 3)
    release_target = made.find_release_target()
    assert (release_target.page, release_target.last_id) == (P2, 3)
    assert made.list_unfinished() == [1, 2, 4, 5]


def test_a_release_never_falls_behind_what_was_saved():
    made = progress(40)
    made.take_page(P1, [5], [])
    done(made, 5)
    assert made.find_release_target().last_id == 40


pages = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.booleans()), min_size=1, max_size=8)


@given(pages, st.randoms(use_true_random=False))
def test_a_saved_target_covers_only_finished_records_and_the_rest_is_remembered(shape, random):
    """Pages with late records in the gaps, finished in any order, saved now and then."""
    made, last, gaps = progress(), 0, []
    seen: dict[int, int] = {}  # id: the number of the page that brought it
    for number, (new, late, raise_) in enumerate(shape, start=1):
        late_ids = [gaps.pop(random.randrange(len(gaps))) for _ in range(min(late, len(gaps)))]
        new_ids = [last + 2 * n for n in range(1, new + 1)]
        gaps += [id - 1 for id in new_ids]
        last = new_ids[-1] if new_ids else last
        raised_to = last + 2 if raise_ else 0
        last = raised_to or last
        made.take_page(Page(str(number), number), late_ids, new_ids, raised_to)
        seen |= dict.fromkeys((*late_ids, *new_ids), number)
    finished: set[int] = set()
    saved: set[int] = set()
    for id in random.sample(sorted(seen), len(seen)):
        made_target = made.find_save_target()
        number = int(made_target.page.snapshot.split(":")[0])
        covered = {id for id, page in seen.items() if id <= made_target.last_id and page <= number}
        assert covered <= finished
        if random.random() < 0.5:
            made.note_saved(made_target)
            saved |= covered
        assert finished - saved <= {id for id, _ in made.list_done()} <= finished
        done(made, id)
        finished.add(id)
    assert made.find_save_target().last_id == last
    assert made.list_unfinished() == []


@pytest.mark.parametrize("ids", [[3, 1], [1, 3]])
def test_the_highest_finished_id_does_not_depend_on_the_order(ids):
    made = progress()
    made.take_page(P1, [], [1, 3])
    for id in ids:
        done(made, id)
    assert made.find_release_target().last_id == 3


# Every poll that moves the horizon raises the last id: behind an unfinished record that is one entry, not one a poll.
def test_the_horizon_that_moves_on_costs_no_memory():
    progress = Progress(Page("1:1:", 0), 0)
    progress.take_page(Page("2:2:", 1), [], [1])
    for floor in range(2, 1_000):
        progress.take_page(Page(f"{floor}:{floor}:", floor), [], [], raised_to=floor)
    assert len(progress._unpassed_ids) < 10
    progress.finish([1], [b"1"])
    assert progress.find_save_target().last_id == 999


def test_records_finished_in_order_or_out_of_order_are_known_until_they_are_saved():
    made = progress()
    made.take_page(P1, [], [1, 2, 3, 4])
    done(made, 1, 2)
    done(made, 4)
    assert [made.has_finished(id) for id in (1, 2, 3, 4)] == [True, True, False, True]
    assert (made.count_finished(), made.count_finished_ever(), made.count_in_flight()) == (3, 3, 1)
    assert made.list_done() == [(1, b"1"), (2, b"2"), (4, b"4")]
    made.note_saved(made.find_save_target())
    assert [made.has_finished(id) for id in (1, 2, 3, 4)] == [False, False, False, True]
    assert (made.count_finished(), made.count_finished_ever()) == (1, 3)


def test_records_that_a_transaction_finished_are_not_finished_after_its_rollback():
    made = progress()
    made.take_page(P1, [], [1, 2, 3])
    done(made, 1)
    done(made, 3)
    made.unfinish(1)
    made.unfinish(3)
    made.unfinish(2)  # it never was
    assert made.list_done() == []


def test_a_record_that_was_parked_and_is_done_now_is_distinguished_from_parked_ones():
    made = progress()
    made.take_page(P1, [], [1, 2, 3])
    made.finish([1], [b""])
    made.finish([3], [b""])
    assert made.list_done() == []
    for id in (1, 2, 3):
        made.refinish(id, b"%d" % id)
    assert made.list_done() == [(1, b"1"), (3, b"3")]


@given(st.lists(st.lists(st.integers(0, 30), unique=True, max_size=8), max_size=20), st.data())
def test_the_order_in_which_records_are_finished_does_not_matter(turns, data):
    made, finished = progress(), set()
    made.take_page(P1, [], list(range(1, 31)))
    for turn in turns:
        new = [id for id in turn if id and id not in finished]
        done(made, *new)
        finished |= set(new)
        prefix = next(id for id in range(1, 32) if id not in finished) - 1
        assert target(made) == (P1, prefix)
        assert made.count_in_flight() == 30 - len(finished)
        assert made.count_finished_ever() == len(finished)
        if data.draw(st.booleans()):
            made.note_saved(made.find_save_target())
            assert sorted(id for id, _ in made.list_done()) == sorted(id for id in finished if id > prefix)


def test_memory_for_records_finished_out_of_order_is_freed_once_they_are_saved():
    made, late = progress(), range(1, 1_001)
    made.take_page(P1, late, [2_000])
    done(made, *late)
    assert getsizeof(made._finished) > 30_000
    done(made, 2_000)
    made.note_saved(made.find_save_target())
    made.note_saved(made.find_save_target())  # late ones are passed from now on
    assert getsizeof(made._finished) == getsizeof({})
