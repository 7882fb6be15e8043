"""A plugin of writers of caches: each does one thing wrong that kernels do.

A mistake changes numbers before they are written, scales or codes after that, or slots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from attnbench import Backend, hookimpl
from attnbench.kit.writers import ENCODINGS, quantise, reshape_and_cache
from attnbench.types.operation import operation_of

Named = dict[str, torch.Tensor]
Wrong = Callable[[Named, Named], Named]
"""Gives the outputs of a wrong kernel from the inputs and the right outputs, by name."""


def quantised(x: torch.Tensor, scale: torch.Tensor, round_: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Codes of int8 with a scale for each token."""
    return round_(x.float() / scale[..., None]).clamp(-127, 127).to(torch.int8)


def truncated(given: Named, right: Named) -> Named:
    return {x: quantised(given[x], right[f"{x}_scale"], torch.trunc) for x in "kv"}


def away_from_zero(given: Named, right: Named) -> Named:
    return {x: quantised(given[x], right[f"{x}_scale"], lambda s: s.abs().ceil() * s.sign()) for x in "kv"}


def in_half_precision(given: Named, right: Named) -> Named:
    return {
        x: (given[x].bfloat16() / right[f"{x}_scale"].bfloat16()[..., None]).float().round().to(torch.int8)
        for x in "kv"
    }


def scales_over_128(given: Named, right: Named) -> Named:
    return {f"{x}_scale": right[f"{x}_scale"] * (127 / 128) for x in "kv"}


def one_scale_for_all(given: Named, right: Named) -> Named:
    return {"v_scale": right["v_scale"].amax((1, 2), keepdim=True).expand_as(right["v_scale"]).contiguous()}


def scales_exchanged(given: Named, right: Named) -> Named:
    return {"k_scale": right["v_scale"], "v_scale": right["k_scale"]}


def inverse_scales(given: Named, right: Named) -> Named:
    return {f"{x}_scale": 1 / right[f"{x}_scale"] for x in "kv"}


def nan_ignored(given: Named, right: Named) -> Named:
    finite = given["k"].float().nan_to_num(0)
    scale = finite.abs().amax(-1) / 127
    return {"k_scale": torch.where(scale == 0, 1, scale)}


def infinite_scales_of_zeros(given: Named, right: Named) -> Named:
    zeros = (given["k"] == 0).all(-1)
    return {"k_scale": right["k_scale"].masked_fill(zeros, torch.inf)}


def codes_of_k_for_v(given: Named, right: Named) -> Named:
    return {"v": right["k"][..., : right["v"].shape[-1]].clone()}


def nibbles_swapped(given: Named, right: Named) -> Named:
    return {x: (right[x] >> 4) | (right[x] << 4) for x in "kv"}


def zero_point_negated(given: Named, right: Named) -> Named:
    return {"k_zero": (-right["k_zero"].int()).to(torch.uint8)}


def zero_point_of_the_middle(given: Named, right: Named) -> Named:
    return {"v_zero": torch.full_like(right["v_zero"], 128)}


def half_of_a_fraction(given: Named, right: Named) -> Named:
    return {x: right[x] & 0xFE for x in "kv"}


def sign_lost(given: Named, right: Named) -> Named:
    return {x: right[x] & 0x7F for x in "kv"}


def block_scale_of_the_neighbour(given: Named, right: Named) -> Named:
    blocks = right["k"].unflatten(-1, (-1, 34)).clone()
    blocks[..., :2] = blocks[..., :2].roll(1, -2)
    return {"k": blocks.flatten(-2)}


def even_and_odd_in_a_byte(given: Named, right: Named) -> Named:
    """As most writers of 4 bits do, and llama.cpp does not."""
    blocks = right["v"].unflatten(-1, (-1, 18))
    codes = torch.cat([blocks[..., 2:] & 15, blocks[..., 2:] >> 4], -1)
    paired = codes[..., ::2] | (codes[..., 1::2] << 4)
    return {"v": torch.cat([blocks[..., :2], paired], -1).flatten(-2)}


def fifth_bits_left_out(given: Named, right: Named) -> Named:
    blocks = right["k"].unflatten(-1, (-1, 24)).clone()
    blocks[..., 4:8] = 0
    return {"k": blocks.flatten(-2)}


def largest_for_the_least_number(given: Named, right: Named) -> Named:
    blocks = right["v"].unflatten(-1, (-1, 24)).clone()
    largest = given["v"].unflatten(-1, (-1, 32)).amax(-1, keepdim=True)
    blocks[..., 2:4] = largest.half().view(torch.uint8)
    return {"v": blocks.flatten(-2)}


