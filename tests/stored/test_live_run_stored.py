"""A stored live run as a comparison of its two sides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_sides import LONG, SHORT
from msgspec.structs import replace
from run_files import manifest_of

from attnbench.compare.paired import compared_live
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
    """A record of 25 sets that all say the same, within half a percent."""
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
        ((base(), replace(head(), ratio=None, p_value=None)), "unclear", "no set has both sides"),
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
