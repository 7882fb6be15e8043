"""Right attention in other layouts and dtypes, kept by its whole content, and torch's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from attnbench.kit.layer import for_operation
from attnbench.masks import kept_keys
from attnbench.testing.mistakes.parts import RIGHT, built, heads_of, mask_of, plus_bias
from attnbench.types.backend import Layout, Setup
from attnbench.types.case import DTYPES, Case, Dtype
from attnbench.types.rule import Rule
from attnbench_selftest.mutants.mutant import BOTH, Applies, Mutant
from attnbench_selftest.mutants.where import anywhere, drops_keys

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call

    Kind = tuple[str, Callable[[Setup], Call], Applies, tuple[str, ...], tuple[Dtype, ...], Layout]


HALF: tuple[Dtype, ...] = ("bfloat16", "float16")
NOT_WIDEST: tuple[Dtype, ...] = ("float32", "bfloat16", "float16")


def _heads_inside(setup: Setup) -> Call:
    """Queries before heads, in and out."""
    attend = heads_of(RIGHT, setup)

    def exchanged(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2).contiguous()

    return exchanged


def _strided(setup: Setup) -> Call:
    """Dense, with the last two axes exchanged in memory."""
    call = built(RIGHT, setup)
    return lambda q, k, v: call(q, k, v).mT.contiguous().mT


def _cloned(setup: Setup) -> Call:
    call = built(RIGHT, setup)
    return lambda q, k, v: call(q, k, v).clone()


def _in(dtype: Dtype) -> Callable[[Setup], Call]:
    """Everything in a wider dtype, parameters too; rounded once at the end."""

    def prepare(setup: Setup) -> Call:
        import torch

        wide: torch.dtype = getattr(torch, dtype)
        parameters = {name: p.to(wide) for name, p in setup.rule_parameters.items()}
        case = replace(setup.case, dtype=dtype, mask=setup.case.mask.as_in(setup.case.dtype))
        call = built(
            RIGHT,
            Setup(
                case=case,
                rule=setup.rule,
                scoring=setup.rule.bind(case, parameters),
                rule_parameters=parameters,
                projections={name: p.to(wide) for name, p in setup.projections.items()},
            ),
        )
        return lambda q, k, v: call(q.to(wide), k.to(wide), v.to(wide)).to(q.dtype)

    return prepare


def _kept_by_content(setup: Setup) -> Call:
    """Gives a copy of the last answer where all inputs are what they were in full: honest."""
    import torch

    call = built(RIGHT, setup)
    seen: list[Tensor] = []
    answer: list[Tensor] = []

    def compared(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        inputs = (q, k, v)
        if not (seen and all(torch.equal(a, b) for a, b in zip(inputs, seen, strict=True))):
            seen[:] = [x.clone() for x in inputs]
            answer[:] = [call(q, k, v)]
        return answer[0].clone()

    return compared


def _of_torch(setup: Setup) -> Call:
    """scaled_dot_product_attention with the mask as numbers to add."""
    from torch.nn.functional import scaled_dot_product_attention

    from attnbench.kit.scores import map_keys, map_queries

    dot = setup.scoring.dot
    assert dot is not None
    scale = dot.scale
    added = plus_bias(setup, mask_of(RIGHT, setup))
    added = added.expand(setup.case.B, -1, -1, -1)
    empty = added.isneginf().all(-1, keepdim=True)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        queries, keys = map_queries(dot, q), RIGHT.spread(setup, map_keys(dot, k))
        mask = added.to(q.dtype)
        out = scaled_dot_product_attention(queries, keys, RIGHT.spread(setup, v), mask, scale=scale)
        return out.masked_fill(empty, 0)

    return for_operation(attend, setup)


def _outputs_by_head(setup: Setup) -> Call:
    """The output projection as a sum over heads, in the wide dtype."""
    import torch

    from attnbench.kit.layer import split_heads
    from attnbench.testing.mistakes.parts import wide_dtype

    case, p = setup.case, setup.projections
    attend, wide = heads_of(RIGHT, setup), wide_dtype(setup)
    by_head = p["w_o"].to(wide).view(-1, case.H, case.Dv).permute(1, 2, 0)

    def layer(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        q, k, v = (
            split_heads(torch.nn.functional.linear(x, p[f"w_{letter}"], p.get(f"b_{letter}")), heads)
            for x, letter, heads in ((queries, "q", case.H), (keys, "k", case.Hkv), (values, "v", case.Hkv))
        )
        out = (attend(q, k, v).to(wide) @ by_head).sum(1)
        return (out if "b_o" not in p else out + p["b_o"].to(wide)).to(q.dtype)

    return layer


def _one_projection(setup: Setup) -> Call:
    """The matrices of q, k and v joined into one, where all come from one source."""
    import torch

    case, p = setup.case, setup.projections
    rest = _behind_projections(setup)
    joined = torch.cat([p["w_q"], p["w_k"], p["w_v"]])
    bias = torch.cat([p["b_q"], p["b_k"], p["b_v"]]) if "b_q" in p else None
    widths = [case.H * case.D, case.Hkv * case.D, case.Hkv * case.Dv]

    def layer(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        q, k, v = torch.split(torch.nn.functional.linear(queries, joined, bias), widths, -1)
        return rest(q, k, v)

    return layer


def _behind_projections(setup: Setup) -> Call:
    """The part of a layer behind its projections, which takes (B, L, heads·D) each."""
    from attnbench.kit.layer import output_projection, split_heads

    attend, project = heads_of(RIGHT, setup), output_projection(setup)
    H, Hkv = setup.case.H, setup.case.Hkv

    def behind(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return project(q, attend(split_heads(q, H), split_heads(k, Hkv), split_heads(v, Hkv)))

    return behind


def _for_torch(case: Case, rule: Rule) -> bool:
    """A dot form alone; numbers that are added only where rounding them to half precision loses nothing."""
    plain = rule.name in ("dot", "scaled_dot", "general", "cosine")
    return plain or (rule.name == "alibi" and case.dtype not in HALF)


def _projects_out(case: Case, rule: Rule) -> bool:
    return case.layer is not None and case.layer.out and not rule.concatenates


def _one_source(case: Case, rule: Rule) -> bool:
    return case.is_self_attention


KINDS: dict[str, Kind] = {
    "heads_inside": (
        "queries before heads in memory",
        _heads_inside,
        anywhere,
        ("attention",),
        DTYPES,
        "BLHD",
    ),
    "strided_output": ("a dense output with exchanged strides", _strided, anywhere, BOTH, DTYPES, "BHLD"),
    "fresh_copy": ("a copy of its answer", _cloned, anywhere, BOTH, DTYPES, "BHLD"),
    "float32_inside": ("float32 inside for half precision", _in("float32"), anywhere, BOTH, HALF, "BHLD"),
    "float64_inside": ("float64 inside", _in("float64"), anywhere, BOTH, NOT_WIDEST, "BHLD"),
    "cache_by_content": (
        "kept for as long as all of q, k and v stay",
        _kept_by_content,
        anywhere,
        BOTH,
        DTYPES,
        "BHLD",
    ),
    "attention_of_torch": (
        "scaled_dot_product_attention with a mask of numbers",
        _of_torch,
        _for_torch,
        BOTH,
        DTYPES,
        "BHLD",
    ),
    "outputs_by_head": (
        "the output projection summed over heads",
        _outputs_by_head,
        _projects_out,
        ("multihead",),
        DTYPES,
        "BHLD",
    ),
    "one_projection": (
        "one matrix for q, k and v",
        _one_projection,
        _one_source,
        ("multihead",),
        DTYPES,
        "BHLD",
    ),
}


def _dropped_cleared(setup: Setup) -> Call:
    """Zeros in keys and values that no query sees, whatever they hold."""
    import torch

    attend = heads_of(RIGHT, setup)
    dropped = torch.from_numpy(~kept_keys(setup.case)).to(setup.case.device)[..., None]
    return lambda q, k, v: attend(q, k.masked_fill(dropped, 0), v.masked_fill(dropped, 0))


MUTANTS: tuple[Mutant, ...] = (
    *(
        Mutant(
            name=name,
            summary=words,
            prepare=prepare,
            right=True,
            applies=applies,
            operations=operations,
            dtypes=dtypes,
            layout=layout,
        )
        for name, (words, prepare, applies, operations, dtypes, layout) in KINDS.items()
    ),
    Mutant(
        name="dropped_keys_cleared",
        summary="keys and values that no query sees are taken for zeros",
        prepare=_dropped_cleared,
        right=True,
        applies=drops_keys,
        operations=("attention",),
        masks_by_head=True,
        ignores_dropped=True,
    ),
)