QUANTISED: dict[str, tuple[str, Wrong, str]] = {
    "truncated": ("int8:token", truncated, "k"),
    "away_from_zero": ("int8:token", away_from_zero, "k"),
    "in_half_precision": ("int8:token", in_half_precision, "k"),
    "scales_over_128": ("int8:token", scales_over_128, "k_scale"),
    "one_scale_for_all": ("int8:token", one_scale_for_all, "v_scale"),
    "scales_exchanged": ("int8:token", scales_exchanged, "k_scale"),
    "inverse_scales": ("int8:token", inverse_scales, "k_scale"),
    "nan_ignored": ("int8:token", nan_ignored, "k_scale"),
    "infinite_scales_of_zeros": ("int8:token", infinite_scales_of_zeros, "k_scale"),
    "codes_of_k_for_v": ("int8:token", codes_of_k_for_v, "v"),
    "nibbles_swapped": ("int4:token", nibbles_swapped, "k"),
    "zero_point_negated": ("uint8:token", zero_point_negated, "k_zero"),
    "zero_point_of_the_middle": ("uint8:token", zero_point_of_the_middle, "v_zero"),
    "half_of_a_fraction": ("fp8_e4m3:token", half_of_a_fraction, "k"),
    "sign_lost": ("fp8_e4m3:token", sign_lost, "k"),
    "block_scale_of_the_neighbour": ("q8_0", block_scale_of_the_neighbour, "k"),
    "even_and_odd_in_a_byte": ("q4_0", even_and_odd_in_a_byte, "v"),
    "fifth_bits_left_out": ("q5_1", fifth_bits_left_out, "k"),
    "largest_for_the_least_number": ("q5_1", largest_for_the_least_number, "v"),
}
"""The encoding that a mistake is of, what a kernel writes instead, and the part that is wrong first."""


def flat(cache: torch.Tensor) -> torch.Tensor:
    return cache.flatten(0, 1)


def minus_one_is_the_last(given: Named, right: Named) -> Named:
    after = right["k"].clone()
    written = given["key"].to(after.dtype)
    flat(after)[given["slot_mapping"]] = written
    return {"k": after}


def slots_in_order(given: Named, right: Named) -> Named:
    after = given["k"].clone()
    flat(after)[: len(given["key"])] = given["key"]
    return {"k": after}


