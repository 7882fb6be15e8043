"""Sides from files and folders: whatever can't be read is one sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from made_sides import write_benchmarks, write_run

from attnbench.results.read import read_side
from attnbench.types.errors import BadFile


def test_files_and_folders_of_both_formats_are_read(tmp_path: Path) -> None:
    inside = tmp_path / "all" / "deeper"
    inside.mkdir(parents=True)
    write_run(tmp_path / "all" / "a.jsonl")
    write_benchmarks(inside / "0001_b.json", {"test_it": 1e-3})
    alone = write_run(tmp_path / "c.jsonl", started="2026-02-01T00:00:00+00:00")
    (tmp_path / "all" / "notes.txt").write_text("nothing of ours")
    found = read_side([tmp_path / "all"])
    assert [run.origin for run in found] == ["attnbench", "pytest-benchmark"]
    assert [run.path.name for run in read_side([alone])] == ["c.jsonl"]


def test_a_file_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a.jsonl")
    (tmp_path / "link.jsonl").symlink_to(path)
    assert len(read_side([path, path, tmp_path / "link.jsonl"])) == 1


def test_our_run_under_another_name_is_still_ours(tmp_path: Path) -> None:
    assert read_side([write_run(tmp_path / "run.json")])[0].origin == "attnbench"


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.jsonl", b"", "is empty: nothing was measured, or the file was cut off"),
        ("a.json", b"  \n", "is empty"),
        ("a.jsonl", b"{}\n", "its first line is no manifest"),
        ("a.json", b"{}", "is neither a run of attnbench nor JSON of pytest-benchmark"),
        ("a.json", b"[1, 2]", "is neither a run of attnbench nor JSON of pytest-benchmark"),
        ("a.json", b"{", "is neither a run of attnbench nor JSON of pytest-benchmark ("),
        ("a.txt", b"\xff\xfe", "is neither a run of attnbench nor JSON of pytest-benchmark ("),
        ("a.json", b'{"benchmarks": 3}', "is neither a run of attnbench nor JSON of pytest-benchmark"),
        ("a.json", b"[" * 100_000, "is neither a run of attnbench nor JSON of pytest-benchmark ("),
    ],
)
def test_what_is_neither_is_refused(tmp_path: Path, name: str, content: bytes, sentence: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadFile) as refused:
        read_side([tmp_path / name])
    assert sentence in str(refused.value)


def test_what_is_missing_or_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="there is no"):
        read_side([tmp_path / "none.jsonl"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadFile, match=r"holds no run \(\*.jsonl, \*.json\)"):
        read_side([tmp_path / "empty"])
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadFile, match="is no file"):
        read_side([tmp_path / "pipe"])
