"""No check of the judge is there for nothing: switched off, each lets a named wrong backend through."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnbench.cases.identity import case_id, parse_case
from attnbench_selftest.judge_plan import Round
from attnbench_selftest.judge import BASELINE, outcomes_of, registry

# Without the case beside it, whose lengths are drawn anew each time, what is found is the same each time.
STILL = ("near",)
SURVIVES = {
    "near": ("wrong_known_listed_lengths", "attention/scaled_dot/B1-H2-L64-D8", ()),
    "guards": ("wrong_reads_before_the_start", "attention/scaled_dot/B2-H6-Hkv2-L12-D16", STILL),
    "deep_change": ("wrong_cache_by_a_sample", "attention/scaled_dot/B2-H4-Lq9-Lk40-D8", STILL),
    "loud": ("wrong_logits_clamped", "attention/scaled_dot/B2-H6-Hkv2-L12-D16/causal", STILL),
    "one_key": ("wrong_logits_clamped", "attention/alibi/B2-H4-Lq9-Lk40-D8", STILL),
    "quiet": ("wrong_scale_1_percent_in_bfloat16", "attention/alibi/B2-H4-Hkv2-L16-D5/none/bfloat16", STILL),
    "strided": ("wrong_reads_as_contiguous", "attention/scaled_dot/B2-H6-Hkv2-L12-D16", STILL),
}
REGISTRY = registry()


def status(text: str, name: str, folder: Path, without: tuple[str, ...], *, timed: bool = False) -> str:
    case = parse_case(text)
    asked = Round((case,), {case_id(case): (name,)}, timed)
    found = {o.mutant: o for o in outcomes_of(asked, 1, REGISTRY, folder, without)}
    return found[name].status


@pytest.mark.slow
@pytest.mark.parametrize("check", SURVIVES)
def test_one_is_refused_with_a_check_and_not_without(check: str, tmp_path: Path) -> None:
    name, text, left_out = SURVIVES[check]
    assert status(text, name, tmp_path, left_out) == "mismatch"
    assert status(text, name, tmp_path, (*left_out, check)) == "ok"


@pytest.mark.slow
def test_who_computes_once_a_turn_is_refused_where_inputs_are_renewed_within(tmp_path: Path) -> None:
    name, text = "wrong_last_answer_in_a_turn", "attention/scaled_dot/B2-H4-Hkv2-Lq16-Lk24-D8"
    assert status(text, name, tmp_path, (), timed=True) == "mismatch"
    assert status(text, name, tmp_path, ("renewal",), timed=True) == "ok"


@pytest.mark.slow
def test_a_case_that_tells_nothing_is_refused_while_canaries_are_tried(tmp_path: Path) -> None:
    """Its queries see one key each, so whoever gives values as they are would be right."""
    text = "attention/scaled_dot/B1-H2-L12-D8/window:1"
    assert status(text, BASELINE, tmp_path, ("near",)) == "unsupported"
    assert status(text, BASELINE, tmp_path, ("near", "canaries")) == "ok"
