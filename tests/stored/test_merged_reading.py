"""Merged files read as sides of a comparison: each run in them is one, as it is in its own file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from test_merge import END, manifest, record, runs, stored

from attnbench.results.merge import merge
from attnbench.results.ours import read_ours
from attnbench.results.read import read_side
from attnbench.types.errors import BadFile


@settings(max_examples=25)  # each writes files and forces them to disk
@given(written=runs())
def test_a_merged_file_reads_as_its_runs_do(written, tmp_path_factory: pytest.TempPathFactory) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path_factory.mktemp("sides")
    paths = [stored(folder / f"{n}.jsonl", head, *lines) for n, (head, lines, _) in enumerate(written)]
    both = merge(paths, folder / "all.jsonl").path
    alone = {run.run_id: run for run in read_side(paths)}
    merged = read_side([both])
    assert {run.run_id for run in merged} == alone.keys()
    for run in merged:
        assert replace(run, path=Path(), problems=()) == replace(alone[run.run_id], path=Path(), problems=())
        assert len(run.problems) == len(alone[run.run_id].problems)
    # With the files themselves each run still counts once, and that is said.
    again = read_side([folder])
    assert len(again) == len(paths)
    assert all(any("counts once" in problem for problem in run.problems) for run in again)


def test_which_run_was_cut_off_is_said(tmp_path: Path) -> None:
    one = stored(tmp_path / "one.jsonl", manifest("r1"), record())
    two = stored(tmp_path / "two.jsonl", manifest("r2"), record(), END)
    both = merge([one, two], tmp_path / "both.jsonl").path
    cut, whole = read_ours(both)
    assert cut.problems == (
        f"{both}: the run r1 was cut off, 3 of its records are missing; its own file can be gone on with",
    )
    assert whole.problems == (
        f"{both}: 3 of its records are missing, though it says that it went to its end",
    )
    (alone,) = read_ours(one)
    assert alone.problems[0].endswith(f"go on with attnbench run --resume {one}")


def test_damage_is_named_by_its_line_in_the_file(tmp_path: Path) -> None:
    paths = [stored(tmp_path / f"{name}.jsonl", manifest(name), record()) for name in "ab"]
    both = merge(paths, tmp_path / "both.jsonl").path
    data = both.read_bytes()
    both.write_bytes(data + b"rubbish\n")
    with pytest.raises(BadFile, match="line 5: damaged"):
        read_ours(both)
    both.write_bytes(data + paths[0].read_bytes())
    with pytest.raises(BadFile, match="line 5: a second manifest of the run 'a', which would count twice"):
        read_ours(both)
    both.write_bytes(data + b'{"kind":"manif')
    assert [any("last line was cut off" in p for p in run.problems) for run in read_ours(both)] == [
        False,
        True,
    ]
