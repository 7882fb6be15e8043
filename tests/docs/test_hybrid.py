"""The run of a hybrid model, and what its page shows of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from attnbench.api import load
from attnbench.cases.suites import parse_suite

sys.path.insert(0, str(Path(__file__).parents[2] / "results"))
import make_hybrid as hybrid


def test_the_suite_has_every_layer_in_each_stage_and_the_page_its_answer() -> None:
    """Where the page has not: python results/make_hybrid.py --only-documents."""
    suite = parse_suite(hybrid.suite(), "hybrid")
    assert suite.stages is not None
    assert suite.counts is not None
    layers = dict.fromkeys(suite.stages, 0.0)
    for stage, count in zip(suite.stages, suite.counts, strict=True):
        layers[stage] += count
    whole = json.loads(hybrid.CONFIG.read_text())["num_hidden_layers"]
    assert layers == {"prefill": whole, "decode": whole}
    assert {case.threads for case in suite.cases} == {1}
    page = hybrid.DOCS.read_text()
    assert hybrid.with_answer(page) == page


@pytest.mark.slow
def test_a_tiny_run_has_the_sum_of_a_step_for_each_stage(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    hybrid.measure(hybrid.suite(16, 32), file, budget=0.02, repetitions=3)
    assert load(file).exit_code == 0
    found = hybrid.answer(file)
    assert "\nprefill: " in found
    assert "\ndecode: " in found
