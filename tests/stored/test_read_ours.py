"""Run files as ``Measured``."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import msgspec
import pytest
from made_sides import LONG, SHORT, run_lines, times, write_run

from attnbench.results.format import read_run
from attnbench.results.ours import read_ours as read_runs
from attnbench.stats.summary import summarise
from attnbench.types.compared import Measured
from attnbench.types.errors import BadFile
from attnbench.types.record import Manifest, Record, SetLine


def read_ours(path: Path) -> Measured:
    (run,) = read_runs(path)
    return run


def test_processes_are_the_medians_of_sets_in_order(tmp_path: Path) -> None:
    run = read_ours(write_run(tmp_path / "a.jsonl"))
    mine = next(cell for cell in run.cells if cell.backend == "mine")
    assert mine.processes_ns == tuple(round(ns) for ns in times(1e5))
    assert mine.parents == (0, 1, 2) * 3
    assert mine.fingerprint == "256 pairs, 10000 operations, 10000 bytes"
    assert mine.reference_ns == {"gemm_256": (4e5,) * 9, "copy": (4e3,) * 9, "empty": (60.0,) * 9}
    assert (run.origin, run.version, run.commit, run.problems) == ("attnbench", "1", "abc123", ())


def test_the_median_of_processes_is_the_time_that_the_record_would_have(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a.jsonl")
    stored = read_run(path)
    for cell in read_ours(path).cells:
        timing = summarise(stored.sets, cell.backend)
        assert timing is not None
        assert median(cell.processes_ns) / 1e6 == pytest.approx(timing.median_ms)


def test_the_environment_is_flat_and_leaves_out_what_is_not_known(tmp_path: Path) -> None:
    facts = read_ours(write_run(tmp_path / "a.jsonl")).environment
    assert facts["torch"] == "2.6"
    assert facts["numpy"] == "2.0"
    assert facts["torch.threads"] == "1"
    assert facts["plugin backends"] == "attnbench 0.1.0"
    assert not {"governor", "libraries", "torch_flags", "git_commit"} & set(facts)


def test_forks_of_one_template_have_one_parent(tmp_path: Path) -> None:
    run = read_ours(write_run(tmp_path / "a.jsonl", contender={"anew": False}))
    assert {cell.parents for cell in run.cells} == {(0,) * 9}


def test_a_process_that_was_kept_over_sets_is_one(tmp_path: Path) -> None:
    """Nine sets, three processes of three sets each: three values count as independent."""
    run = read_ours(write_run(tmp_path / "a.jsonl", contender={"anew": False, "fresh": False}))
    mine = next(cell for cell in run.cells if cell.backend == "mine")
    taken = [round(ns) for ns in times(1e5)]
    assert mine.processes_ns == (median(taken[:3]), median(taken[3:6]), median(taken[6:]))
    assert mine.parents == (0, 1, 2)


def test_statuses_and_reasons_come_along(tmp_path: Path) -> None:
    run = read_ours(write_run(tmp_path / "a.jsonl", statuses={(SHORT, "bad"): "crashed"}))
    bad = next(cell for cell in run.cells if cell.backend == "bad")
    assert (bad.status, bad.reason, bad.processes_ns) == ("crashed", "as it is crashed", ())


def test_a_run_that_was_cut_off_says_how_much_is_missing(tmp_path: Path) -> None:
    lines = run_lines({SHORT: {"mine": times(1e5)}, LONG: {"mine": times(1e5)}}, ended=False)
    path = write_run(tmp_path / "a.jsonl", lines[:-11])
    (problem,) = read_ours(path).problems
    assert "the run was cut off, 1 of its records are missing" in problem
    assert f"--resume {path}" in problem


def test_nobody_is_told_to_go_on_with_a_live_comparison(tmp_path: Path) -> None:
    manifest, *rest = run_lines(ended=False)
    assert isinstance(manifest, Manifest)
    live = msgspec.structs.replace(manifest, sides={"base": {}, "head": {}})
    (problem,) = read_ours(write_run(tmp_path / "a.jsonl", [live, *rest])).problems
    assert problem.endswith("; compare anew")


def test_a_torn_last_line_is_left_out_and_told(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a.jsonl")
    path.write_bytes(path.read_bytes()[:-20])
    run = read_ours(path)
    assert len(run.cells) == 5
    assert [problem for problem in run.problems if "its last line was cut off" in problem]


def test_a_set_that_is_missing_among_others_is_told(tmp_path: Path) -> None:
    lines = run_lines()
    del lines[4]
    (problem,) = read_ours(write_run(tmp_path / "a.jsonl", lines)).problems
    assert problem.endswith(f"sets are missing in the middle, on {SHORT}")


def test_a_run_that_was_checked_alone_says_so(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a.jsonl", cells={SHORT: {}}, protocol={"timed": False})
    assert "was checked alone, not timed" in read_ours(path).problems[0]


def test_what_the_file_had_once_and_has_no_more_is_told(tmp_path: Path) -> None:
    lines = run_lines()
    fewer = [line for line in lines if getattr(line, "backend", "") != "four"]
    (problem,) = read_ours(write_run(tmp_path / "a.jsonl", fewer)).problems
    assert problem.endswith("1 of its records are missing, though it says that it went to its end")
    last = max(i for i, line in enumerate(lines) if isinstance(line, SetLine))
    told = [msgspec.structs.replace(r, sets=9) if isinstance(r, Record) else r for r in lines]
    assert read_ours(write_run(tmp_path / "b.jsonl", told)).problems == ()
    del told[last]
    (problem,) = read_ours(write_run(tmp_path / "c.jsonl", told)).problems
    assert problem.endswith(f"sets are missing that were measured, on {SHORT}")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="can't read"):
        read_ours(tmp_path / "none.jsonl")
