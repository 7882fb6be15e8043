"""A plugin brings an encoding in one file: int8 keys whose first features are the values."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import codes_as_values as plugin
import pytest
from batch_judge import Judge

import attnbench
from attnbench.cases.ids import parse_case
from attnbench.plugins.registry import Registry, load_wanted
from attnbench.types.errors import BadCase
from attnbench.verifier.case import passing_trivial_answer

pytestmark = pytest.mark.usefixtures("kept_servers")

PLUGIN = str(Path(__file__).with_name("codes_as_values.py"))
BATCH = "q5s40_q1s33_q3s3_q2s0_q0s7"
CASE = f"attention/scaled_dot/{BATCH}-H4-Hkv2-D16-Dv8/causal:lower_right/{{}}/packed/lse/kv=codes_as_values"
DENSE = "attention/scaled_dot/B2-H4-Hkv2-Lq3-Lk40-D16-Dv8/none/{}/kv=codes_as_values"


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_wanted([PLUGIN])


@pytest.fixture(scope="module")
def judges(registry: Registry) -> Callable[[str], Judge]:
    """Open each case once."""
    return cache(lambda case: Judge(registry, case))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_right_kernels_pass(judges: Callable[[str], Judge], dtype: str) -> None:
    batch, dense = judges(CASE.format(dtype)), judges(DENSE.format(dtype))
    for way in ("", *plugin.RIGHT):
        assert (way, batch.problem(plugin.name_of(way)), dense.problem(plugin.name_of(way))) == (way, "", "")
    assert batch.opened.passing_trivial_answer() == passing_trivial_answer(dense.opened) == ""
    assert list(dense.opened.arrays(0, 0)) == ["q", "kv", "kv_scale"]
    assert {"normal", "near_duplicate", "one_hot", "large_logits"} <= set(batch.opened.stress_inputs)


@pytest.mark.parametrize("way", plugin.MISTAKES)
def test_a_mistake_is_refused_by_its_part_and_sequence(judges: Callable[[str], Judge], way: str) -> None:
    part, sequence = plugin.MISTAKES[way]
    problem = judges(CASE.format("float32")).problem(plugin.name_of(way))
    assert f"sequence {sequence}: the output {part!r}: " in problem


@pytest.mark.slow
def test_it_is_run_timed_and_reported_like_any_other(tmp_path: Path) -> None:
    backends = ["eager", "by_token", plugin.name_of("scale of the next head")]
    case = CASE.format("float32")
    run = attnbench.run(case, backends, plugins=PLUGIN, repetitions=1, budget=0.1, out=tmp_path)
    found = {record.backend: record for record in run.records}
    dense, right, wrong = (found[name] for name in backends)
    assert dense.status == "unsupported"
    assert (right.status, right.reason) == ("ok", "")
    assert right.median_ms is not None
    assert set(right.parts) == {"out", "lse"}
    # A code for each feature of a key, and the scale of its token; the values take nothing.
    assert right.kv_bytes == 2 * (16 + 4)
    assert 0 < right.encoding_error < 0.1
    assert (wrong.status, wrong.failed_check) == ("mismatch", "values")
    assert re.search(r"sequence \d+: the output 'out': ", wrong.reason)


def test_a_case_that_cannot_be_encoded_is_refused_in_its_words(registry: Registry) -> None:
    with pytest.raises(BadCase, match="values are features of the keys"):
        parse_case(DENSE.format("float32").replace("D16-Dv8", "D8-Dv16"))
