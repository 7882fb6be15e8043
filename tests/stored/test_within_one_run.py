"""One stored run as a comparison: of the two sides of a live run, and with another baseline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_sides import LONG, SHORT, times, write_run
from msgspec.structs import replace
from run_files import manifest_of

from attnbench.compare.paired import compare_within, compared_live
from attnbench.results.digest import digested
from attnbench.results.format import StoredRun
from attnbench.types.compared import ComparedCell, Difference
from attnbench.types.errors import BadFile
from attnbench.types.record import EndLine, Record
from attnbench.types.status import Status

SIDES: dict[str, dict[str, Any]] = {
    "base": {"name": "main (1a2b3c4)", "versions": {"torch": "2.6", "msgspec": "0.19", "python": "3.12"}},
    "head": {"name": "HEAD (5d6e7f8)", "versions": {"torch": "2.7", "msgspec": "0.20", "python": "3.12"}},
}


def base(backend: str = "mine", case: str = SHORT, status: Status = "ok", reason: str = "") -> Record:
    ms = 1.0 if status == "ok" else None
    return Record(case, "dot", f"{backend}@base", status, reason, median_ms=ms, baseline=f"{backend}@base")


def head(
    ratio: float = 1.0, backend: str = "mine", case: str = SHORT, status: Status = "ok", reason: str = ""
) -> Record:
    """A record of 25 repetitions that all say the same, within half a percent."""
    failed = Record(case, "dot", f"{backend}@head", status, reason)
    if status != "ok":
        return failed
    return replace(
        failed, median_ms=ratio, ratio=ratio, ratio_low=0.995 * ratio, ratio_high=1.005 * ratio,
        ratio_confidence=0.996, p_value=2**-24, baseline=f"{backend}@base", delta=0.02,
    )  # fmt: skip


def run(*records: Record, ended: bool = True, torn: bool = False, **said: Any) -> StoredRun:
    cases = list(dict.fromkeys(r.case for r in records))
    backends = list(dict.fromkeys(r.backend for r in records))
    manifest = manifest_of(**{"cases": cases, "backends": backends, "sides": SIDES} | said)
    end = EndLine("2026-01-01T00:01:00+00:00", 60.0, {}) if ended else None
    return StoredRun(Path("live.jsonl"), manifest, (), (), records, end, torn, 0)


def only(stored: StoredRun) -> ComparedCell:
    (cell,) = compared_live(stored).cells
    return cell


@pytest.mark.parametrize(
    ("ratio", "verdict"), [(1.0, "same"), (1.1, "slower"), (0.9, "faster"), (1.02, "unclear")]
)
def test_a_cell_is_a_backend_with_the_times_of_both_sides(ratio: float, verdict: str) -> None:
    cell = only(run(base(), head(ratio)))
    assert (cell.case, cell.rule, cell.backend, cell.verdict) == (SHORT, "dot", "mine", verdict)
    assert (cell.base_ms, cell.new_ms, cell.ratio) == (1.0, ratio, ratio)
    assert (cell.low, cell.high, cell.confidence) == (0.995 * ratio, 1.005 * ratio, 0.996)
    assert (cell.p_value, cell.p_adjusted, cell.delta) == (2**-24, 2**-24, 0.02)


def test_another_least_effect_is_taken_by_case_and_backend() -> None:
    stored = run(base(), head(1.1), base("other"), head(1.1, "other"))
    found = compared_live(stored, lambda _case, backend: 0.2 if backend == "other" else 0.02)
    assert [(cell.backend, cell.verdict, cell.delta) for cell in found.cells] == [
        ("mine", "slower", 0.02), ("other", "same", 0.2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("records", "verdict", "reason"),
    [
        ((base(), head(status="mismatch", reason="off by 2")), "mismatch", "off by 2"),
        ((base(),), "missing", "not in new"),
        ((base(status="timeout"), head(status="timeout")), "none", "timeout in both"),
        ((base(), replace(head(), median_ms=None)), "missing", "ok in new, and yet without a sample"),
        ((base(), replace(head(), ratio=None, p_value=None)), "unclear", "no repetition has both sides"),
    ],
)
def test_what_has_no_two_times_says_why(records: tuple[Record, ...], verdict: str, reason: str) -> None:
    cell = only(run(*records))
    assert (cell.verdict, cell.reason) == (verdict, reason)


def test_cells_stand_by_case_and_backend_as_the_run_was_asked_for_them() -> None:
    stored = run(base("b"), head(1.0, "b"), base("a", LONG), head(1.0, "a", LONG))
    found = compared_live(stored)
    assert [(cell.case, cell.backend) for cell in found.cells] == [(SHORT, "b"), (LONG, "a")]
    assert (found.base, found.new) == ("main (1a2b3c4)", "HEAD (5d6e7f8)")


def test_versions_that_differ_are_told_those_that_matter_first_and_none_is_in_the_way() -> None:
    found = compared_live(run(base(), head()))
    assert found.differences == (
        Difference("torch", "2.6", "2.7", matters=False),
        Difference("msgspec", "0.19", "0.20", matters=False),
    )
    assert not found.forced


def test_notes_and_flaws_are_warnings() -> None:
    assert compared_live(run(base(), head())).warnings == ()
    noted = SIDES | {"head": SIDES["head"] | {"notes": ["something to know"]}}
    assert compared_live(run(base(), head(), sides=noted)).warnings == ("something to know",)
    (cut,) = compared_live(run(base(), head(), ended=False)).warnings
    assert cut == "live.jsonl: the run was cut off, 0 of its records are missing; compare again"
    (torn,) = compared_live(run(base(), head(), torn=True)).warnings
    assert torn == "live.jsonl: its last line was cut off and is left out"


@pytest.mark.parametrize("sides", [{"base": {}}, {"head": {}}, {"one": {}, "other": {}}])
def test_a_run_that_lacks_a_side_is_damaged(sides: dict[str, dict[str, Any]]) -> None:
    with pytest.raises(BadFile, match=r"damaged: of a live run, it has no (base|head) side"):
        compared_live(run(base(), head(), sides=sides))


def test_sides_that_say_rubbish_are_read_for_what_they_are() -> None:
    rubbish = {side: {"name": 3, "versions": "2.6", "notes": {"a": 1}} for side in ("base", "head")}
    found = compared_live(run(base(), head(), sides=rubbish))
    assert (found.base, found.differences, found.warnings) == ("3", (), ())


CELLS = {SHORT: {"fast": times(1e5), "slow": times(2e5), "alike": times(1e5)}}


def test_the_delta_of_the_run_counts_unless_another_is_said(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a.jsonl", cells=CELLS, protocol={"delta": 0.5})
    assert {cell.delta for cell in compare_within(path, "slow").cells} == {0.5}
    assert {cell.delta for cell in compare_within(path, "slow", lambda *_: 0.1).cells} == {0.1}
    wide = compare_within(path, "fast", lambda *_: 0.99)
    assert next(cell for cell in wide.cells if cell.backend == "slow").verdict == "slower"


def test_what_has_no_time_says_why(tmp_path: Path) -> None:
    cells = {SHORT: {"a": times(1e5), "b": times(1e5)}, LONG: {"b": times(1e5)}}
    statuses = {
        (LONG, "a"): "unsupported", (SHORT, "c"): "crashed", (LONG, "c"): "mismatch",
    }  # fmt: skip
    found = compare_within(write_run(tmp_path / "r.jsonl", cells=cells, statuses=statuses), "a")
    said = {(cell.case, cell.backend): (cell.verdict, cell.reason) for cell in found.cells}
    assert said == {
        (SHORT, "b"): ("same", ""),
        (SHORT, "c"): ("missing", "crashed (as it is crashed)"),
        (LONG, "b"): ("none", "the baseline a: unsupported (as it is unsupported)"),
        (LONG, "c"): ("mismatch", "as it is mismatch"),
    }


def test_what_is_suspect_has_samples_and_no_ratio(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a.jsonl", cells=CELLS, statuses={(SHORT, "slow"): "suspect"})
    slow = next(cell for cell in compare_within(path, "fast").cells if cell.backend == "slow")
    assert (slow.ratio, slow.verdict) == (None, "missing")


def test_cases_without_the_baseline_are_counted(tmp_path: Path) -> None:
    cells = {SHORT: {"a": times(1e5), "b": times(1e5)}, LONG: {"b": times(1e5)}}
    path = write_run(tmp_path / "a.jsonl", cells=cells)
    lines = path.read_bytes().splitlines()
    a, long = b'"backend":"a"', f'"case":"{LONG}"'.encode()
    path.write_bytes(b"".join(digested(line for line in lines if not (a in line and long in line))))
    assert "no record of a on 1 case" in compare_within(path, "a").warnings
