"""flex: torch's flex_attention, compiled; mask, bias, cap and sink are functions inside its kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, cast

from attnbench.backends.compiled import compile_now, configure, no_compiler
from attnbench.kit.attention import with_sink_column, with_zero_row
from attnbench.kit.dtypes import case_dtype, softmax_dtype
from attnbench.kit.layer import for_operation
from attnbench.kit.masks import additive_mask, keep_mask, plus_bias
from attnbench.kit.scores import form_of, map_keys, map_queries
from attnbench.types.backend import Backend, Setup
from attnbench.types.batch import parse_batch

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor
    from torch.nn.attention.flex_attention import BlockMask

    from attnbench.types.backend import Call
    from attnbench.types.case import Case
    from attnbench.types.rule import Rule

    ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
    MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]

NARROWEST_CUDA_HEAD = 16


def score_mod(setup: Setup) -> ScoreMod | None:
    """Make the function that changes the score of query i and key j: cap, then bias and float mask.

    None where scores stay as they are. A sink is one more key, the last: a vector of zeros, whose score is
    the sink's logit.
    """
    import torch

    scoring = setup.scoring
    assert scoring.dot is not None
    cap, sink, last = scoring.dot.cap, scoring.sink, held_lengths(setup.case)[1]
    table = _added_table(setup)
    if cap is None and table is None and sink is None:
        return None

    def modify(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if cap is not None:
            score = cap * torch.tanh(score / cap)
        if table is not None:
            return score + table[b, h, i, j]
        return score if sink is None else torch.where(j == last, sink[h], score)

    return modify


def block_mask(setup: Setup) -> BlockMask | None:
    """Make flex_attention's block mask: the blocks with a kept pair, and the function that keeps pairs."""
    from torch.nn.attention.flex_attention import create_block_mask

    case, has_sink = setup.case, setup.scoring.sink is not None
    if case.mask.is_none and not case.batch:
        return None
    by_element = case.storage == "padded" or not case.mask.ignores("b")
    keep = _keep_own(case) if case.batch else _keep_by_position(case) or _keep_by_table(case)
    queries, last = held_lengths(case)
    return create_block_mask(
        (lambda b, h, i, j: (j == last) | keep(b, h, i, j)) if has_sink else keep,
        case.B if by_element else None,
        None if case.mask.ignores("h") else case.H,
        queries,
        last + has_sink,
        device=case.device,
    )


def held_lengths(case: Case) -> tuple[int, int]:
    """Return how many queries and keys the tensors of a case have, one after the other in packed batches."""
    if case.storage != "packed":
        return case.Lq, case.Lk
    queries, keys = zip(*parse_batch(case.batch), strict=True)
    return sum(queries), sum(keys)


