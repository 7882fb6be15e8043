"""Recurrences of packed sequences: a state for each, and what the judge refuses by part and sequence."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import recurrences
from batch_judge import Judge

import attnbench
from attnbench.cases.ids import parse_case
from attnbench.cases.select import check_case
from attnbench.inputs.places import change_in
from attnbench.plugins.registry import Registry, load_wanted
from attnbench.testing.judge import plan
from attnbench.types.batch import parse_batch
from attnbench.types.errors import BadCase

PLUGIN = str(Path(recurrences.__file__))
POOLED = "recurrent/{}/q37_q0_2q5_q64_q65-H4-Hkv2-D8-Dv12/none/float32/pooled"
CASE = "recurrent/{}/q37_q0_2q5_q64_q65-H4-Hkv2-D8-Dv12/none/{}/packed"


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_wanted([PLUGIN])


@pytest.fixture(scope="module")
def judges(registry: Registry) -> Callable[[str], Judge]:
    """Open each case once."""
    return cache(lambda case: Judge(registry, case))


@pytest.mark.parametrize(
    ("rule", "dtype"),
    [
        ("linear", "bfloat16"), ("gated", "float64"), ("delta", "float32"), ("gated_delta", "float32"),
        ("gated_delta", "bfloat16"), ("gated_delta_channels", "float32"), ("lightning", "float32"),
        ("selective", "float32"), ("selective", "bfloat16"),
    ],
)  # fmt: skip
def test_right_kernels_are_kept(judges: Callable[[str], Judge], rule: str, dtype: str) -> None:
    judge = judges(CASE.format(rule, dtype))
    names = ("packed", "recurrent_loop", *(["recurrent_chunked"] if rule != "selective" else []))
    assert {name: found for name in names if (found := judge.problem(name))} == {}
    assert judge.opened.passing_trivial_answer() == ""


@pytest.mark.parametrize(
    ("rule", "dtype"),
    [
        ("gated_delta", "float32"), ("gated_delta", "bfloat16"), ("lightning", "float32"),
        ("selective", "float32"),
    ],
)  # fmt: skip
def test_a_wrong_kernel_is_refused_by_part_and_sequence(
    judges: Callable[[str], Judge], rule: str, dtype: str
) -> None:
    judge = judges(CASE.format(rule, dtype))
    for mistake, (part, sequence) in recurrences.PACKED_MISTAKES.items():
        if mistake != (recurrences.OF_COMMON_INPUTS if rule == "gated_delta" else recurrences.OF_DECAYS):
            problem = judge.problem(mistake)
            assert problem.startswith(f"sequence {sequence}: the output {part!r}: "), mistake


@pytest.mark.parametrize("rule", ["gated_delta", "selective"])
def test_right_kernels_keep_a_pool(judges: Callable[[str], Judge], rule: str) -> None:
    judge = judges(POOLED.format(rule))
    names = ("pooled", "recurrent_loop", *(["recurrent_chunked"] if rule != "selective" else []))
    assert {name: found for name in names if (found := judge.problem(name))} == {}
    assert judge.opened.passing_trivial_answer() == ""


@pytest.mark.parametrize("rule", ["gated_delta", "selective"])
def test_a_wrong_use_of_a_pool_is_refused(judges: Callable[[str], Judge], rule: str) -> None:
    judge = judges(POOLED.format(rule))
    for mistake, words in recurrences.POOLED_MISTAKES.items():
        assert words in judge.problem(mistake), mistake


def test_a_pool_has_states_of_others_in_any_order(registry: Registry) -> None:
    judge = Judge(registry, POOLED.format("gated_delta"))
    found = []
    for order in range(6):
        arrays = judge.opened.arrays(judge.draws[-1], change_in(order, 0))
        assert arrays["past_state"].shape == (10, 4, 8, 12)
        slots = arrays["state_indices"]
        assert len({*slots.tolist()}) == 6
        found.append(tuple(slots.tolist()))
    assert len({*found}) > 1


def test_a_call_has_all_steps_in_one_axis_and_a_state_for_each_sequence(registry: Registry) -> None:
    judge = Judge(registry, "recurrent/gated_delta/q3_q0_q2-H4-Hkv2-D8-Dv12/none/float32/packed")
    ready = judge.given(judge.prepared("packed"), 0)
    shapes = [tuple(x.shape) for x in ready.inputs or ()]
    assert shapes == [(5, 2, 8), (5, 2, 8), (5, 4, 12), (5, 4), (5, 4), (3, 4, 8, 12), (4,)]
    assert [spec.name for spec in ready.inputs_of_call][-1] == "cu_seqlens"
    assert (ready.inputs or ())[-1].tolist() == [0, 3, 3, 5]
    out, state = judge.answer(ready).values()
    assert (out.shape, state.shape) == ((5, 4, 12), (3, 4, 8, 12))
    np.testing.assert_array_equal(state[1], (ready.inputs or ())[-2][1])


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("recurrent/linear/q4_q1s9-H2-D8/none/float32/packed", "one length: write q1, not q1s9"),
        ("recurrent/linear/q4_q9-H2-D8/none/float32/paged:16", "no keys that pages could hold: take the"),
        (
            "attention/scaled_dot/q4_q9-H2-D8/none/float32/pooled",
            "no states that a pool could hold: take the",
        ),
        ("recurrent/linear/q4-H2-D8/none/float32/cpu/both/pooled", "a pool of states has no gradients"),
        ("recurrent/selective/q4-H2-D8/none/float32/cpu/both/packed", "batches have no gradients"),
        ("recurrent/linear/2q0-H2-D8/none/float32/packed", "no sequence has both queries and keys"),
        (
            "multihead/scaled_dot/q4_q9-H2-D8-E16/none/float32/packed",
            "multihead has no batches of unlike lengths: attention and recurrent and select",
        ),
    ],
)
def test_what_a_batch_of_a_recurrence_can_not_have_is_refused(
    registry: Registry, case: str, reason: str
) -> None:
    with pytest.raises(BadCase, match=reason):
        check_case(parse_case(case), registry)


def test_the_conformance_kit_makes_batches_with_ends_of_chunks(registry: Registry) -> None:
    cases = [parse_case(case) for case in plan(registry, ["packed"]).cases(large=False)]
    assert {case.storage for case in cases} == {"packed"}
    lengths = {steps for case in cases for steps, _ in parse_batch(case.batch)}
    assert lengths >= {0, 1, 63, 64, 65}


@pytest.mark.slow
def test_a_run_checks_and_times_packed_sequences(tmp_path: Path) -> None:
    run = attnbench.run(
        ["recurrent/gated_delta/2q20_q0_q3-H4-Hkv2-D8/none/float32/packed"],
        ["recurrent_loop", "recurrent_chunked", "per_sequence"],
        repetitions=1,
        budget=0.02,
        out=tmp_path,
    )
    records = {record.backend: record for record in run.records}
    assert records["per_sequence"].reason == "computes attention, not recurrent"
    for name in ("recurrent_loop", "recurrent_chunked"):
        assert (records[name].status, records[name].reason) == ("ok", "")
        assert records[name].baseline == "recurrent_loop"
        assert records[name].batch_invariant == "yes"
