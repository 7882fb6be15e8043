"""Packed sequences are judged by every check of attention, sequence by sequence; so is a plugin's storage."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import packed
import pytest
from batch_judge import Judge

import attnbench
from attnbench.cases.ids import case_id, parse_case
from attnbench.cases.select import Selection, cut
from attnbench.ipc import verifier_messages as rm
from attnbench.plugins.registry import Registry, load_wanted
from attnbench.runner.case import refusal
from attnbench.runner.forecast import plan_run
from attnbench.runner.options import make_options
from attnbench.stats.records import timed_records
from attnbench.storages.packed import PACKED
from attnbench.testing.cases import choose
from attnbench.types.batch import parse_batch
from attnbench.types.errors import BadInput
from attnbench.types.problem import chosen
from attnbench.types.record import CandidatePlan, CaseLine, RepetitionLine, SegmentSamples
from attnbench.verifier.case import CaseVerifier
from attnbench.worker.answers import output_sizes

pytestmark = pytest.mark.usefixtures("kept_servers")

PLUGIN = str(Path(__file__).with_name("packed.py"))
BATCH = "2q12_q9s20_q1s32_q5s3_q3s0_q0s4"
CASE = f"attention/scaled_dot/{BATCH}-H4-Hkv2-D8/causal:lower_right/{{}}/cpu/{{}}/packed{{}}"
ASKED = (
    ("float32", "forward", "/lse"),
    ("bfloat16", "forward", "/lse"),
    ("float16", "forward", ""),
    ("float32", "both", "/lse"),
    ("bfloat16", "both", ""),
    ("float32", "backward", ""),
)


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_wanted([PLUGIN])


@pytest.fixture(scope="module")
def judges(registry: Registry) -> Callable[[str, str, str], Judge]:
    """Open each case once."""

    def opened(dtype: str, pass_: str, lse: str, other: str = "") -> Judge:
        return Judge(registry, packed.other_case(CASE.format(dtype, pass_, lse), other))

    return cache(opened)


@pytest.mark.parametrize(("dtype", "pass_", "lse"), ASKED)
def test_a_right_backend_passes(judges: Callable[..., Judge], dtype: str, pass_: str, lse: str) -> None:
    judge = judges(dtype, pass_, lse)
    assert judge.problem("one_by_one") == ""
    judged = judge.opened.judge("one_by_one")
    assert judged.accuracy is not None
    wanted = {"out"} if pass_ != "backward" else set()
    wanted |= {"lse"} if lse else set()
    wanted |= {"q", "k", "v"} if pass_ != "forward" else set()
    assert set(judged.parts) == (wanted if len(wanted) > 1 else set())
    assert judge.opened.passing_trivial_answer() == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "mask", "dtype", "pass_"),
    [
        ("scaled_dot", "causal:lower_right", "float32", "both"),
        ("scaled_dot", "causal:lower_right", "bfloat16", "forward"),
        ("scaled_dot", "causal:lower_right+window:4", "float32", "backward"),
        ("scaled_dot", "float:per_head", "float32", "forward"),
        ("sinks", "causal:lower_right", "float32", "forward"),
        ("alibi", "none", "float16", "forward"),
        ("scaled_dot", "causal", "float64", "forward"),
    ],
)
def test_the_built_in_backends_pass(registry: Registry, rule: str, mask: str, dtype: str, pass_: str) -> None:
    lse = "" if pass_ == "backward" else "/lse"
    case = CASE.replace("scaled_dot", rule).replace("causal:lower_right", mask).format(dtype, pass_, lse)
    judge = Judge(registry, case)
    for name in ("per_sequence", "padded_sdpa"):
        asked = registry.backend(name), judge.opened.case, judge.rule.record
        assert refusal(*asked, devices=()) is None
        assert judge.problem(name) == ""


@pytest.mark.parametrize(
    ("mask", "dtype", "pass_", "batch"),
    [
        ("none", "float32", "forward", "2q12_q9s20_q1s32_q5s3"),
        ("none", "float64", "both", "2q12_q9s20_q1s32_q5s3"),
        ("causal:lower_right", "bfloat16", "forward", "3q1s40_q1_q1s17"),
    ],
)
def test_jagged_tensors_pass_where_nothing_is_masked(
    registry: Registry, mask: str, dtype: str, pass_: str, batch: str
) -> None:
    case = CASE.replace("causal:lower_right", mask).replace(BATCH, batch).format(dtype, pass_, "")
    judge, backend = Judge(registry, case), registry.backend("nested")
    assert backend.supports(judge.opened.case, judge.rule.record) is None
    assert judge.problem("nested") == ""


def test_jagged_tensors_decline_sequences_without_queries_or_keys(registry: Registry) -> None:
    case = parse_case(CASE.format("float32", "forward", "").replace("causal:lower_right", "none"))
    assert "no sequence without" in str(
        registry.backend("nested").supports(case, registry.rule("scaled_dot"))
    )


def test_jagged_tensors_decline_masks_and_rules_with_more_than_a_product(registry: Registry) -> None:
    supports = registry.backend("nested").supports
    batch = CASE.format("float32", "forward", "")
    assert supports(parse_case(batch), registry.rule("scaled_dot")) == "torch's jagged tensors take no mask"
    for rule in ("sinks", "alibi", "cosine", "softcap@c=5"):
        case = parse_case(batch.replace("scaled_dot", rule).replace("causal:lower_right", "none"))
        assert supports(case, registry.rule(case.rule)) is not None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("way", packed.RIGHT)
def test_other_ways_to_compute_the_same_pass(judges: Callable[..., Judge], way: str, dtype: str) -> None:
    assert judges(dtype, "forward", "/lse").problem(packed.name_of(way)) == ""


@pytest.mark.parametrize("mistake", packed.MISTAKES)
def test_a_mistake_is_refused_by_its_part_and_sequence(judges: Callable[..., Judge], mistake: str) -> None:
    part, sequence = packed.MISTAKES[mistake]
    gradient = part in ("q", "k", "v")
    judge = judges("float32", "both" if gradient else "forward", "/lse", packed.OTHER_CASES.get(mistake, ""))
    problem = judge.problem(packed.name_of(mistake))
    what = f"the gradient of {part}" if gradient else f"the output {part!r}"
    assert f"sequence {sequence}: {what}: " in problem


def test_free_memory_is_poisoned_in_the_size_of_each_output(judges: Callable[..., Judge]) -> None:
    ready = judges("bfloat16", "forward", "/lse").prepared("one_by_one")
    rows = 2 * 12 + 9 + 1 + 5 + 3
    assert output_sizes(ready) == (rows * 4 * 8 * 2, rows * 4 * 4)


def test_a_batch_of_one_sequence_gets_the_numbers_and_limits_of_the_dense_case(registry: Registry) -> None:
    judge = Judge(registry, "attention/scaled_dot/q9s12-H4-Hkv2-D8/causal:lower_right/packed")
    dense = parse_case("attention/scaled_dot/H4-Hkv2-Lq9-Lk12-D8/causal:lower_right")
    opened = CaseVerifier(rm.OpenCase(case_id(dense), judge.rule.source, 5, 1, 1e9), judge.rule.record)
    dense_only = ("dropped", "sliced", "transposed")
    assert judge.opened.stress_inputs == tuple(
        stress for stress in opened.stress_inputs if stress not in dense_only
    )
    plain = Judge(registry, case_id(dense)).prepared("")
    for index in range(opened.stress_inputs.index(dense_only[1])):
        for change in (0, 3):
            whole, alone = judge.opened.arrays(index, change), opened.arrays(index, change)
            assert all(np.array_equal(whole[name], alone[name][0].swapaxes(0, 1)) for name in "qkv")
        # The exact answers and those of the plain reference are the same bit for bit.
        expected, exact = judge.opened.problems[0].draw(index).expected, opened.draw(index).expected
        assert expected["out"].tobytes() == exact["out"].tobytes()
        packed_answer = judge.answer(judge.given(judge.prepared(""), index, apart=True))["0.out"]
        ready = plain.with_inputs(opened.arrays(index, 0), fresh=True)
        assert packed_answer.tobytes() == judge.answer(ready)["out"].tobytes()


def test_a_batch_of_one_sequence_has_gradients(registry: Registry) -> None:
    judge = Judge(
        registry, "attention/scaled_dot/q9s12-H4-Hkv2-D8/causal:lower_right/float32/cpu/both/packed"
    )
    assert judge.problem("one_by_one") == ""
    assert set(judge.opened.judge("one_by_one").parts) == {"out", "q", "k", "v"}


def test_a_storage_that_rounds_is_refused(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Judge(registry, CASE.format("float32", "forward", ""))
    rounding = replace(judge.opened.storage, put=lambda *given: [x.round(3) for x in PACKED.put(*given)])
    monkeypatch.setattr(judge.opened, "storage", rounding)
    with pytest.raises(ValueError, match="the storage packed changes what it holds of q"):
        judge.opened.arrays(0, 0)


def test_a_backend_hears_of_lengths_with_all_inputs_and_never_of_queries(registry: Registry) -> None:
    judge = Judge(registry, CASE.format("float32", "forward", "/lse"))
    heard: list[dict[str, Any]] = []
    backend = replace(judge.prepared("one_by_one"), renew=heard.append)
    backend = judge.given(backend, 0)
    backend = judge.given(backend, 1, fresh=False)
    assert [list(ahead) for ahead in heard] == [["cu_seqlens_q", "cu_seqlens_k"]] * 2
    assert heard[0]["cu_seqlens_k"].tolist() == [0, 12, 24, 44, 76, 79, 79, 83]


def test_the_conformance_kit_makes_batches_for_it_and_asks_for_lse(registry: Registry) -> None:
    chosen = choose(registry.backend("one_by_one"), {"scaled_dot": registry.rule("scaled_dot")})
    cases = [one.case for one in chosen.cases]
    assert {case.storage for case in cases} == {"packed", packed.OWN_STORAGE}
    assert {case.returns for case in cases} == {(), ("lse",)}
    lengths = {pair for case in cases for pair in parse_batch(case.batch)}
    assert any(queries > keys > 0 for queries, keys in lengths)
    assert any(not queries for queries, _ in lengths)
    assert any(not keys for _, keys in lengths)
    assert chosen.findings == ()


def test_backends_that_take_no_storage_of_the_cases_are_asked_only_if_named(registry: Registry) -> None:
    def asked(case: str, *named: str, brought: tuple[str, ...] = ()) -> tuple[str, ...]:
        selection = Selection((parse_case(case),))
        return plan_run(selection, named, registry, make_options(), brought).backends

    dense, batch = "attention/scaled_dot/H2-L9-D8", CASE.format("float32", "forward", "")
    assert not {"per_sequence", "padded_sdpa", "one_by_one"} & {*asked(dense)}
    assert "one_by_one" in asked(dense, brought=("one_by_one",))
    assert asked(dense, "per_sequence") == ("per_sequence",)
    assert {"per_sequence", "padded_sdpa", "one_by_one"} <= {*asked(batch)}
    assert not {"eager", "bmm"} & {*asked(batch)}


def test_backends_that_a_choice_leaves_out_are_those_that_run_without_it(registry: Registry) -> None:
    selection = Selection((parse_case("attention/scaled_dot/H2-L9-D8"),))
    every = plan_run(selection, (), registry, make_options())
    few = plan_run(selection, ("eager", "bmm"), registry, make_options())
    assert every.not_asked == ()
    assert {*few.not_asked} == {*every.backends} - {"eager", "bmm"}


def test_ratios_refer_to_the_baseline_of_the_storage_unless_another_is_named(registry: Registry) -> None:
    packed_case = parse_case(CASE.format("float32", "forward", ""))
    cases = parse_case("attention/scaled_dot/H2-L9-D8"), packed_case, replace(packed_case, storage="paged")

    def baseline(*positions: int, named: str = "", of_suites: str | None = None, shard: int = 0) -> str:
        selection = Selection(tuple(cases[i] for i in positions), baseline=of_suites)
        selection = cut(selection, f"{shard}/2") if shard else selection
        return plan_run(selection, (), registry, make_options(baseline=named)).options.baseline

    assert [baseline(i) for i in range(3)] == ["eager", "per_sequence", "gather"]
    # Each case has its own.
    assert baseline(0, 1) == baseline(1, 2) == baseline(1, 2, shard=1) == baseline(1, 2, shard=2) == ""
    assert baseline(1, 2, named="padded_sdpa") == "padded_sdpa"
    # That of a suite can't run after --storage.
    assert baseline(0, of_suites="sdpa_flash") == baseline(0, 1, of_suites="sdpa_flash") == "sdpa_flash"
    assert baseline(1, of_suites="sdpa_flash") == "per_sequence"
    with pytest.raises(BadInput, match="no backend 'nosuch'"):
        baseline(1, of_suites="nosuch")


@pytest.mark.parametrize("storage", ["packed", "paged"])
def test_a_sequence_alone_has_the_numbers_that_it_has_in_company(registry: Registry, storage: str) -> None:
    opened = Judge(registry, CASE.format("float32", "forward", "/lse").replace("packed", storage)).opened
    for number, (queries, keys) in enumerate(parse_batch(opened.case.batch)):
        if queries and keys:
            own = chosen(opened.case, (number,))
            judge = Judge(registry, case_id(own))
            arrays, again = opened.arrays_of(0, (number,)), judge.opened.arrays(0, 0)
            # Alone it has no neighbours whose pages it could share, so its pages have another order.
            assert {name: array.shape for name, array in arrays.items()} == {
                name: array.shape for name, array in again.items()
            }
            if storage == "packed":
                assert all(np.array_equal(arrays[name], again[name]) for name in again)
            whole = opened.arrays(0, 0)
            rows = slice(*whole["cu_seqlens_q"][number : number + 2])
            assert np.array_equal(arrays["q"], whole["q"][rows])
            assert len(arrays["cu_seqlens_q"]) == 2


@pytest.mark.slow
def test_whether_bits_depend_on_company_is_a_fact_of_a_record(tmp_path: Path) -> None:
    batch = CASE.format("float32", "forward", "")
    case = [batch, case_id(chosen(parse_case(batch), (2,)))]
    by_company, by_place, by_threads = map(
        packed.name_of, (packed.BY_COMPANY, packed.BY_PLACE, packed.BY_THREADS)
    )
    backends = ["one_by_one", by_company, by_place, by_threads, "per_sequence"]
    run = attnbench.run(case, backends, plugins=PLUGIN, timed=False, out=tmp_path)
    found = {(record.case == batch, record.backend): record.batch_invariant for record in run.records}
    several = "one thread" if len(os.sched_getaffinity(0)) > 1 else "yes"
    assert [found[True, name] for name in backends] == ["yes", "no", "no", several, "yes"]
    assert {found[False, name] for name in backends} == {""}
    assert {record.status for record in run.records} == {"ok"}


def test_records_of_a_run_with_several_storages_have_a_ratio_each() -> None:
    batch = CASE.format("float32", "forward", "")
    found = {}
    for case, names in ((batch, ("per_sequence", "quick")), (batch.replace("packed", "paged"), ("gather",))):
        plan = CandidatePlan(
            None, 1.0, 1.0, [1.0], fresh=True, calls=1, samples=1, warm_calls=0, repetitions=1, segments=1
        )
        line = CaseLine(case, 1, 5, 1, 1.0, 1.0, dict.fromkeys(names, plan))
        blocks = {
            name: [SegmentSamples(0, [place], 1, [9000], [9000], [0], [0])]
            for place, name in enumerate(names)
        }
        warm = {name: [9000] for name in names}
        repetitions = [RepetitionLine(case, 0, [7], [*names], warm, blocks, [*names], {})]
        records = timed_records(line, repetitions, dict.fromkeys(names, 0), "", 0.02)
        found |= {record.backend: (record.baseline, record.ratio) for record in records}
    own = ("per_sequence", 1.0)
    assert found == {"per_sequence": own, "quick": own, "gather": ("gather", 1.0)}


@pytest.mark.slow
def test_it_is_run_timed_and_reported_like_any_other(tmp_path: Path) -> None:
    case = CASE.replace(BATCH, "2q5s12_q1s20_q3s0").format("float32", "both", "/lse")
    cases = {storage: case.replace("packed", storage) for storage in ("packed", packed.OWN_STORAGE)}
    backends = ["eager", "one_by_one", "wrong_lse_in_base_2"]
    run = attnbench.run([*cases.values()], backends, plugins=PLUGIN, repetitions=1, budget=0.2, out=tmp_path)
    for storage, one in cases.items():
        found = {record.backend: record for record in run.records if record.case == one}
        dense, right, wrong = (found[name] for name in backends)
        assert (dense.status, dense.reason) == ("unsupported", f"takes dense inputs, not {storage}")
        assert (right.status, right.reason) == ("ok", "")
        assert right.median_ms is not None
        assert set(right.parts) == {"out", "lse", "q", "k", "v"}
        assert (wrong.status, wrong.failed_check) == ("mismatch", "values")
        assert re.search(r"sequence \d+: the output 'lse': ", wrong.reason)
