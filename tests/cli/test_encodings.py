"""What stdout's encoding lacks is written as the likest of ASCII."""

from __future__ import annotations

import io
import sys

import pytest

from attnbench.cli.process import write_what_stdout_can

TEXT = "√D ░▒▓█ ± · 日"


@pytest.mark.parametrize(
    ("encoding", "written"),
    [("utf-8", TEXT), ("latin-1", "sqrt D .:+# ± · ?"), ("cp437", "√D ░▒▓█ ± · ?")],
)
def test_what_is_lacking(monkeypatch: pytest.MonkeyPatch, encoding: str, written: str) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    write_what_stdout_can()
    stream.write(TEXT)
    stream.flush()
    assert stream.buffer.getvalue().decode(encoding) == written  # type: ignore[attr-defined]


def test_a_stream_that_was_told_what_to_do_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="latin-1", errors="ignore")
    monkeypatch.setattr(sys, "stdout", stream)
    write_what_stdout_can()
    assert stream.errors == "ignore"
