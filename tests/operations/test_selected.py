"""Attention to selected keys: the exact answer, and what its judge refuses and keeps."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import selections
from batch_judge import Judge

import attnbench
from attnbench.cases.ids import case_id, parse_case
from attnbench.cases.select import check_case
from attnbench.inputs.draw import draw_inputs, draw_parameters, widen_inputs, widened
from attnbench.oracle.solve import solve_outputs
from attnbench.plugins.registry import Registry, load_wanted
from attnbench.testing.judge import plan
from attnbench.types.errors import BadCase
from attnbench.verifier.case import passing_trivial_answer

PLUGIN = str(Path(selections.__file__))
BUILT_IN = ("selected_gather", "selected_mask")


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_wanted([PLUGIN])


@pytest.fixture(scope="module")
def judges(registry: Registry) -> Callable[[str], Judge]:
    """Open each case once."""
    return cache(lambda case: Judge(registry, case))


@pytest.mark.parametrize("sizes", ["L9-D4-top3", "Lq5-Lk11-D4-block4-top2"])
def test_the_exact_answer_has_the_chosen_keys_alone(registry: Registry, sizes: str) -> None:
    """Written down for one query at a time, key by key."""
    case = parse_case(f"selected/scaled_dot/B2-H4-Hkv2-{sizes}/causal:lower_right/float64")
    rule, block = registry.rule("scaled_dot"), case.size("block")
    stored = draw_inputs(case, rule, 3, 0)
    exact = solve_outputs(
        case, rule, widened(draw_parameters(case, rule), case), widen_inputs(case, rule, stored)
    )["out"]
    for b, h, i in np.ndindex(2, 4, case.Lq):
        g, last = h // 2, i + case.Lk - case.Lq
        powers, total = np.zeros(4), 0.0
        for j in range(last + 1):
            if j // block in stored["indices"][b, g, i]:
                power = np.exp(stored["q"][b, h, i] @ stored["k"][b, g, j] / 2)
                powers, total = powers + power * stored["v"][b, g, j], total + power
        expected = powers / total if total else powers
        np.testing.assert_allclose(exact[b, h, i].astype(float), expected, rtol=1e-12, atol=1e-12)


def test_indices_are_those_that_the_contract_promises(registry: Registry) -> None:
    case = parse_case("selected/scaled_dot/B2-H2-L40-D4-block4-top6/causal")
    rows = draw_inputs(case, registry.rule("scaled_dot"), 3, 0)["indices"].reshape(-1, 6)
    assert rows.dtype == np.int32
    assert (rows.min(), rows.max()) == (-1, 9)
    for row in rows:
        used = row[row >= 0].tolist()
        assert len(set(used)) == len(used)
    unused = rows < 0
    assert (unused[:, :-1] & ~unused[:, 1:]).any(), "unused places stand before used ones"
    assert unused.all(1).any(), "some rows choose nothing"
    assert any(row[row >= 0].tolist() != sorted(row[row >= 0]) for row in rows), "in any order"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize(
    "case",
    [
        selections.TOKENS,
        selections.BLOCKS,
        "selected/scaled_dot/B2-H8-Hkv1-Lq3-Lk70-D16-Dv8-top20/none/{}",
        "selected/sinks/H4-Hkv2-L33-D8-top5/causal+window:9/{}",
        "selected/alibi/H4-L33-D8-top5/bool/{}",
        selections.LATENT,
        # Its large scores have large roundings, and one query has few numbers.
        "selected/scaled_dot/H8-Hkv2-Lq1-Lk63-D80-Dv64-top64/none/{}/seed10",
    ],
)
def test_right_kernels_are_kept(judges: Callable[[str], Judge], case: str, dtype: str) -> None:
    judge = judges(case.format(dtype))
    names = ["selected_gather"]
    if "/sinks/" not in case:
        names += ["selected_mask"]
    if "/scaled_dot/" in case and dtype == "float32":
        names += ["by_places"]
    if case == selections.LATENT and dtype == "float32":
        names += ["latent_places"]
    assert {name: found for name in names if (found := judge.problem(name))} == {}
    assert passing_trivial_answer(judge.opened) == ""


@pytest.mark.parametrize("mistake", selections.MISTAKES)
def test_a_wrong_kernel_is_refused(judges: Callable[[str], Judge], mistake: str) -> None:
    assert judges(selections.MISTAKES[mistake].format("float32")).problem(mistake) != ""


def test_a_wrong_kernel_of_a_latent_head_is_refused(judges: Callable[[str], Judge]) -> None:
    judge = judges(selections.LATENT.format("float32"))
    found = [name for name in selections.LATENT_MISTAKES if judge.problem(name)]
    assert found == list(selections.LATENT_MISTAKES)


@pytest.mark.parametrize("case", [selections.TOKENS, selections.BLOCKS])
def test_of_a_large_case_a_sample_of_rows_is_judged(registry: Registry, case: str) -> None:
    judge = Judge(registry, case.format("float32"), flops=1)
    opened = judge.opened
    assert (len(opened.rows), opened.draw(0).expected["out"].shape) == (16, (3, 4, 16, 8))
    whole = widen_inputs(opened.case, opened.rule, opened.draw(0).inputs)
    every = solve_outputs(opened.case, opened.rule, opened.wide, whole)["out"]
    np.testing.assert_allclose(opened.draw(0).expected["out"], every[:, :, opened.rows], rtol=1e-12)
    assert [judge.problem(name) for name in ("by_places", *BUILT_IN)] == [""] * 3
    assert passing_trivial_answer(opened) == ""
    wrong = [name for name, shown in selections.MISTAKES.items() if shown == case]
    assert [name for name in wrong[::3] if not judge.problem(name)] == []


@pytest.mark.parametrize("storage", ["packed", "paged"])
def test_right_kernels_of_batches_are_kept(judges: Callable[[str], Judge], storage: str) -> None:
    judge = judges(selections.PACKED.format("float32", storage))
    names = (*BUILT_IN, *(["packed_places"] if storage == "packed" else []))
    assert {name: found for name in names if (found := judge.problem(name))} == {}
    assert judge.opened.passing_trivial_answer() == ""


@pytest.mark.parametrize("mistake", selections.PACKED_MISTAKES)
def test_a_wrong_kernel_of_a_batch_is_refused_by_sequence(
    judges: Callable[[str], Judge], mistake: str
) -> None:
    problem = judges(selections.PACKED.format("float32", "packed")).problem(mistake)
    assert problem.startswith(f"sequence {selections.PACKED_MISTAKES[mistake]}: the output 'out': ")


def test_a_packed_call_has_a_row_of_indices_for_each_query_and_head(registry: Registry) -> None:
    judge = Judge(registry, "selected/scaled_dot/q3s5_q2-H4-Hkv2-D8-top4/none/float32/packed")
    ready = judge.given(judge.prepared("packed_places"), 0)
    shapes = [tuple(x.shape) for x in ready.inputs or ()]
    assert shapes == [(5, 4, 8), (7, 2, 8), (7, 2, 8), (5, 2, 4), (3,), (3,)]
    # They count from the first key of their sequence.
    assert (ready.inputs or ())[3].max().item() < 5


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("selected/scaled_dot/H2-L8-D8-top0", "top = 0: give 1 to"),
        ("attention/scaled_dot/H2-L8-D8-top4", "no size 'top'"),
        ("selected/scaled_dot/H2-L8-D8/none/float32/cpu/both", "selected has no gradients"),
        ("selected/delta/H2-L8-D8", "delta is the update of a recurrence, which selected has not"),
    ],
)
def test_what_a_selection_can_not_have_is_refused(registry: Registry, case: str, reason: str) -> None:
    with pytest.raises(BadCase, match=reason):
        check_case(parse_case(case), registry)


def test_sizes_with_their_defaults_are_left_out_of_ids() -> None:
    case = parse_case("selected/scaled_dot/H2-L8-D8-top16-block4")
    assert case_id(case) == "selected/scaled_dot/B1-H2-Lq8-Lk8-D8-block4/none/float32/cpu/forward"
    assert (case.size("top"), case.size("block")) == (16, 4)
    assert parse_case(case_id(case)) == case


def test_the_conformance_kit_makes_cases_of_tokens_and_of_blocks(registry: Registry) -> None:
    cases = [parse_case(case) for case in plan(registry, ["by_places"]).cases(large=False)]
    assert {case.operation for case in cases} == {"selected"}
    assert {case.size("block") for case in cases} >= {1, 16}


@pytest.mark.slow
def test_a_run_checks_and_times_the_built_in_backends(tmp_path: Path) -> None:
    run = attnbench.run(
        ["selected/scaled_dot/2q20_q0s5_q1s33-H4-Hkv2-D8-top6/causal:lower_right/float32/packed"],
        [*BUILT_IN, "per_sequence"],
        repetitions=1,
        budget=0.02,
        out=tmp_path,
    )
    records = {record.backend: record for record in run.records}
    assert records["per_sequence"].reason == "computes attention, not selected"
    for name in BUILT_IN:
        assert (records[name].status, records[name].reason) == ("ok", "")
        assert records[name].baseline == "selected_gather"
