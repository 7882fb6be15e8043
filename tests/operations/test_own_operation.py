"""An operation that a plugin brings in one file is run, checked, timed and reported like attnbench's own."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import attnbench
from attnbench.cases.ids import case_id, parse_case
from attnbench.cli import attnbench as command
from attnbench.inputs.draw import draw_inputs
from attnbench.plugins.registry import load_registry, load_wanted
from attnbench.runner.options import make_options
from attnbench.testing.judge import plan, records_of, reported
from attnbench.types.errors import BadCase
from attnbench.types.record import Record

PLUGIN = str(Path(__file__).with_name("gathered.py"))
CASE = "paged_with_lse/scaled_dot/B2-H4-Hkv2-Lq8-Lk16-D8/causal/float32/cpu/forward"
WRONG = {
    "wrong_keeps_its_first_table": "values",
    "wrong_keeps_outputs_by_address": "values",
    "wrong_ignores_the_table": "values",
    "wrong_wrong_lse": "values",
    "wrong_one_output": "output_form",
}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Record]:
    run = attnbench.run(
        [CASE],
        ["eager", "gathered", *WRONG],
        plugins=PLUGIN,
        repetitions=1,
        budget=0.2,
        out=tmp_path_factory.mktemp("own"),
    )
    return {record.backend: record for record in run.records}


def test_a_right_backend_is_ok_and_has_a_time(records: dict[str, Record]) -> None:
    record = records["gathered"]
    assert (record.status, record.reason) == ("ok", "")
    assert record.median_ms is not None
    assert set(record.parts) == {"out", "lse"}


@pytest.mark.parametrize("backend", WRONG)
def test_a_wrong_backend_is_a_mismatch(records: dict[str, Record], backend: str) -> None:
    assert (records[backend].status, records[backend].failed_check) == ("mismatch", WRONG[backend])


def test_records_say_which_output_is_wrong_and_which_operation_is_another(records: dict[str, Record]) -> None:
    assert "the output 'lse': RMS error" in records["wrong_wrong_lse"].reason
    assert "worst at (b=" in records["wrong_wrong_lse"].reason
    assert (records["eager"].status, records["eager"].reason) == (
        "unsupported", "computes attention and multihead, not paged_with_lse",
    )  # fmt: skip


def test_ids_parse_back() -> None:
    load_wanted([PLUGIN])
    assert case_id(parse_case(CASE)) == CASE


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"Lk": 15}, "Lk = 15 is not a multiple of the page, 4"),
        ({"pass_": "both"}, "paged_with_lse has no gradients"),
        ({"dropout": 0.1}, "paged_with_lse can't drop weights"),
    ],
)
def test_what_the_operation_can_not_have_is_refused(changes: dict[str, object], reason: str) -> None:
    load_wanted([PLUGIN])
    with pytest.raises(BadCase, match=reason):
        replace(parse_case(CASE), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_integers_keep_their_kind_whatever_the_dtype(dtype: str) -> None:
    load_wanted([PLUGIN])
    case = parse_case(CASE.replace("float32", dtype))
    drawn = draw_inputs(case, load_registry().rule("scaled_dot"), 1, 0)
    assert list(drawn) == ["q", "k_pages", "v_pages", "table"]
    assert drawn["table"].dtype == np.int64
    assert sorted(drawn["table"]) == [0, 1, 2, 3]


def test_operations_are_listed() -> None:
    listed = CliRunner().invoke(command, ["list", "operations", "--plugin", PLUGIN, "--format", "json"])
    names = [row["name"] for row in json.loads(listed.stdout)]
    assert names[0] == "attention"
    assert {"multihead", "recurrent", "selected", "quantise"} < set(names)
    assert names[-1] == "paged_with_lse"


@pytest.mark.slow
def test_the_conformance_kit_makes_cases_of_it_and_says_what_to_return() -> None:
    registry = load_wanted([PLUGIN])
    planned = plan(registry, ["gathered", "wrong_one_output"])
    asked = dict(list(planned.cases(large=False).items())[:4])
    report = reported(planned, records_of(asked, registry, make_options(timed=False)), registry)
    right, wrong = report.counts
    assert (right.right, right.judged, wrong.right) == (4, 4, 0)
    (finding,) = report.findings
    assert finding.problem == "the call gives a Tensor; a tuple of out, lse is asked for."
    assert re.match(r"Return out \(.*\), lse \(.*\): each a torch.Tensor in the case's dtype", finding.do)
