"""The diagnosis of wrong answers to encoded cases: a planted mistake is told by its name."""

from __future__ import annotations

import encoded
import pytest
from batch_judge import Judge

from attnbench.plugins.registry import Registry, load_wanted
from attnbench.plugins.sources import named
from attnbench.testing.diagnose import diagnose
from attnbench.testing.diagnosis_process import Diagnosed, Look

CASE = "attention/scaled_dot/B2-H4-Hkv2-Lq3-Lk40-D64/none/{}/kv={}"
LATENT = "attention/scaled_dot@scale=0.11/B3-H4-Hkv1-Lq2-Lk30-D72-Dv64/none/float32/kv=latent"

SCALED = {
    "scales ignored": "scales_ignored",
    "scale of k ignored": "scale_of_k_ignored",
    "scale of v ignored": "scale_of_v_ignored",
    "scales squared": "scales_squared",
    "scales inverted": "scales_inverted",
    "scales of k and v exchanged": "scales_exchanged",
    "scale of k for both": "scale_of_k_for_both",
    "v read as k": "values_read_as_keys",
    "scale of the next batch element": "scale_of_the_next_batch_element",
    "scale of the first batch element for all": "scale_of_the_first_batch_element",
    "scale of the next head": "scale_of_the_next_head",
    "scale of the first head for all": "scale_of_the_first_head",
}
NAMED: dict[str, dict[str, str]] = {
    "int8:head": SCALED | {"codes without sign": "codes_without_sign"},
    "int8:token": {
        "scale of the next token": "scale_of_the_previous_token",
        "scale of the first token for all": "scale_of_the_first_token",
    },
    "int8:block32": {
        "scale of the next block": "scale_of_the_next_block",
        "scale of the first block for all": "scale_of_the_first_block",
    },
    "int8:page32": {
        "scale of the next page32": "scale_of_the_previous_run",
        "scale of the first page32 for all": "scale_of_the_first_run",
    },
    "int4:token": {
        "nibbles swapped": "nibbles_swapped",
        "halves taken for pairs": "nibbles_as_halves_of_a_row",
        "high nibbles left out": "high_nibbles_left_out",
    },
    "uint8:head": {
        "zero points left out": "zero_points_ignored",
        "sign of zero points": "zero_points_added",
        "zero points of k and v exchanged": "zero_points_exchanged",
        "zero point of the next head": "zero_point_of_the_next_head",
        "scale and zero point of the next head": "scale_and_zero_point_of_the_next_head",
        "zero points in units of the scale": "zero_points_after_the_scale",
    },
    "uint8:token": {
        "zero point of the next token": "zero_point_of_the_previous_token",
        "scale and zero point of the next batch element": "scale_and_zero_point_of_the_next_batch_element",
        "zero point of k left out": "zero_point_of_k_ignored",
        "zero points subtracted in 8 bits": "zero_points_wrap",
        "scales and zero points of k and v exchanged": "scales_and_zero_points_exchanged",
    },
    "uint4:channel": {"scale of the first channel for all": "scale_of_the_first_channel"},
    "fp8_e4m3:head": {"scales squared": "scales_squared", "sign left out": "float8_without_sign"},
    "q8_0": {
        "scales ignored": "scales_ignored",
        "scale of the next token": "scale_of_the_previous_token",
        "scale of the next head": "scale_of_the_next_head",
        "first block's scale for all": "scale_of_the_first_block",
        "v read as k": "values_read_as_keys",
    },
    "q4_0": {
        "scale of the next block": "scale_of_the_next_block",
        "nibbles swapped": "nibbles_swapped",
        "neighbours in a byte": "nibbles_as_neighbours",
    },
    "q5_1": {
        "scale of the next block": "scale_of_the_next_block",
        "scale of the next token": "scale_of_the_previous_token",
        "scale of the next head": "scale_of_the_next_head",
        "least number ignored": "least_number_ignored",
        "fifth bits ignored": "fifth_bits_ignored",
        "fifth bit of the next code": "fifth_bits_of_the_next_code",
        "neighbours in a byte": "nibbles_as_neighbours",
        "nibbles swapped": "nibbles_swapped",
    },
}
OF_LATENT = {
    "latent with the scale of all features": "scale_of_all_features",
    "latent without the rotated part": "rotated_part_left_out",
    "latent without the compressed part": "compressed_part_left_out",
    "latent with the rotated part in front": "rotated_part_in_front",
    "latent with the last features as values": "values_are_the_last_features",
    "latent without the last token": "last_key_dropped",
}
PLANTED = [(word, name, mistake) for word, names in NAMED.items() for name, mistake in names.items()]


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_wanted([encoded.__file__])


def found(registry: Registry, backend: str, case: str) -> Diagnosed:
    look = Look(case, registry.rules["scaled_dot"].source, ("normal",))
    return diagnose(look, backend, named(encoded.__file__))


@pytest.mark.parametrize(("word", "name", "mistake"), PLANTED)
def test_a_mistake_in_reading_codes_is_named(registry: Registry, word: str, name: str, mistake: str) -> None:
    diagnosis = found(registry, encoded.backend_name(word, name), CASE.format("float32", word))
    assert diagnosis.mistake == mistake, diagnosis
    assert diagnosis.do.startswith("Your output equals the known mistake ")


