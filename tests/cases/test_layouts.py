"""Layouts: how q, k and v lie in memory, in words that ids keep."""

from __future__ import annotations

import pytest
import torch
from case_strategies import cases
from hypothesis import given

from attnbench.cases.ids import case_id, parse_case
from attnbench.cases.layouts import input_strides, layout_of, lies_as
from attnbench.types.case import Case
from attnbench.types.errors import BadCase
from attnbench.worker.layouts import laid_out

B, H, L, D = 2, 3, 5, 4
X = torch.randn(B, L, 3 * H * D)
PACKED = tuple(one.unflatten(-1, (H, D)).transpose(1, 2) for one in X.chunk(3, dim=-1))
APART = tuple(one.transpose(1, 2).contiguous().transpose(1, 2) for one in PACKED)
FIRST = tuple(one.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3) for one in PACKED)
CACHED = tuple(one.contiguous() for one in PACKED)


@pytest.mark.parametrize(
    ("inputs", "layout"),
    [
        (CACHED, "BHLD"), (APART, "BLHD"), (FIRST, "LBHD"), (PACKED, "BL3HD"),
        ((APART[0], *CACHED[1:]), "BLHD_BHLD_BHLD"), ((PACKED[0], *CACHED[1:]), "BL3HD_BHLD_BHLD"),
        ((CACHED[0].expand(-1, H, -1, -1)[:, :1].expand(-1, H, -1, -1), *CACHED[1:]), None),
    ],
)  # fmt: skip
def test_tensors_of_models_have_a_layout(inputs: tuple[torch.Tensor, ...], layout: str | None) -> None:
    shapes, strides = [tuple(one.shape) for one in inputs], [one.stride() for one in inputs]
    assert layout_of(shapes, strides) == layout
    if layout is not None:
        case = parse_case(f"attention/dot/B{B}-H{H}-L{L}-D{D}/{layout}")
        assert [input_strides(case)[name] for name in ("q", "k", "v")] == strides
        assert parse_case(case_id(case)) == case


def first_of(room: int, *, heads_outside: bool) -> torch.Tensor:
    """Return L positions of a cache with room for more, (B, H, L, D)."""
    if heads_outside:
        return torch.randn(B, H, room, D)[:, :, :L]
    return torch.randn(B, room, H, D)[:, :L].transpose(1, 2)


@pytest.mark.parametrize(
    ("kept", "layout"),
    [
        ((first_of(2 * L, heads_outside=True),) * 2, "BHCD"),
        ((first_of(2 * L, heads_outside=False),) * 2, "BCHD"),
        ((first_of(L + 1, heads_outside=True), first_of(7 * L, heads_outside=True)), "BHCD"),
        ((first_of(L + 1, heads_outside=False), CACHED[2]), "BLHD_BCHD_BHLD"),
        ((torch.randn(B, H, 9 * L, D)[:, :, 2 * L : 3 * L],) * 2, "BHCD"),
        ((torch.randn(B, H, 2 * L, D)[:, :, ::2],) * 2, None),
        ((torch.randn(B, H, 2 * L, 2 * D)[:, :, :L, :D],) * 2, None),
    ],
)
def test_the_first_positions_of_a_cache_with_room_for_more_have_a_layout(
    kept: tuple[torch.Tensor, ...], layout: str | None
) -> None:
    q = (APART if layout in ("BCHD", "BLHD_BCHD_BHLD") else CACHED)[0]
    inputs = (q, *kept)
    assert layout_of([tuple(one.shape) for one in inputs], [one.stride() for one in inputs]) == layout


def test_a_cache_with_room_is_measured_half_full_and_serves_any_room() -> None:
    case = parse_case(f"attention/dot/B{B}-H{H}-L{L}-D{D}/BHCD")
    assert input_strides(case)["q"] == CACHED[0].stride()
    assert input_strides(case)["k"] == torch.empty(B, H, 2 * L, D).stride()
    assert (lies_as(case, "BHCD"), lies_as(case, "BHLD"), lies_as(case, "BCHD")) == (True, False, False)
    # Room for other elements of the batch alone doesn't show where there is one.
    assert lies_as(parse_case(f"attention/dot/B1-H{H}-L{L}-D{D}/BCHD"), "BLHD")
    # How much room there is, nobody sees of one head and batch element.
    assert lies_as(parse_case(f"attention/dot/B1-H{H}-L{L}-D{D}/BLHD"), "BCHD")
    assert lies_as(parse_case(f"attention/dot/B1-H4-Hkv1-L{L}-D{D}/BHLD"), "BHCD")


@given(cases())
def test_a_layout_is_found_again_in_its_strides(case: Case) -> None:
    found = input_strides(case)
    if found:
        k = (case.B, case.Hkv, case.Lk)
        shapes = [(case.B, case.H, case.Lq, case.D), (*k, case.D), (*k, case.Dv)]
        layout = layout_of(shapes, [found[name] for name in ("q", "k", "v")])
        assert layout == case.layout or 1 in (case.B, case.H, case.Hkv, case.Lq, case.Lk)


def test_inputs_lie_as_in_another_layout_where_the_axes_that_differ_have_one_element() -> None:
    case = parse_case(f"attention/dot/B{B}-H{H}-L{L}-D{D}/BLHD")
    assert (lies_as(case, "BLHD"), lies_as(case, "BHLD"), lies_as(case, "BL3HD")) == (True, False, False)
    assert lies_as(parse_case(f"attention/dot/B{B}-H{H}-L1-D{D}/BLHD"), "BHLD")
    assert lies_as(parse_case(f"attention/dot/B1-H{H}-L{L}-D{D}/BLHD"), "LBHD")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "attention/dot/H2-L4-D8/BLHD_BHLD",
            "give own, one of BHLD, BLHD, LBHD, BL3HD, BHCD, BCHD, or three for q, k and v",
        ),
        ("attention/dot/H2-L4-D8/BLHD_BLHD_BLHD", "give BLHD, which stands for q, k and v"),
        ("attention/dot/H2-L4-D8/BHLD_BHCD_BHCD", "give BHCD, which stands for q, k and v"),
        ("attention/dot/H2-L4-D8/BHCD_BHLD_BHLD", "q has no room for more; give BHLD for it"),
        ("attention/dot/H2-L4-D8/BLHD_BLHD_x", "layout = 'BLHD_BLHD_x'"),
        ("multihead/dot/H2-L4-D8-E16/BLHD", "multihead has no q, k and v"),
        ("attention/dot/H2-L4-D8/BLDH", "did you mean 'BHLD'"),
    ],
)
def test_other_words_are_refused(words: str, said: str) -> None:
    with pytest.raises(BadCase, match=said):
        parse_case(words)


@pytest.mark.parametrize("layout", ["BHLD", "BLHD", "LBHD"])
@pytest.mark.parametrize("queries", [L - 2, L + 3])
def test_keys_that_are_paired_with_queries_have_places_of_their_own(layout: str, queries: int) -> None:
    case = parse_case(f"attention/concat_linear/B{B}-H{H}-Lq{queries}-Lk{L}-D{D}/{layout}")
    k = torch.arange(B * H * queries * D, dtype=torch.float32).reshape(B, H, queries, D)
    assert torch.equal(laid_out("k", k, case, "BHLD"), k)
