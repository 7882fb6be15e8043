"""The campaign for a GPU: every step is gone through on the CPU, and its summary says what does not hold."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest
from findings import ANCHORS, summary
from steps import FUSED, Step, steps
from tree import use_tree

HERE = Path(__file__).parent
CARD = steps("cuda", (*FUSED, "flex", "compiled", "sdpa_math"))
DONE = {
    "complete": True,
    "stopped": False,
    "exit": 0,
    "seconds": 1.0,
    "tail": "",
    "sensors": {"clocks.sm": "1980"},
}
PEAKS = {"side": 8192, "gemm_tflops": {"float16": 800.0, "bfloat16": 800.0}, "copy_gbps": 4000.0}
LONG = "attention/scaled_dot/B1-H4-Lq16384-Lk16384-D128/none/float16/cuda/forward"
DECODE = "attention/scaled_dot/B16-H16-Lq1-Lk1024-D128/none/float16/cuda/forward"


def record(case: str, backend: str, **fields: Any) -> dict[str, Any]:
    timed = {"ratio": 1.0, "ratio_low": 0.9, "ratio_high": 1.1, "baseline": "sdpa_flash", "tflops": 400.0}
    found = {"kind": "record", "case": case, "backend": backend, "status": "ok", "reason": "", "gbps": 1.0}
    return found | {"failed_check": ""} | timed | fields


def told(folder: Path, name: str, *lines: dict[str, Any], cut_off: str = "") -> list[str]:
    """What the summary says does not hold, where one step wrote these lines and all others nothing."""
    (folder / "peaks.json").write_text(json.dumps(PEAKS))
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines) + cut_off)
    return summary(folder, CARD, {step.name: DONE for step in CARD}, "cuda")[1]


@pytest.mark.parametrize(
    ("ratio", "holds"), [(1 / 1.61, True), (1 / 1.66, True), (1 / 1.40, False), (1 / 1.80, False)]
)
def test_a_ratio_more_than_a_twentieth_from_the_published_one_is_told(
    tmp_path: Path, ratio: float, holds: bool
) -> None:
    published = [
        one.ratio for one in ANCHORS if one.over == "sdpa_cudnn" and one.D == 128 and one.mask == "none"
    ]
    assert published[0] == 1.61
    failed = told(tmp_path, "anchors-forward.jsonl", record(LONG, "sdpa_cudnn", ratio=ratio))
    assert [one.startswith(f"sdpa_cudnn on {LONG}") for one in failed] == ([] if holds else [True])


@pytest.mark.parametrize(("gbps", "holds"), [(3300.0, True), (3100.0, False)])
def test_decoding_below_four_fifths_of_the_bandwidth_is_told(
    tmp_path: Path, gbps: float, holds: bool
) -> None:
    slower = record(DECODE, "sdpa_efficient", gbps=500.0)
    failed = told(tmp_path, "decode.jsonl", slower, record(DECODE, "sdpa_flash", gbps=gbps))
    assert ["of the copy's bandwidth" in one for one in failed] == ([] if holds else [True])


def test_every_status_but_a_refusal_is_told_with_its_reason(tmp_path: Path) -> None:
    lines = [
        record(
            LONG, "sdpa_cudnn", status="unsupported", reason="not here", ratio=None, tflops=None, gbps=None
        ),
        record(LONG, "flex", status="crashed", reason="died of SIGSEGV", ratio=None, tflops=None, gbps=None),
    ]
    assert told(tmp_path, "smoke.jsonl", *lines) == [
        "smoke: flex is crashed on 1 of its cases: died of SIGSEGV"
    ]


def test_a_line_that_was_cut_off_hides_no_other(tmp_path: Path) -> None:
    wrong = record(LONG, "flex", status="mismatch", reason="wrong", ratio=None, tflops=None)
    failed = told(tmp_path, "half.jsonl", wrong, cut_off='{"kind": "rec')
    assert failed == ["half: flex is mismatch on 1 of its cases: wrong"]


def test_identical_code_called_slower_and_slower_code_not_found_are_told(tmp_path: Path) -> None:
    alarm = {"what": "called slower", "side": "at most", "target": 0.002, "events": 1, "trials": 24}
    found = {"what": "+5 % found", "side": "at least", "target": 0.99, "events": 5, "trials": 5}
    told(tmp_path, "power.json", {"findings": [found]})
    assert told(tmp_path, "aa.json", {"findings": [alarm]}) == ["selftest aa: called slower: 1 of 24"]


def test_a_wrong_backend_that_passed_and_a_right_one_that_did_not_are_told(tmp_path: Path) -> None:
    lines = [
        record(LONG, "wrong_a", status="mismatch", reason="off"),
        record(LONG, "wrong_b"),
        record(LONG, "right_a", status="error", reason="raised"),
        record(LONG, "right_b"),
    ]
    failed = told(tmp_path, "judge-runs/one.jsonl", *lines)
    assert [one.partition(":")[2].split()[0] for one in failed] == ["wrong_b", "right_a"]


def test_steps_that_are_left_are_told(tmp_path: Path) -> None:
    state = {step.name: DONE for step in CARD} | {"smoke": DONE | {"complete": False, "stopped": True}}
    state["half"] = DONE | {"complete": False, "exit": 1, "tail": "first\nlast words\n"}
    del state["judge"]
    assert summary(tmp_path, CARD, state, "cuda")[1] == [
        "step half failed with status 1: last words",
        "not done yet: smoke, judge; make another visit with the same folder",
    ]


def test_backends_that_are_not_installed_are_not_asked_for() -> None:
    def asked(step: Step) -> set[str]:
        return {name for word, name in zip(step.words, step.words[1:], strict=False) if word == "--backend"}

    (anchors,) = (step for step in steps("cuda", ("sdpa_flash", "eager")) if step.name == "anchors-forward")
    assert asked(anchors) == {"sdpa_flash"}


def test_a_plain_copy_of_the_tree_has_the_entry_points_of_an_installation(tmp_path: Path) -> None:
    paths = use_tree(tmp_path)
    points = {
        (one.name, point.group, point.name, point.value)
        for one in distributions(path=[paths[0]])
        for point in one.entry_points
    }
    assert ("attnbench", "attnbench", "backends", "attnbench.backends") in points
    selftest = ("attnbench-selftest", "attnbench.commands", "selftest", "attnbench_selftest.cli:command")
    assert selftest in points


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_dry_run_goes_through_every_step_and_a_second_visit_has_nothing_left(tmp_path: Path) -> None:
    words = [
        sys.executable,
        str(HERE / "campaign.py"),
        "--dry",
        "--seconds",
        "1100",
        "--out",
        str(tmp_path / "out"),
    ]
    first = subprocess.run(words, capture_output=True, text=True, check=False)
    state = json.loads((tmp_path / "out" / "steps" / "state.json").read_text())
    assert {name: one["complete"] for name, one in state.items()} == {
        step.name: True for step in steps("cpu", ("sdpa_flash", "eager"))
    }, first.stdout
    assert (tmp_path / "out" / "page.html").stat().st_size > 0
    second = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "s left" not in second.stdout
    assert "2 of 2 wrong backends were refused, and 0 of 1 right ones" in second.stdout
