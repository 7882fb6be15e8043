"""Writers of caches: right ones pass in every encoding, planted mistakes are refused by name of the part."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import writers
from batch_judge import Judge

import attnbench
from attnbench.cases.ids import case_id, parse_case
from attnbench.cases.select import check_case
from attnbench.plugins.registry import Registry, load_wanted
from attnbench.types.errors import BadCase
from attnbench.verifier.case import passing_trivial_answer

pytestmark = pytest.mark.usefixtures("kept_servers")

PLUGIN = str(Path(writers.__file__))
QUANTISE = "quantise/{}/B2-H2-L9-D64-Dv32/{}/kv={}"
CACHE = "reshape_and_cache/{}/B3-H2-Lq9-Lk5-D64-Dv64/{}/kv={}"
WORDS = (
    "int8:token", "int8:head", "int4:block32", "int4:channel", "uint8:tensor", "uint8:token", "uint4:head",
    "fp8_e4m3:token", "fp8_e4m3:tensor", "fp8_e5m2:channel", "q8_0", "q4_0", "q5_1",
)  # fmt: skip
"""Each encoding, each grain, scales that are given and scales that are found."""
ASKED = "nearest@nan=1"
PLANTED = [
    (form, name, *mistake)
    for form, mistakes in ((QUANTISE, writers.QUANTISED), (CACHE, writers.CACHED))
    for name, mistake in mistakes.items()
]


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_wanted([PLUGIN])


@pytest.fixture(scope="module")
def judges(registry: Registry) -> Callable[[str], Judge]:
    """Open each case once."""
    return cache(lambda case: Judge(registry, case))


@pytest.mark.parametrize("word", [*WORDS, "int8:page32"])
def test_a_right_writer_of_codes_passes(registry: Registry, word: str) -> None:
    judge = Judge(registry, QUANTISE.replace("L9", "L41").format(ASKED, "bfloat16", word))
    assert judge.problem("torch_quantise") == ""
    assert passing_trivial_answer(judge.opened) == ""
    assert {"zeros", "largest", "nan"} <= set(judge.opened.stress_inputs)


@pytest.mark.parametrize("word", ["dtype", *WORDS])
def test_a_right_writer_into_pages_passes(registry: Registry, word: str) -> None:
    judge = Judge(registry, CACHE.format(ASKED, "float32", word))
    assert judge.problem("torch_to_pages") == ""
    assert passing_trivial_answer(judge.opened) == ""


def test_a_right_writer_of_a_latent_head_passes(registry: Registry) -> None:
    case = CACHE.replace("H2", "H1").replace("D64-Dv64", "D72-Dv64")
    judge = Judge(registry, case.format("nearest", "bfloat16", "latent"))
    assert judge.problem("torch_to_pages") == ""
    assert list(judge.opened.arrays(0, 0)) == ["key", "kv", "slot_mapping"]


@pytest.mark.parametrize(("form", "name", "word", "wrong", "part"), PLANTED)
def test_planted_mistakes_are_refused_by_the_part(
    judges: Callable[[str], Judge], form: str, name: str, word: str, wrong: object, part: str
) -> None:
    problem = judges(form.format(ASKED, "float32", word)).problem(name)
    assert f"the output {part!r}: " in problem


def test_slots_that_are_remembered_are_refused(judges: Callable[[str], Judge]) -> None:
    assert "the output 'k': " in judges(CACHE.format("nearest", "float32", "dtype")).problem(
        "remembers_slots"
    )


@pytest.mark.parametrize("name", ["truncated", "away_from_zero"])
def test_a_case_may_allow_one_step(registry: Registry, name: str) -> None:
    judge = Judge(registry, QUANTISE.format("nearest@steps=1", "float32", "int8:token"))
    assert judge.problem(name) == ""
    assert "the output 'k_scale': " in judge.problem("scales_over_128")
    assert "the output 'v': " in judge.problem("codes_of_k_for_v")


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("quantise/nearest/H2-L8-D32", "name an encoding that has them, as kv=int8:token"),
        ("quantise/nearest/H1-L8-D32/kv=latent", "name an encoding that has them"),
        (
            "quantise/nearest/H4-Hkv2-L8-D32/kv=int8",
            "reads no queries: give the heads of k and v alone, as H2",
        ),
        ("quantise/nearest/H2-L8-D32/causal/kv=int8", "has no mask"),
        ("quantise/nearest/H2-Lq1-Lk8-D32/kv=int8", "must be equal, as L8"),
        ("quantise/scaled_dot/H2-L8-D32/kv=int8", "scaled_dot is a scoring rule, which quantise has not"),
        ("attention/nearest/H2-L8-D32", "nearest is a way to round codes, which attention has not"),
        ("reshape_and_cache/nearest/B2-H2-Lq9-Lk4-D32", "B2 pages of Lk4 slots have 8"),
        ("reshape_and_cache/nearest/B2-H2-Lq9-Lk32-D32/kv=int8:page32", "from all keys of a page"),
    ],
)
def test_what_a_writer_can_not_have_is_refused(registry: Registry, case: str, words: str) -> None:
    with pytest.raises(BadCase, match=words):
        check_case(parse_case(case), registry)


def test_ids_parse_back() -> None:
    for form in (QUANTISE, CACHE):
        case = form.format("nearest@steps=1", "float32", "int8:token")
        assert case_id(parse_case(case_id(parse_case(case)))) == case_id(parse_case(case))


@pytest.mark.slow
def test_a_run_checks_and_times_writers(tmp_path: Path) -> None:
    cases = [QUANTISE.format("nearest", "bfloat16", "q8_0"), CACHE.format("nearest", "bfloat16", "int8:head")]
    run = attnbench.run(cases, plugins=PLUGIN, backends=["torch_quantise", "torch_to_pages",
        "keys_in_both"], repetitions=1, budget=0.02, out=tmp_path)  # fmt: skip
    found = {(record.backend, record.case.partition("/")[0]): record for record in run.records}
    assert found["torch_quantise", "quantise"].median_ms
    assert found["torch_to_pages", "reshape_and_cache"].median_ms
    wrong = found["keys_in_both", "reshape_and_cache"]
    assert (wrong.status, wrong.failed_check) == ("mismatch", "values")
    assert "the output 'v': " in wrong.reason
