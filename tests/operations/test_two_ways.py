"""One answer in two ways: two halves merged by their lse, and heads absorbed into a latent one."""

from __future__ import annotations

import encoded
import packed
import pytest

from attnbench.cases.ids import case_id, parse_case
from attnbench.plugins.registry import Registry, load_wanted
from attnbench.plugins.sources import named
from attnbench.testing.diagnosis_process import Asked, Unlike, look
from attnbench.testing.two_ways import may_be_expanded, may_be_halved, unabsorbed, unmerged

PACKED = "attention/scaled_dot/2q12_q9s20_q1s33_q5s1_q3s0_q0s4-H4-Hkv2-D8/none/{}/packed/lse"
DECODE = "attention/scaled_dot/3q1s40_q1_q1s17_q0s3-H4-Hkv2-D8/causal:lower_right/{}/paged:8/lse"

LATENT = "attention/scaled_dot@scale=0.11/B3-H4-Hkv1-Lq2-Lk30-D72-Dv64/none/{}/kv=latent"
LATENT_PAGES = LATENT.replace("B3", "3q1s40_q2s21_q0s9").replace("-Lq2-Lk30", "").replace("/kv", "/paged/kv")


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_wanted([packed.__file__, encoded.__file__])


def found(registry: Registry, backend: str, case: str) -> str:
    asked = parse_case(case)
    assert may_be_halved(asked)
    return unmerged(asked, backend, registry.backends[backend].source, registry.rules[asked.rule].source)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_halves_of_right_backends_are_merged(registry: Registry, dtype: str) -> None:
    for backend, case in (
        ("per_sequence", PACKED), ("padded_sdpa", PACKED), ("one_by_one", PACKED), ("gather", DECODE),
    ):  # fmt: skip
        assert found(registry, backend, case.format(dtype)) == "", backend


@pytest.mark.parametrize(
    "mistake", ["lse in base 2", "largest score as lse", "lse without the scale", "lse of the other half"]
)
def test_a_wrong_lse_shows_in_the_merged_output(registry: Registry, mistake: str) -> None:
    words = found(registry, packed.name_of(mistake), PACKED.format("float32"))
    assert words.startswith("called on two halves of the keys, its outputs merged by their lse are not those")


def test_cases_whose_queries_do_not_see_all_keys_have_no_halves() -> None:
    assert not may_be_halved(parse_case(PACKED.format("float32").replace("none", "causal:lower_right")))
    assert not may_be_halved(
        parse_case(DECODE.format("float32").replace("lower_right", "lower_right+window:9"))
    )
    assert not may_be_halved(parse_case(PACKED.format("float32").removesuffix("/lse")))


def of_heads(registry: Registry, backend: str, case: str) -> str:
    asked = parse_case(case)
    assert may_be_expanded(asked)
    return unabsorbed(asked, backend, registry.backends[backend].source, registry.rules[asked.rule].source)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_absorbed_queries_give_the_output_of_the_expanded_heads(registry: Registry, dtype: str) -> None:
    for backend in ("dequantise_sdpa", "dequantise_blocks", "latent_right"):
        assert of_heads(registry, backend, LATENT.format(dtype)) == "", backend
    assert of_heads(registry, "dequantise_sdpa", LATENT_PAGES.format(dtype)) == ""


def test_a_latent_head_that_is_read_wrongly_is_not_that_of_the_heads(registry: Registry) -> None:
    names = [name for name in encoded.LATENT if name != "latent right"]
    wrong = [encoded.backend_name(name, "").rstrip("_") for name in names]
    found = {name: of_heads(registry, name, LATENT.format("float32")) for name in wrong}
    assert all(words.startswith("called on absorbed queries") for words in found.values()), found


def test_the_process_of_diagnoses_tells_of_them(registry: Registry) -> None:
    case = case_id(parse_case(PACKED.format("float32")))
    halved = ((case, registry.rules["scaled_dot"].source),)
    (reply,) = look(Asked("wrong_lse_in_base_2", named(packed.__file__), two_ways=halved))
    assert isinstance(reply, Unlike)
    assert reply.case == case
