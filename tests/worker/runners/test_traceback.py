"""The traceback of an error as text: whose frames it has, what is kept of it, and errors that fight back."""

import os
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, TracebackType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_size import examples

import partbox
from partbox.errors import PayloadError, PublishError, UnroutableError
from partbox.events import Event
from partbox.worker.runners.traceback import MAX_FRAMES, MAX_WALKED, find_application_frames, trace_of

LIMIT = 4_000


def raised(call: Callable[[], Any]) -> BaseException:
    """The error that it raises."""
    try:
        call()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def fails(text: str = "no such customer") -> None:
    secret = "sesame"  # noqa: F841 (a local variable, which nobody may see)
    raise ValueError(text)


def chained() -> None:
    try:
        fails("the cause")
    except ValueError as error:
        raise KeyError("the effect") from error


def while_handling() -> None:
    try:
        fails("the first")
    except ValueError:
        raise KeyError("the second")  # noqa: B904


def suppressing() -> None:
    try:
        fails("unsaid")
    except ValueError:
        raise KeyError("said") from None


def grouped() -> None:
    raise ExceptionGroup("both", [raised(fails), raised(chained)])


def test_a_traceback_shows_where_the_error_was_raised_and_what_it_says() -> None:
    text = trace_of(raised(fails), LIMIT) or ""
    assert text.startswith("Traceback (most recent call last):\n")
    *_, place, line, said = text.splitlines()
    assert place.endswith(f'test_traceback.py", line {fails.__code__.co_firstlineno + 2}, in fails')
    assert (line.strip(), said) == ("raise ValueError(text)", "ValueError: no such customer")


def test_a_traceback_shows_no_values_except_in_the_text_of_the_error() -> None:
    def noted() -> None:
        try:
            fails()
        except ValueError as error:
            error.add_note("sesame")
            raise

    assert "sesame" not in (trace_of(raised(noted), LIMIT) or "").replace('secret = "sesame"', "")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (chained, ["ValueError: the cause", "which caused:", "KeyError: 'the effect'"]),
        (while_handling, ["ValueError: the first", "and while that was handled:", "KeyError: 'the second'"]),
        (suppressing, ["KeyError: 'said'"]),
        (grouped, ["ValueError: the cause", "KeyError: 'the effect'", "ValueError: no such", "ExceptionGroup: both"]),
    ],
)
def test_the_causes_of_an_error_are_shown_before_it(call: Callable[[], None], says: list[str]) -> None:
    text = trace_of(raised(call), LIMIT) or ""
    places = [text.index(each) for each in says]
    assert places == sorted(places)
    assert text.splitlines()[-1].startswith(says[-1])
    assert "unsaid" not in text


def deep(levels: int) -> None:
    if levels:
        deep(levels - 1)
    fails()


def test_the_last_frames_of_a_deep_stack_are_kept() -> None:
    def up() -> None:
        down(900)

    def down(levels: int) -> None:
        up_again(levels - 1) if levels else fails()

    def up_again(levels: int) -> None:
        down(levels - 1)

    text = trace_of(raised(up), LIMIT) or ""
    assert len(text) <= LIMIT
    assert text.splitlines()[-1] == "ValueError: no such customer"
    assert "in fails" in text
    assert 10 < text.count("  File ") <= MAX_FRAMES


def test_a_long_text_of_the_error_takes_no_room_from_its_frames() -> None:
    text = trace_of(raised(lambda: fails("x" * 100_000)), LIMIT) or ""
    assert "in fails" in text
    assert text.endswith("x…")


@settings(max_examples=examples(100), deadline=None)
@given(st.sampled_from([fails, chained, while_handling, grouped, lambda: deep(300)]), st.integers(1, 5_000))
def test_a_traceback_is_cut_to_its_limit_of_characters_and_keeps_its_end(call: Callable[[], None], limit: int) -> None:
    error = raised(call)
    cut, whole = trace_of(error, limit), trace_of(error, 1_000_000)
    assert cut is not None
    assert whole is not None
    assert 0 < len(cut) <= limit
    if limit >= 1_200:  # below, what the error says is shortened too
        assert whole.endswith(cut)


def test_characters_that_postgresql_cannot_store_are_escaped() -> None:
    text = trace_of(raised(lambda: fails("a\0b\ud800")), LIMIT) or ""
    text.encode()
    assert r"a\0b\ud800" in text
    elsewhere = FunctionType(fails.__code__.replace(co_filename="\ud800\0.py"), {})
    text = trace_of(raised(lambda: elsewhere("x")), LIMIT) or ""
    text.encode()
    assert r'File "\ud800\0.py", line ' in text


def test_code_that_is_in_no_file_has_frames_without_lines() -> None:
    code = compile("def f():\n    raise ValueError('x')\nf()", "<console>", "exec")
    text = trace_of(raised(lambda: exec(code, {})), LIMIT) or ""
    assert 'File "<console>", line 2, in f\nValueError: x' in text


@pytest.mark.parametrize("path", ["/dev/zero", "fifo"])
def test_a_file_whose_reading_would_never_end_is_not_read(tmp_path: Path, path: str) -> None:
    if path == "fifo":
        path = str(tmp_path / path)
        os.mkfifo(path)
    code = compile("raise ValueError('x')", path, "exec")
    assert f'File "{path}", line 1' in (trace_of(raised(lambda: exec(code, {})), LIMIT) or "")