def _keep_own(case: Case) -> MaskMod:
    """The mask of a batch: queries see keys of their own sequence, in the band that its mask is there."""
    import torch

    packed, band = case.storage == "packed", case.mask.band
    shapes = [(1 if packed else case.B, length + 1) for length in held_lengths(case)]
    # Padding is of no sequence, nor is the key of a sink, which comes last.
    of_q, of_k = (torch.full(shape, -1 - at, device=case.device) for at, shape in enumerate(shapes))
    at_q, at_k = (torch.zeros_like(of) for of in (of_q, of_k))
    ends = [0, 0]
    for number, lengths in enumerate(parse_batch(case.batch)):
        firsts = case.mask.query_offset(*lengths), 0
        row = 0 if packed else number
        for side, (of, at) in enumerate(((of_q, at_q), (of_k, at_k))):
            begin = ends[side] if packed else 0
            own = slice(begin, begin + lengths[side])
            of[row, own] = number
            at[row, own] = firsts[side] + torch.arange(lengths[side], device=case.device)
            ends[side] += lengths[side]

    def keep(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        row = b * (not packed)
        kept, after = of_q[row, i] == of_k[row, j], at_k[row, j] - at_q[row, i]
        if band.before is not None:
            kept = kept & (after >= -band.before)
        return kept if band.after is None else kept & (after <= band.after)

    return keep


def _added_table(setup: Setup) -> Tensor | None:
    """Bias and float mask, (B, H, Lq, Lk), with the column of a sink; None where nothing is added."""
    case, scoring = setup.case, setup.scoring
    dtype = softmax_dtype(case_dtype(case))
    if case.mask.adds:
        added = additive_mask(case, dtype, case.device, scoring)
    else:
        added = plus_bias(None, scoring, slice(0, case.Lq), slice(0, case.Lk), dtype)
    if added is None:
        return None
    if scoring.sink is not None:
        added = with_sink_column(added, scoring.sink, case)
    return added.expand(case.B, case.H, *added.shape[2:])


def _keep_by_position(case: Case) -> MaskMod | None:
    """The formulas of all words of the mask; None where one has none, as numbers that are drawn."""
    import torch

    def array_of(array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(case.device)

    groups = []
    for group in case.mask.groups:
        formulas = [formula for word in group if (formula := word.formula(case, array_of)) is not None]
        if len(formulas) < len(group):
            return None
        groups.append(formulas)

    def keep(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        kept = j >= 0
        for formulas in groups:
            kept = kept & reduce(or_, (formula(b, h, i, j) for formula in formulas))
        return kept

    return keep


def _keep_by_table(case: Case) -> MaskMod:
    """A mask as a table, with one more column for the key of a sink."""
    import torch
    from torch.nn.functional import pad

    drawn = keep_mask(case, case.device)
    if drawn is None:
        drawn = torch.ones(1, 1, case.Lq, case.Lk, dtype=torch.bool, device=case.device)
    table = pad(drawn, (0, 1), value=True).expand(case.B, -1, case.Lq, case.Lk + 1)
    if case.mask.ignores("h"):
        return lambda b, h, i, j: table[b, 0, i, j]
    return lambda b, h, i, j: table[b, h, i, j]


def attention(setup: Setup) -> Call:
    """flex_attention, compiled with the case's functions in it; the rule's maps run before it."""
    import torch
    from torch.nn.attention.flex_attention import flex_attention

    case, dot, sink = setup.case, setup.scoring.dot, setup.scoring.sink
    assert dot is not None
    scores, mask, scale, group = score_mod(setup), block_mask(setup), dot.scale, case.group > 1

    def flex(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = flex_attention(
            q, k, v, score_mod=scores, block_mask=mask, scale=scale, enable_gqa=group
        )
        return out

    compiled: Call = torch.compile(flex, fullgraph=True, dynamic=False)
    if dot.map_q is None and dot.map_k is None and sink is None:
        return compiled

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        # Outside of the compiled function: torch 2.13 can't lower a flex_attention of a matrix product.
        q, k = map_queries(dot, q), map_keys(dot, k)
        return compiled(q, k, v) if sink is None else compiled(q, with_zero_row(k), with_zero_row(v))

    return attend


def prepare(setup: Setup) -> Call:
    """Compile the function for the case's shapes, for either operation or a batch."""
    configure()
    attend = attention(setup)
    if not setup.case.batch:
        return compile_now(for_operation(attend, setup), setup)
    packed = setup.case.storage == "packed"

    def call(q: Tensor, k: Tensor, v: Tensor, *lengths: Tensor) -> Tensor:
        if not packed:
            return attend(q, k, v)
        q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
        return attend(q, k, v)[0].transpose(0, 1)

    return compile_now(cast("Call", call), setup)


def supports(case: Case, rule: Rule) -> str | None:
    """Refuse what torch can't compile.

    On CUDA the kernel's blocks hold at least 16 features. On a CPU torch 2.8 writes a kernel for several
    threads in which braces do not match.
    """
    if case.batch and (refused := _refuses_batch(case, rule)):
        return refused
    if case.device == "cpu" and case.threads > 1:
        import torch

        if torch.__version__.startswith("2.8."):
            return f"flex_attention of torch {torch.__version__} compiles for one thread only on a CPU"
    narrowest = min(case.D, case.Dv)
    if case.device == "cuda" and narrowest < NARROWEST_CUDA_HEAD:
        return f"flex_attention needs heads of {NARROWEST_CUDA_HEAD} features on CUDA; here {narrowest}"
    return None


def _refuses_batch(case: Case, rule: Rule) -> str | None:
    form = form_of(case, rule)
    if form.bias is not None:
        return f"adds nothing to scores of a batch, as {rule.name} does"
    if form.dot is not None and (form.dot.map_q is not None or form.dot.map_k is not None):
        return f"maps no queries and keys of a batch, as {rule.name} does"
    if case.mask.adds or any(len(group) > 1 or group[0].form != "band" for group in case.mask.groups):
        return "takes masks of a batch that are a band of keys around each query, as causal and window"
    return None


FLEX = Backend(
    name="flex",
    summary="torch's flex_attention, compiled; of batches with a document mask",
    prepare=prepare,
    supports=supports,
    available=no_compiler,
    operations=("attention", "multihead"),
    storages=("dense", "packed", "padded"),
    needs_dot_form=True,
    dtypes=("float32", "bfloat16", "float16"),
    compiles=True,
    quadratic_copies=0,
    masks=("any",),
    masks_by_head=True,
)
