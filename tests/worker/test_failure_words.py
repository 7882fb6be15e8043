"""Failures as a status and one line, the line of bounded length whatever was raised."""

from __future__ import annotations

import pytest

from attnbench.worker.failures import classify


class Unreadable(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise RuntimeError("not even this")


@pytest.mark.parametrize(
    ("failure", "status", "reason"),
    [
        (Unreadable(), "error", "the call raised Unreadable: (its message can't be read)"),
        (SystemExit("\x1b[31m\nred"), "crashed", r"the call called exit('\\x1b[31m red')"),
        (MemoryError(), "out_of_memory", "the call ran out of memory: MemoryError"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "out_of_memory", None),
        (OSError(12, "Cannot allocate memory"), "out_of_memory", None),
    ],
)
def test_status_and_reason(failure: BaseException, status: str, reason: str | None) -> None:
    got = classify(failure, "the call")
    assert got[0] == status
    if reason is None:
        assert got[1].startswith(f"the call ran out of memory: {type(failure).__name__}: ")
    else:
        assert got[1] == reason
