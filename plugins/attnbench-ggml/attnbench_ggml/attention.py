"""ggml_flash_attn_ext: attention from a cache of numbers, of llama.cpp's blocks, or of a latent head.

The operator takes queries in float32, keys and values in any type, and a mask in float16 that it multiplies
by ALiBi's slopes where it is told to. It writes float32, (B, L, H, Dv). So queries and outputs of half
precision are converted in each call; keys and values never are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from attnbench import Backend, Case, Rule, Setup
from attnbench.kit.dtypes import case_dtype
from attnbench.kit.masks import additive_mask, up_to_zero
from attnbench.kit.scores import form_of, map_keys, map_queries
from attnbench.types.encoding import encoding_name, is_encoded
from attnbench.types.mask import ANY_MASK
from attnbench.types.problem import call_inputs
from attnbench_ggml.graph import BLOCKS, Graph, other_layout

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call

ALIBI = 8.0
"""``max_bias``: head h of H, a power of two, has the slope 2^(-8h/H)."""

TILE, LANES = 64, 8
"""The fewest queries, and of what Dv is a multiple, where ggml 0.20.2 takes numbers of float32 and float16 in
tiles of as many queries and keys. Sums of float16 values are in float32 there. Else they are in float16, and
their error grows with the number of keys."""


def prepare(setup: Setup) -> Call:
    """Return the function of q and of keys and values as the case holds them."""
    import torch

    case, dot, sink = setup.case, setup.scoring.dot, setup.scoring.sink
    assert dot is not None
    encoding, dtype = encoding_name(case), case_dtype(case)
    blocks = encoding if encoding in BLOCKS else ""
    slopes = _has_slopes_of_ggml(case, setup.rule)
    mask = _distances(case) if slopes else _added(setup)
    # What calls share: the graph reads it after each of them has written the addresses.
    prepared = [x.contiguous() for x in (mask, None if sink is None else sink.float()) if x is not None]

    def cache(*encoded: Tensor) -> tuple[Tensor, Tensor]:
        if encoding == "latent":
            return encoded[0], encoded[0][..., : case.Dv]
        k, v = encoded
        return (k if blocks else map_keys(dot, k)), v

    graph = Graph()
    q = graph.add(torch.empty(case.B, case.H, case.Lq, case.D))
    k, v = (graph.add(x, blocks) for x in cache(*_stored(setup)))
    added = None if mask is None else graph.add(mask)
    graph.operate("ggml_flash_attn_ext", [q, k, v, added], [dot.scale, ALIBI * slopes, dot.cap or 0.0])
    if sink is not None:
        graph.give("ggml_flash_attn_ext_add_sinks", graph.add(sink.float()))
    graph.finish(case.threads)

    def call(q: Tensor, *encoded: Tensor) -> Tensor:
        queries = map_queries(dot, q).float()
        out = graph.compute([queries, *cache(*encoded), *prepared])
        return out.view(case.B, case.Lq, case.H, case.Dv).transpose(1, 2).to(dtype)

    return call


def _stored(setup: Setup) -> list[Tensor]:
    """Return tensors like those that calls get in the place of keys and values."""
    import torch

    kinds = {"float": case_dtype(setup.case), "uint8": torch.uint8}
    _, *cache = call_inputs(setup.case, setup.rule)
    return [torch.zeros(spec.shape, dtype=kinds[spec.kind]) for spec in cache]


def _has_slopes_of_ggml(case: Case, rule: Rule) -> bool:
    """Return whether the rule is ALiBi with the slopes that the operator makes itself.

    It multiplies them by distances in float16, which has all integers up to 2048, and by all else that a mask
    adds.
    """
    power_of_two = case.H & (case.H - 1) == 0
    first, last = case.query_offset, case.query_offset + case.Lq - 1
    exact = max(last, case.Lk - 1 - first) <= 2048
    alone = not case.mask.adds and "slope" not in dict(case.constants)
    return rule.name == "alibi" and power_of_two and exact and alone


def _distances(case: Case) -> Tensor:
    """Return minus the distance of each pair, -inf where it is dropped: (B or 1, 1 or H, Lq, Lk), float16."""
    import torch

    positions = torch.arange(case.Lq)[:, None] + case.query_offset
    below = -(positions - torch.arange(case.Lk)).abs().half()
    mask = additive_mask(case, torch.float16, case.device)
    return below[None, None] if mask is None else below + mask


def _added(setup: Setup) -> Tensor | None:
    """Return what is added to scores, in float16."""
    import torch

    added = additive_mask(setup.case, torch.float32, setup.case.device, setup.scoring)
    if added is not None and setup.scoring.sink is None:
        added = up_to_zero(added)
    return None if added is None else added.half()


def supports(case: Case, rule: Rule) -> str | None:
    """Return the reason why the operator can't compute a case from numbers, or None."""
    form = form_of(case, rule)
    adds = case.mask.adds or (form.bias is not None and not _has_slopes_of_ggml(case, rule))
    if adds and case.dtype == "float32":
        return "takes what is added to scores in float16, which is coarser than float32"
    if case.dtype == "float16" and (case.Lq < TILE or case.Dv % LANES):
        return f"adds up in float16 with fewer than {TILE} queries, or Dv that is no multiple of {LANES}"
    tiled = case.dtype != "bfloat16" and case.Lq >= TILE
    capped = form.dot is not None and form.dot.cap is not None and case.mask.is_none and form.bias is None
    if tiled and capped and case.Lk % TILE:
        return f"ggml 0.20.2 caps keys that fill a tile of {TILE} as well, where there is no mask"
    return refuse_maps(case, rule)


def refuse_maps(case: Case, rule: Rule) -> str | None:
    """Return the reason why encoded keys can't be those of a rule, or None."""
    dot = form_of(case, rule).dot
    if is_encoded(case) and dot is not None and dot.map_k is not None:
        return f"maps no encoded keys, as {rule.name} does"
    return None


GGML_FLASH_ATTN = Backend(
    name="ggml_flash_attn",
    summary="ggml's attention on its CPU backend, from numbers or a latent head",
    prepare=prepare,
    supports=supports,
    available=other_layout,
    needs_dot_form=True,
    dtypes=("float32", "bfloat16", "float16"),
    devices=("cpu",),
    encodings=("dtype", "latent"),
    requires=("libggml",),
    masks=(ANY_MASK,),
    masks_by_head=True,
    needs_contiguous=True,
    quadratic_copies=1,
)

GGML_FLASH_ATTN_BLOCKS = replace(
    GGML_FLASH_ATTN,
    name="ggml_flash_attn_blocks",
    summary="ggml's attention from q8_0, q4_0 or q5_1 caches; queries rounded to 8 bits",
    supports=refuse_maps,
    encodings=tuple(BLOCKS),
    # Products of a query are those of its codes, in blocks of 32 numbers.
    computes_in="int8",
)