# Frames of partbox.


def of_partbox(room: str, call: Callable[[], Any]) -> Callable[[], Any]:
    """A function of that room of partbox which calls this."""
    scope: dict[str, Any] = {"call": call}
    path = Path(partbox.__file__).parent / room / "made_up.py"
    exec(compile("def run():\n    return call()", str(path), "exec"), scope)
    return scope["run"]  # type: ignore[no-any-return]


def test_frames_of_partbox_above_the_handler_are_cut_away() -> None:
    def without_this() -> BaseException:
        return raised(of_partbox("worker", of_partbox("interceptors", fails)))

    error = without_this()
    frames: Any = error.__traceback__
    error.__traceback__ = frames.tb_next  # as partbox catches it: nobody is above
    assert (trace_of(error, LIMIT) or "").count("File") == 1
    assert find_application_frames(error).tb_frame.f_code is fails.__code__  # type: ignore[union-attr]


def test_frames_of_partbox_below_the_handler_are_kept() -> None:
    text = trace_of(raised(lambda: Event("", 1)), LIMIT) or ""
    assert issubclass(type(raised(lambda: Event("", 1))), PublishError)
    assert "partbox/events" in text


def test_an_error_raised_about_an_event_has_a_traceback_only_if_a_handler_raised_it() -> None:
    def undecodable() -> None:
        raise PayloadError("my own judgement")

    assert "in undecodable" in (trace_of(raised(undecodable), LIMIT) or "")
    for kind in (PayloadError, UnroutableError):
        scope: dict[str, Any] = {"kind": kind}
        path = str(Path(partbox.__file__).parent / "events" / "made_up.py")
        exec(compile("def run():\n    raise kind('x')", path, "exec"), scope)
        assert trace_of(raised(scope["run"]), LIMIT) is None


def test_an_error_that_nobody_has_raised_has_no_traceback() -> None:
    assert trace_of(ValueError("returned"), LIMIT) is None
    error = ValueError("returned")
    error.__cause__ = raised(fails)
    assert "in fails" in (trace_of(error, LIMIT) or "")


# Errors that fight back.


def _asked(*_: Any) -> Any:
    raise SystemExit("nobody may ask")


HOSTILE = {
    "__traceback__": property(_asked),
    "__cause__": property(_asked),
    "__context__": property(_asked),
    "__suppress_context__": property(_asked),
    "__notes__": property(_asked),
    "__str__": _asked,
    "__repr__": _asked,
    "__class__": property(_asked),
    "__getattribute__": _asked,
    "__eq__": _asked,
    "__hash__": _asked,
}


@pytest.mark.parametrize("member", HOSTILE)
def test_an_error_whose_attributes_raise_has_a_traceback_all_the_same(member: str) -> None:
    kind: type[BaseException] = type("Hostile", (ValueError,), {member: HOSTILE[member]})

    def throws() -> None:
        try:
            fails("before")
        except ValueError:
            raise kind("x")  # noqa: B904

    try:
        throws()
    except BaseException as error:
        text = trace_of(error, LIMIT) or ""
    assert "in throws" in text
    assert "ValueError: before" in text


def test_an_error_whose_class_does_not_tell_its_name_is_named_all_the_same() -> None:
    class Nameless(type):
        def __getattribute__(cls, name: str) -> Any:
            if name in ("__qualname__", "__module__", "__name__"):
                raise SystemExit("no name")
            return super().__getattribute__(name)

    class Anonymous(Exception, metaclass=Nameless):
        pass

    def throws() -> None:
        raise Anonymous("x")

    text = trace_of(raised(throws), LIMIT) or ""
    assert "in throws" in text
    assert text.endswith(".<locals>.Anonymous: x")


def test_causes_that_go_round_in_a_circle_are_said_once() -> None:
    one, other = raised(lambda: fails("one")), raised(lambda: fails("other"))
    one.__cause__, other.__cause__ = other, one
    text = trace_of(one, LIMIT) or ""
    assert text.count("ValueError: one") == text.count("ValueError: other") == 1


def test_a_long_chain_is_followed_only_as_far_as_there_is_room() -> None:
    asked = 0

    class Counted(ValueError):
        def __str__(self) -> str:
            nonlocal asked
            asked += 1
            return "counted"

    def throws(cause: BaseException | None) -> None:
        raise Counted from cause

    error: BaseException | None = None
    for _ in range(2_000):
        error = raised(lambda cause=error: throws(cause))  # type: ignore[misc]
    assert error is not None
    assert len(trace_of(error, LIMIT) or "") <= LIMIT
    assert asked < 50


def test_the_frames_of_an_error_that_is_raised_again_and_again_are_not_followed_for_ever() -> None:
    error: BaseException = ValueError("the same")
    frames = raised(fails).__traceback__
    assert frames is not None
    chain: TracebackType | None = None
    for _ in range(3 * MAX_WALKED):
        chain = TracebackType(chain, frames.tb_frame, 0, 1)
    text = trace_of(error.with_traceback(chain), LIMIT) or ""
    assert 0 < len(text) <= LIMIT
    while chain is not None:  # else its end is a recursion in the interpreter
        chain = chain.tb_next
    error.__traceback__ = None
