"""Encoded keys and values are judged by what they mean: right kernels pass, planted mistakes do not."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import encoded
import numpy as np
import pytest
from batch_judge import Judge

import attnbench
from attnbench.cases.ids import case_id, parse_case
from attnbench.cases.work import bytes_of_problems
from attnbench.inputs.draw import draw_inputs
from attnbench.inputs.encoded import with_amplitudes
from attnbench.ipc.verifier_messages import OpenCase
from attnbench.plugins.registry import Registry, load_wanted
from attnbench.runner.case import refusal
from attnbench.types.encoding import encoding_named, encoding_words, known_encodings, make_encodings_known
from attnbench.types.errors import BadCase
from attnbench.verifier.batch import BatchVerifier
from attnbench.verifier.cache_error import CacheError
from attnbench.verifier.case import CaseVerifier, passing_trivial_answer
from attnbench.verifier.process import error_of_cache

pytestmark = pytest.mark.usefixtures("kept_servers")

PLUGIN = str(Path(__file__).with_name("encoded.py"))
CASE = "attention/scaled_dot/B2-H4-Hkv2-Lq3-Lk40-D64/none/{}/kv={}"
SCALED_OR_BLOCKS = [name for name in known_encodings() if name not in ("dtype", "latent")]
BATCHED = "attention/scaled_dot/q5s40_q1s33_q3s3_q2s0_q0s7-H4-Hkv2-D32/causal:lower_right/{}/{}/kv={}"
BUILT_IN = ("dequantise_sdpa", "dequantise_blocks")
WORDS = tuple(encoded.MISTAKES)
PLANTED = [(word, name) for word, mistakes in encoded.MISTAKES.items() for name in mistakes]


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_wanted([PLUGIN])


@pytest.fixture(scope="module")
def judges(registry: Registry) -> Callable[[str, str], Judge]:
    """Open each case once."""
    return cache(lambda dtype, word: Judge(registry, CASE.format(dtype, word)))


@pytest.fixture(scope="module")
def batches(registry: Registry) -> Callable[[str, str], Judge]:
    """Open each case once."""

    def judge(storage: str, word: str) -> Judge:
        return Judge(registry, BATCHED.format("bfloat16", encoded.storage_for(storage, word), word))

    return cache(judge)


MLA = "attention/scaled_dot@scale=0.11/B3-H4-Hkv1-Lq2-Lk30-D72-Dv64/none/{}/kv=latent"


@pytest.fixture(scope="module")
def latent(registry: Registry) -> Judge:
    return Judge(registry, MLA.format("bfloat16"))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_right_kernels_pass_with_one_latent_tensor(registry: Registry, dtype: str) -> None:
    judge = Judge(registry, MLA.format(dtype))
    for name in (*BUILT_IN, "latent_right"):
        assert judge.problem(name) == ""
    assert passing_trivial_answer(judge.opened) == ""
    assert list(judge.opened.arrays(0, 0)) == list(judge.opened.arrays(0, 0, nudged=True)) == ["q", "kv"]
    paged = MLA.format(dtype).replace("B3", "3q1s40_q2s21").replace("-Lq2-Lk30", "") + "/paged:16"
    batch = Judge(registry, paged.replace("/none/", "/causal:lower_right/"))
    assert batch.problem("dequantise_sdpa") == ""
    assert {"q", "kv", "block_table"} <= set(batch.opened.arrays(0, 0))


@pytest.mark.parametrize("name", [name for name in encoded.LATENT if name != "latent right"])
def test_planted_mistakes_of_latent_heads_are_refused(latent: Judge, name: str) -> None:
    assert latent.problem(encoded.backend_name(name, "").rstrip("_")) != ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("Hkv1", "Hkv2"), "there is one latent head"),
        (("D72-Dv64", "D64-Dv72"), "the values are the first"),
        (("@scale=0.11", ""), "give it, as scaled_dot@scale="),
    ],
)
def test_what_a_latent_head_cannot_be_is_refused(change: tuple[str, str], words: str) -> None:
    with pytest.raises(BadCase, match=words):
        parse_case(MLA.format("float32").replace(*change))


def test_a_latent_tensor_is_read_once(registry: Registry) -> None:
    case = parse_case(MLA.format("bfloat16"))
    queries, outputs, latents = 3 * 4 * 2 * 72, 3 * 4 * 2 * 64, 3 * 30 * 72
    assert bytes_of_problems(case, registry.rule("scaled_dot")) == 2 * (queries + outputs + latents)


@pytest.mark.parametrize("word", encoding_words(name for name in SCALED_OR_BLOCKS))
def test_the_built_in_backends_pass_in_every_encoding(registry: Registry, word: str) -> None:
    judge = Judge(registry, CASE.format("bfloat16", word).replace("D64", "D64-Dv32"))
    for name in BUILT_IN:
        assert judge.problem(name) == ""
    assert passing_trivial_answer(judge.opened) == ""
    kept = {"one_hot", "large_logits"} & {*encoding_named(word.partition(":")[0]).keeps}
    # Blocks with their least number hold 0 as 0 only where nothing lies below it.
    assert len(kept) == (1 if word == "q5_1" else 2)
    assert {"normal", "near_duplicate", "strided", *kept} <= set(judge.opened.stress_inputs)


@pytest.mark.parametrize(
    ("rule", "mask", "dtype", "word", "returns"),
    [
        ("scaled_dot", "causal:lower_right", "float16", "fp8_e4m3:token", "/lse"),
        ("scaled_dot", "window:9", "float32", "q8_0", ""),
        ("alibi", "causal", "float64", "int4:channel", ""),
        ("sinks", "padding", "bfloat16", "uint8:head", ""),
        ("general", "none", "float32", "int8:block32", ""),
        ("scaled_dot", "float:per_head", "float16", "uint4:tensor", ""),
    ],
)
def test_the_built_in_backends_pass_with_rules_and_masks(
    registry: Registry, rule: str, mask: str, dtype: str, word: str, returns: str
) -> None:
    case = CASE.replace("scaled_dot", rule).replace("none", mask).format(dtype, word) + returns
    judge = Judge(registry, case)
    for name in BUILT_IN if not returns else BUILT_IN[:1]:
        assert judge.problem(name) == ""


@pytest.mark.parametrize("storage", ["packed", "paged:16"])
@pytest.mark.parametrize(
    ("dtype", "word"),
    [
        ("bfloat16", "int8:head"),
        ("float32", "int4:token"),
        ("float16", "uint8:channel"),
        ("bfloat16", "fp8_e4m3:block32"),
        ("float32", "q8_0"),
        ("bfloat16", "q4_0"),
        ("float32", "fp8_e4m3:tensor"),
        ("float16", "fp8_e5m2:tensor"),
        ("bfloat16", "int8:tensor"),
        ("float32", "uint4:tensor"),
        ("float32", "uint8:page32"),
    ],
)
def test_encoded_batches_are_judged_too(registry: Registry, storage: str, dtype: str, word: str) -> None:
    batch = BATCHED.format(dtype, encoded.storage_for(storage, word), word)
    judge = Judge(registry, batch)
    assert judge.problem("dequantise_sdpa") == ""
    assert judge.opened.passing_trivial_answer() == ""
    assert {"normal", "near_duplicate", "one_hot"} <= set(judge.opened.stress_inputs)


@pytest.mark.parametrize("name", BUILT_IN)
def test_caches_of_codes_go_with_masks_of_a_structure(registry: Registry, name: str) -> None:
    text = CASE.replace("/none/", "/causal:lower_right+chunked:16+first:2/").format("float32", "q8_0")
    case = parse_case(text)
    record = registry.backends[name].record
    assert refusal(record, case, registry.rules[case.rule].record, devices=()) is None
    assert Judge(registry, text).problem(name) == ""


@pytest.mark.parametrize("storage", ["packed", "paged:16"])
@pytest.mark.parametrize(
    ("word", "mistake"), [(w, m) for w, wrong in encoded.IN_BATCHES.items() for m in wrong]
)
def test_planted_mistakes_in_batches_are_refused(
    batches: Callable[[str, str], Judge], storage: str, word: str, mistake: str
) -> None:
    problem = batches(storage, word).problem(encoded.backend_name(word, f"{mistake} in a batch"))
    assert re.match("(on the stress input .*: )?sequence [0-9]: ", problem)


@pytest.mark.parametrize("word", ["fp8_e4m3:tensor", "uint8:tensor"])
@pytest.mark.parametrize("storage", ["packed", "paged:16"])
def test_the_scale_of_a_whole_cache_is_another_in_each_draw(
    batches: Callable[[str, str], Judge], storage: str, word: str
) -> None:
    judge = batches(storage, word)
    sides, scales = [f"{x}_{'zero' if word[0] == 'u' else 'scale'}" for x in "kv"], []
    for index in judge.draws[:6]:
        drawn, changed = (judge.opened.arrays(index, change) for change in (0, 3))
        scales += [float(drawn[name][0]) for name in ("k_scale", "v_scale")]
        for name in ("k_scale", "v_scale", *sides):
            assert drawn[name].tolist() == changed[name].tolist()
        unlike = [float(drawn[name][0]) for name in sides]
        assert max(unlike) > 1.2 * min(unlike)
    assert len(set(scales)) == len(scales)
    assert all(0.1 < scale < 0.9 for scale in scales)
    if word == "fp8_e4m3:tensor":
        name = encoded.backend_name(word, "scales of the first call in a batch")
        assert judge.problem(name) != ""


def test_the_least_codes_are_not_drawn(judges: Callable[[str, str], Judge]) -> None:
    for word, least in (("int8:head", -128), ("int4:token", 8)):
        for index in judges("float32", word).draws:
            codes = judges("float32", word).opened.arrays(index, 3)["k"]
            read = codes if word.startswith("int8") else np.concatenate(encoded.nibbles(codes))
            assert least not in read


def test_neighbouring_pages_have_unlike_scales(registry: Registry) -> None:
    judge = Judge(registry, CASE.replace("Lk40", "Lk320").format("float32", "int8:page32"))
    scales = judge.opened.arrays(0, 0)["k_scale"]
    assert scales.shape == (2, 2, 10)
    apart = np.abs(np.diff(np.log2(scales)))
    assert np.median(apart) > 0.3


def error(registry: Registry, text: str) -> CacheError:
    rule, case = registry.rules["scaled_dot"], parse_case(text)
    opening = OpenCase(case_id(case), rule.source, 5, 1, 1e9)
    return error_of_cache((BatchVerifier if case.batch else CaseVerifier)(opening, rule.record))


def test_the_error_of_the_encoding_grows_with_fewer_bits_and_coarser_grains(registry: Registry) -> None:
    words = ("int8:token", "int8:head", "int4:token", "q8_0")
    found = {word: error(registry, CASE.format("float32", word)) for word in words}
    of = {word: one.encoded for word, one in found.items()}
    assert 0 < of["int8:token"] < of["int8:head"] < of["int4:token"] < 1
    assert 0 < of["q8_0"] < of["int8:head"]
    # All hold the same numbers, so float32 makes the same of them.
    (dtype,) = {one.dtype for one in found.values()}
    assert 0 < dtype < 1e-6


@pytest.mark.parametrize("text", [CASE, BATCHED.replace("{}/{}", "{}/paged:16")])
def test_the_dtype_has_an_error_by_the_same_measure(registry: Registry, text: str) -> None:
    """float16 has three bits more than bfloat16. Codes hold what was rounded, so their error is larger."""
    half, brain = (error(registry, text.format(dtype, "q8_0")) for dtype in ("float16", "bfloat16"))
    assert 0 < 2 * half.dtype < brain.dtype < brain.encoded < 0.1
    # The values of a latent head are part of its keys, which are numbers of the dtype.
    latent = error(registry, MLA.format("bfloat16"))
    assert 0 < latent.encoded == latent.dtype < 0.01


def test_an_encoding_that_says_more_than_it_keeps_is_found(registry: Registry) -> None:
    # Codes with zero points don't mean the same after a change of sign.
    make_encodings_known([replace(encoding_named("uint8"), name="claims_to_mirror", mirrors=True)])
    rule = registry.rules["scaled_dot"]
    opening = OpenCase(CASE.format("float32", "claims_to_mirror:token"), rule.source, 5, 1, 1e9)
    opened = CaseVerifier(opening, rule.record)
    with pytest.raises(ValueError, match="claims_to_mirror:token does not keep a change of"):
        opened.arrays(0, 3)


@pytest.mark.slow
def test_records_have_the_error_of_the_encoding(tmp_path: Path) -> None:
    case = "attention/scaled_dot/H2-Lq2-Lk40-D32"
    run = attnbench.run(case, "dequantise_sdpa", kv=("int8:head", "q4_0"), out=tmp_path, timed=False)
    coarse, fine = sorted(run.records, key=lambda record: record.case)[::-1]
    assert [coarse.status, fine.status] == ["ok", "ok"]
    assert 0 < fine.encoding_error < coarse.encoding_error
    assert 0 < fine.dtype_error < fine.encoding_error
    # 40 keys share the scales of two heads, for k and v: 32 codes each, or a block of 18 bytes.
    assert (fine.kv_bytes, coarse.kv_bytes) == (2 * 2 * (32 + 4 / 40), 2 * 2 * 18)
    plain = attnbench.run(case, "eager", out=tmp_path, timed=False).records[0]
    assert (plain.encoding_error, plain.dtype_error, plain.kv_bytes) == (None, None, 2 * 2 * 32 * 4)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_codes_mean_what_the_document_says(
    judges: Callable[[str, str], Judge], dtype: str, word: str
) -> None:
    """A kernel in float64 that reads them by itself is as exact as the dtype allows."""
    assert judges(dtype, word).problem(encoded.backend_name(word, "right")) == ""


@pytest.mark.parametrize(("word", "name"), PLANTED)
def test_planted_mistakes_are_refused(judges: Callable[[str, str], Judge], word: str, name: str) -> None:
    assert judges("bfloat16", word).problem(encoded.backend_name(word, name)) != ""


@pytest.mark.parametrize("word", [word for word in WORDS if ":" in word])
def test_remembered_scales_are_refused(judges: Callable[[str, str], Judge], word: str) -> None:
    assert judges("float32", word).problem(encoded.backend_name(word, "scales of the first call")) != ""


def test_a_backend_is_asked_only_for_encodings_that_it_declares(registry: Registry) -> None:
    case, rule = parse_case(CASE.format("float32", "int8")), registry.rule("scaled_dot")
    asked = refusal(registry.backend("sdpa_math"), case, rule, devices=())
    assert asked == ("unsupported", "takes keys and values as dtype, not int8:head")
    assert refusal(registry.backend("dequantise_sdpa"), case, rule, devices=()) is None


def test_encoded_keys_and_values_are_a_cache_that_backends_may_convert(registry: Registry) -> None:
    converting = replace(
        registry.backend("dequantise_sdpa"), converts=("k", "v_scale"), encodings=("dtype", "int8")
    )
    rule, words = registry.rule("scaled_dot"), "converts k, which no program keeps between calls of dense"
    assert refusal(converting, parse_case(CASE.format("float32", "int8")), rule, devices=()) is None
    plain = parse_case(CASE.format("float32", "dtype"))
    assert refusal(converting, plain, rule, devices=()) == ("unsupported", words)
    queries = replace(converting, converts=("q",))
    assert refusal(queries, parse_case(CASE.format("float32", "int8")), rule, devices=()) is not None


def test_ids_say_the_grain_and_leave_out_the_dtype() -> None:
    assert case_id(parse_case(CASE.format("float32", "int8"))).endswith("/forward/kv=int8:head")
    assert "kv=" not in case_id(parse_case(CASE.format("float32", "dtype")))


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (CASE.format("float32", "int8:page"), "is not a grain of int8"),
        (BATCHED.format("float32", "paged:16", "int8:page32"), "take pages of 32, not of 16"),
        (CASE.format("float32", "q8_0").replace("D64", "D48"), "multiples of 32"),
        (CASE.format("float32/both", "int8"), "codes have no gradients"),
        (CASE.format("float32/BLHD", "int8"), "no layout"),
        ("multihead/scaled_dot/B1-H2-L8-D4-E8/kv=int8", "no keys and values to encode"),
    ],
)
def test_what_codes_cannot_have_is_refused_in_words(case: str, words: str) -> None:
    with pytest.raises(BadCase, match=words):
        parse_case(case)


@pytest.mark.parametrize(
    ("word", "codes", "scales"),
    [
        ("int8:head", 40 * 128, 2 * 4),
        ("int8:token", 40 * 128, 2 * 40 * 4),
        ("int4:block32", 40 * 64, 40 * 4 * 4),
        ("uint8:channel", 40 * 128, 128 * (4 + 1)),
        ("q8_0", 40 * 4 * 34, 0),
        ("q4_0", 40 * 4 * 18, 0),
    ],
)
def test_bytes_count_codes_and_scales(registry: Registry, word: str, codes: int, scales: int) -> None:
    rule, case = registry.rule("scaled_dot"), parse_case(CASE.format("bfloat16", word))
    queries, outputs = 2 * 4 * 3 * 64 * 2, 2 * 4 * 3 * 64 * 2
    assert bytes_of_problems(case, rule) == queries + outputs + 2 * 2 * (codes + scales)


def test_bytes_leave_out_the_tokens_that_no_query_sees(registry: Registry) -> None:
    # Of one query that is causal at the upper left one key is read.
    case = parse_case("attention/scaled_dot/H4-Hkv2-Lq1-Lk40-D32/causal/bfloat16/kv=int8:token")
    queries, codes, scales = 4 * 32 * 2, 2 * 32, 2 * 4
    assert bytes_of_problems(case, registry.rule("scaled_dot")) == 2 * queries + 2 * (codes + scales)


def test_every_second_draw_has_a_channel_far_larger_than_others(registry: Registry) -> None:
    case, rule = parse_case(CASE.format("float64", "int8:token")), registry.rule("scaled_dot")
    for name in "kv":
        outliers = []
        for index in range(4):
            inputs = draw_inputs(case, rule, 3, index)
            factors = with_amplitudes(case, rule, inputs, 3, index)[name] / inputs[name]
            own = np.sort(factors[0, 0, 0])
            # Others are within a factor of two, and an outlier is eight times larger than it would be.
            outliers.append(own[-1] / own[0] > 2.1)
            assert own[-5] / own[0] < 2.1
        assert outliers == [False, True, False, True]