def test_more_than_forty_mistakes_are_named() -> None:
    assert len(PLANTED) + len(OF_LATENT) > 40


@pytest.mark.parametrize("word", ["int8:token", "q8_0", "q5_1"])
def test_a_last_block_that_is_not_full_and_left_out_is_named(registry: Registry, word: str) -> None:
    backend = encoded.backend_name(word, "last block not full left out")
    assert Judge(registry, CASE.format("float32", word)).problem(backend) != ""
    assert found(registry, backend, CASE.format("float32", word)).mistake == "tail_of_keys_dropped"


def test_scales_of_a_cache_that_has_none_are_named_with_their_numbers(registry: Registry) -> None:
    case = CASE.format("float32", "dtype")
    assert Judge(registry, case).problem("dtype_scaled") != ""
    diagnosis = found(registry, "dtype_scaled", case)
    assert diagnosis.mistake == "keys_or_values_scaled"
    assert "keys times 0.31 and values times 0.13" in diagnosis.do


@pytest.mark.parametrize("name", OF_LATENT)
def test_a_mistake_in_reading_a_latent_head_is_named(registry: Registry, name: str) -> None:
    diagnosis = found(registry, encoded.backend_name(name, "").rstrip("_"), LATENT)
    assert diagnosis.mistake == OF_LATENT[name], diagnosis


@pytest.mark.parametrize("word", ["int8:head", "uint8:token", "q8_0"])
def test_half_precision_hides_no_name(registry: Registry, word: str) -> None:
    diagnosis = found(registry, encoded.backend_name(word, "scales ignored"), CASE.format("bfloat16", word))
    assert diagnosis.mistake == "scales_ignored", diagnosis


def test_a_right_answer_has_no_mistake(registry: Registry) -> None:
    diagnosis = found(
        registry, encoded.backend_name("int8:head", "right"), CASE.format("float32", "int8:head")
    )
    assert (diagnosis.mistake, diagnosis.kind) == ("", "not repeated")


BATCH = "attention/scaled_dot/q5s40_q1s33_q3s3_q2s0-H4-Hkv2-D64/causal:lower_right/{}/{}/kv={}"
IN_BATCHES: dict[str, dict[str, str]] = {
    "int8:head": {
        "scale of the next sequence": "scale_of_the_previous_sequence",
        "scale of the first sequence": "scale_of_the_first_sequence",
        "scale of the next head": "scale_of_the_next_head",
        "v read as k": "values_read_as_keys",
    },
    "int8:token": {
        "scale of the next slot": "scale_of_the_next_slot",
        "scale of the next page": "scale_of_the_previous_page",
        "scale of the first slot": "scale_of_the_first_slot",
        "scale of the logical page": "scale_without_the_table",
        "scales of k and v exchanged": "scales_exchanged",
    },
    "fp8_e4m3:tensor": {
        "scales ignored": "scales_ignored",
        "scale of v ignored": "scale_of_v_ignored",
        "scales squared": "scales_squared",
        "scale of k for both": "scale_of_k_for_both",
        "scales of k and v exchanged": "scales_exchanged",
    },
    "int8:page32": {
        "scale of the next page": "scale_of_the_previous_page",
        "scale of the logical page": "scale_without_the_table",
        "scale of the next head": "scale_of_the_next_head",
    },
    "uint8:tensor": {
        "scale of k ignored": "scale_of_k_ignored",
        "scales of k and v exchanged": "scales_exchanged",
        "zero points left out": "zero_points_ignored",
        "sign of zero points": "zero_points_added",
        "zero points of k and v exchanged": "zero_points_exchanged",
    },
    "uint8:token": {
        "zero point of the next page": "zero_point_of_the_previous_page",
        "zero point of the logical page": "zero_point_without_the_table",
        "scale and zero point of the next slot": "scale_and_zero_point_of_the_next_slot",
    },
    "uint4:head": {"zero point of the next sequence": "zero_point_of_the_previous_sequence"},
    "q8_0": {
        "scale of the next slot": "scale_of_the_next_slot",
        "scale of the next head": "scale_of_the_next_head",
    },
    "q5_1": {
        "scale of the next page": "scale_of_the_previous_page",
        "scale of the logical page": "scale_without_the_table",
        "least number ignored": "least_number_ignored",
        "fifth bit of the next code": "fifth_bits_of_the_next_code",
    },
}
OF_PAGES = (
    "scale of the next page", "scale of the first slot", "scale of the logical page",
    "zero point of the next page", "zero point of the logical page",
)  # fmt: skip
"""They can't be made without pages."""


@pytest.mark.parametrize("storage", ["packed", "paged:16"])
@pytest.mark.parametrize("word", IN_BATCHES)
def test_mistakes_in_batches_are_named(registry: Registry, storage: str, word: str) -> None:
    case = BATCH.format("float32", encoded.storage_for(storage, word), word)
    wanted = {
        name: mistake
        for name, mistake in IN_BATCHES[word].items()
        if storage != "packed" or name not in OF_PAGES
    }
    names = {name: encoded.backend_name(word, f"{name} in a batch") for name in wanted}
    assert {name: found(registry, backend, case).mistake for name, backend in names.items()} == wanted
