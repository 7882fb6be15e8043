"""Failures as a status and one line, the line of bounded length whatever was raised."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnbench.types.words import one_line
from attnbench.worker.failures import classify, no_answer


class Unreadable(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise RuntimeError("not even this")


def raised_by_torch() -> BaseException:
    """What torch says when the system has no memory for it."""
    with pytest.raises(RuntimeError) as failure:
        torch.empty(2**62, dtype=torch.uint8)
    return failure.value


@pytest.mark.parametrize(
    ("failure", "status", "reason"),
    [
        (ValueError("a\n  b\tc"), "error", "the call raised ValueError: a b c"),
        (ValueError(), "error", "the call raised ValueError"),
        (KeyError("w"), "error", "the call raised KeyError: 'w'"),
        (Unreadable(), "error", "the call raised Unreadable: (its message can't be read)"),
        (KeyboardInterrupt(), "error", "the call raised KeyboardInterrupt"),
        (SystemExit(3), "crashed", "the call called exit(3)"),
        (SystemExit("bye"), "crashed", "the call called exit('bye')"),
        (MemoryError(), "out_of_memory", "the call ran out of memory: MemoryError"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "out_of_memory", None),
        (OSError(12, "Cannot allocate memory"), "out_of_memory", None),
        (raised_by_torch(), "out_of_memory", None),
    ],
)
def test_status_and_reason(failure: BaseException, status: str, reason: str | None) -> None:
    got = classify(failure, "the call")
    assert got[0] == status
    if reason is None:
        assert got[1].startswith(f"the call ran out of memory: {type(failure).__name__}: ")
    else:
        assert got[1] == reason


@given(st.text(max_size=2000))
def test_any_message_is_one_line_of_bounded_length(message: str) -> None:
    line = one_line(ValueError(message))
    assert line.startswith("ValueError")
    assert len(line) <= 600
    assert len(line.splitlines()) == 1
    words = " ".join(message.split())
    if words.isprintable() and len(words) < 500:
        assert line == (f"ValueError: {words}" if words else "ValueError")


def test_a_long_message_says_that_it_goes_on() -> None:
    assert one_line(ValueError("x" * 588)) == "ValueError: " + "x" * 588
    assert one_line(ValueError("x" * 589)) == "ValueError: " + "x" * 587 + "…"


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("not me")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (3, "the call called exit(3)"),
        ("sorry", "the call called exit('sorry')"),
        (Unspeakable(), "the call called exit(a Unspeakable that can't be shown)"),
        ("\x1b[31m\nred", r"the call called exit('\\x1b[31m red')"),
    ],
)
def test_whatever_a_process_exits_with_is_one_clean_line(code: object, words: str) -> None:
    assert classify(SystemExit(code), "the call") == ("crashed", words)


def test_a_huge_exit_code_is_bounded() -> None:
    _, words = classify(SystemExit("x" * 3_000_000), "the call")
    assert len(words) < 700


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (True, "gave a bool, True"),
        (False, "gave a bool, False"),
        ("", "gave an empty reason"),
        (" ", "gave an empty reason"),
        (b"no", "gave a bytes, b'no'"),
        (5, "gave a int, 5"),
    ],
)
def test_an_answer_that_is_neither_none_nor_words_is_none(answer: object, words: str) -> None:
    """True means that it can to who writes it, and would read as a reason why not."""
    assert no_answer(answer) == f"{words}: give None, or a reason in words"
    assert no_answer(None) == no_answer("no masks") == ""