def page_and_place_exchanged(given: Named, right: Named) -> Named:
    after, slots = given["v"].clone(), given["slot_mapping"]
    pages, page = after.shape[:2]
    kept = slots >= 0
    after[(slots[kept] % page) % pages, (slots[kept] // page) % page] = given["value"][kept]
    return {"v": after}


def rest_of_the_page_cleared(given: Named, right: Named) -> Named:
    after, slots = right["k"].clone(), given["slot_mapping"]
    untouched = torch.ones(after.shape[0] * after.shape[1], dtype=torch.bool)
    untouched[slots[slots >= 0]] = False
    flat(after)[untouched] = 0
    return {"k": after}


def one_slot_too_many(given: Named, right: Named) -> Named:
    """Write the slot behind each token's too, where no other token stands."""
    after, slots = right["v"].clone(), given["slot_mapping"]
    kept = slots[slots >= 0]
    behind = (kept + 1) % (after.shape[0] * after.shape[1])
    free = ~torch.isin(behind, kept)
    flat(after)[behind[free]] = flat(after)[kept[free]]
    return {"v": after}


def keys_in_both(given: Named, right: Named) -> Named:
    return {"v": right["k"].clone()}


def heads_reversed(given: Named, right: Named) -> Named:
    after, slots = given["k"].clone(), given["slot_mapping"]
    flat(after)[slots[slots >= 0]] = given["key"][slots >= 0].flip(1)
    return {"k": after}


def by_way_of_bfloat16(given: Named, right: Named) -> Named:
    after, slots = given["k"].clone(), given["slot_mapping"]
    flat(after)[slots[slots >= 0]] = given["key"][slots >= 0].bfloat16().to(after.dtype)
    return {"k": after}


def last_token_unwritten(given: Named, right: Named) -> Named:
    after, slots = right["k"].clone(), given["slot_mapping"]
    if slots[-1] >= 0:
        flat(after)[slots[-1]] = flat(given["k"])[slots[-1]]
    return {"k": after}


def scales_unwritten(given: Named, right: Named) -> Named:
    return {"k_scale": given["k_scale"].clone()}


def scales_of_the_first_head(given: Named, right: Named) -> Named:
    after, slots = right["v_scale"].clone(), given["slot_mapping"]
    written = slots[slots >= 0]
    flat(after)[written] = flat(after)[written][:, :1].expand(-1, after.shape[2])
    return {"v_scale": after}


def times_the_scale(given: Named, right: Named) -> Named:
    codes = (given["key"].float() * given["k_scale"]).clamp(-448, 448).to(torch.float8_e4m3fn)
    return {"k": into(given, codes.view(torch.uint8))}


def no_saturation(given: Named, right: Named) -> Named:
    """NaN for what is beyond the largest number."""
    steps = given["key"].float() / given["k_scale"]
    codes = torch.where(steps.abs() > 448, torch.nan, steps).to(torch.float8_e4m3fn)
    return {"k": into(given, codes.view(torch.uint8))}


def scale_ignored(given: Named, right: Named) -> Named:
    codes = given["key"].float().clamp(-448, 448).to(torch.float8_e4m3fn)
    return {"k": into(given, codes.view(torch.uint8))}


def scale_of_v_for_k(given: Named, right: Named) -> Named:
    codes = (given["key"].float() / given["v_scale"]).clamp(-448, 448).to(torch.float8_e4m3fn)
    return {"k": into(given, codes.view(torch.uint8))}


def nan_as_zero(given: Named, right: Named) -> Named:
    steps = (given["key"].float() / given["k_scale"]).nan_to_num(0).clamp(-448, 448)
    return {"k": into(given, steps.to(torch.float8_e4m3fn).view(torch.uint8))}


def into(given: Named, codes: torch.Tensor) -> torch.Tensor:
    after, slots = given["k"].clone(), given["slot_mapping"]
    flat(after)[slots[slots >= 0]] = codes[slots >= 0]
    return after


CACHED: dict[str, tuple[str, Wrong, str]] = {
    "minus_one_is_the_last": ("dtype", minus_one_is_the_last, "k"),
    "slots_in_order": ("dtype", slots_in_order, "k"),
    "page_and_place_exchanged": ("dtype", page_and_place_exchanged, "v"),
    "rest_of_the_page_cleared": ("dtype", rest_of_the_page_cleared, "k"),
    "one_slot_too_many": ("dtype", one_slot_too_many, "v"),
    "keys_in_both": ("dtype", keys_in_both, "v"),
    "heads_reversed": ("dtype", heads_reversed, "k"),
    "by_way_of_bfloat16": ("dtype", by_way_of_bfloat16, "k"),
    "last_token_unwritten": ("dtype", last_token_unwritten, "k"),
    "scales_unwritten": ("int8:token", scales_unwritten, "k_scale"),
    "scales_of_the_first_head": ("int8:token", scales_of_the_first_head, "v_scale"),
    "times_the_scale": ("fp8_e4m3:tensor", times_the_scale, "k"),
    "no_saturation": ("fp8_e4m3:tensor", no_saturation, "k"),
    "scale_ignored": ("fp8_e4m3:tensor", scale_ignored, "k"),
    "scale_of_v_for_k": ("fp8_e4m3:tensor", scale_of_v_for_k, "k"),
    "nan_as_zero": ("fp8_e4m3:tensor", nan_as_zero, "k"),
}


def prepare(setup: Any, wrong: Wrong) -> Callable[..., Any]:
    case = setup.case
    right = (quantise if case.operation == "quantise" else reshape_and_cache)(setup)
    names = [spec.name for spec in operation_of(case).inputs(case, setup.rule)]
    outputs = [spec.name for spec in operation_of(case).outputs(case)]

    def call(*inputs: torch.Tensor) -> Any:
        made = dict(zip(outputs, right(*inputs), strict=True))
        made |= wrong(dict(zip(names, inputs, strict=True)), made)
        return tuple(made[name] for name in outputs)

    return call


def remembers_slots(setup: Any) -> Callable[..., Any]:
    right, first = reshape_and_cache(setup), []

    def call(*inputs: torch.Tensor) -> Any:
        first[:] = first or [inputs[-1].clone()]
        return right(*inputs[:-1], first[0])

    return call


@hookimpl
def attnbench_backends() -> Iterator[Backend]:
    for operation, mistakes in (("quantise", QUANTISED), ("reshape_and_cache", CACHED)):
        for name, (_, wrong, _) in mistakes.items():
            yield Backend(
                name=name,
                summary="wrong",
                prepare=lambda setup, wrong=wrong: prepare(setup, wrong),
                operations=(operation,),
                encodings=("dtype", *ENCODINGS),
            )
    yield Backend(
        name="remembers_slots",
        summary="wrong",
        prepare=remembers_slots,
        operations=("reshape_and_cache",),
    )
