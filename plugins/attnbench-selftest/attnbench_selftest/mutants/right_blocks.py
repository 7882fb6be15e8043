"""Right attention in blocks: of keys with a running maximum, of queries, of heads; in two halves merged."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from attnbench.kit.layer import for_operation
from attnbench.kit.scores import scores_of
from attnbench.testing.mistakes.parts import RIGHT, mask_of, plus_bias, sink_column
from attnbench.types.backend import Setup
from attnbench_selftest.mutants.mutant import Mutant
from attnbench_selftest.mutants.where import anywhere

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call

    Part = tuple[Tensor, Tensor, Tensor]
    """The largest score of some keys, the sum of powers, and powers times values; (B, H, Lq, 1 or Dv)."""


def _part(scores: Tensor, v: Tensor) -> Part:
    top = scores.amax(-1, keepdim=True)
    powers = (scores - top.masked_fill(top.isneginf(), 0)).exp()
    return top, powers.sum(-1, keepdim=True), powers @ v.to(powers.dtype)


def _merged(one: Part, other: Part) -> Part:
    import torch

    top = torch.maximum(one[0], other[0])
    base = top.masked_fill(top.isneginf(), 0)
    a, b = (one[0] - base).exp(), (other[0] - base).exp()
    return top, one[1] * a + other[1] * b, one[2] * a + other[2] * b


def _finished(setup: Setup, part: Part, column: Tensor) -> Tensor:
    """With the sink as one more key without a value; 0 where nothing is kept."""
    import torch

    shares = torch.where(column.isneginf(), 0.0, 1.0).to(column)
    _, total, out = _merged(part, (column, shares, torch.zeros_like(part[2])))
    return out / total.masked_fill(total == 0, 1)


def _key_blocks(size: Callable[[int], int]) -> Callable[[Setup], Call]:
    """Blocks of so many keys, given their number, merged from the first to the last."""

    def prepare(setup: Setup) -> Call:
        case, scores = setup.case, scores_of(setup.scoring, scale_queries=False)
        added, step = plus_bias(setup, mask_of(RIGHT, setup)), max(1, size(setup.case.Lk))

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            values, merged = RIGHT.spread(setup, v), None
            for start in range(0, case.Lk, step):
                cols = slice(start, min(start + step, case.Lk))
                keys = k if setup.rule.pairs_keys else k[:, :, cols]
                block = scores(q, keys, cols).to(added.dtype) + added[..., cols]
                part = _part(block, values[:, :, cols])
                merged = part if merged is None else _merged(merged, part)
            assert merged is not None
            return _finished(setup, merged, sink_column(setup, merged[0])).to(q.dtype)

        return for_operation(attend, setup)

    return prepare


def _merged_by_log_sums(parts: int) -> Callable[[Setup], Call]:
    """So many parts of the keys, each with its output, merged by log-sum-exps as in flash decoding."""

    def prepare(setup: Setup) -> Call:
        import torch

        added, step = plus_bias(setup, mask_of(RIGHT, setup)), max(1, -(-setup.case.Lk // parts))

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            scores = RIGHT.scores(setup, q, RIGHT.spread(setup, k)).to(added.dtype) + added
            values = RIGHT.spread(setup, v)
            sums, outs = [], []
            for some, own in zip(torch.split(scores, step, -1), torch.split(values, step, 2), strict=True):
                top, total, out = _part(some, own)
                sums.append(top + total.log())
                outs.append(out / total.masked_fill(total == 0, 1))
            every = torch.cat((*sums, sink_column(setup, scores)), -1).logsumexp(-1, keepdim=True)
            shares = (torch.stack(sums) - every.masked_fill(every.isneginf(), 0)).exp()
            return (shares * torch.stack(outs)).sum(0).to(q.dtype)

        return for_operation(attend, setup)

    return prepare


def _query_blocks(step: int) -> Callable[[Setup], Call]:
    """So many queries at a time."""

    def prepare(setup: Setup) -> Call:
        import torch

        case = setup.case
        added = plus_bias(setup, mask_of(RIGHT, setup))

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values, outs = RIGHT.spread(setup, k), RIGHT.spread(setup, v), []
            for start in range(0, case.Lq, step):
                rows = slice(start, min(start + step, case.Lq))
                some = keys[:, :, rows] if setup.rule.pairs_keys else keys
                scores = RIGHT.scores(setup, q[:, :, rows], some)
                outs.append(RIGHT.mix(setup, RIGHT.weights(setup, scores, added[:, :, rows]), values))
            return torch.cat(outs, 2)

        return for_operation(attend, setup)

    return prepare


def _batch_by_batch(setup: Setup) -> Call:
    """One batch element at a time, from the last to the first."""
    import torch

    added = plus_bias(setup, mask_of(RIGHT, setup)).expand(setup.case.B, -1, -1, -1)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values, outs = RIGHT.spread(setup, k), RIGHT.spread(setup, v), []
        for b in reversed(range(setup.case.B)):
            scores = RIGHT.scores(setup, q[b : b + 1], keys[b : b + 1])
            outs.append(RIGHT.mix(setup, RIGHT.weights(setup, scores, added[b : b + 1]), values[b : b + 1]))
        return torch.cat(outs[::-1])

    return for_operation(attend, setup)


def _head_by_head(setup: Setup) -> Call:
    """The products of one query head at a time, into one output; the scores of a free form all at once."""
    import torch

    case, dot = setup.case, setup.scoring.dot
    added = plus_bias(setup, mask_of(RIGHT, setup)).expand(-1, case.H, -1, -1)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = RIGHT.scores(setup, q, RIGHT.spread(setup, k)) if dot is None else None
        outs = []
        for h in range(case.H):
            shared = h // case.group
            one = scores[:, h] if scores is not None else _dot_of_head(setup, q, k, h)
            weights = _weights_of_head(setup, one.to(added.dtype) + added[:, h], h).to(q.dtype)
            outs.append(weights @ v[:, shared])
        return torch.stack(outs, 1)

    return for_operation(attend, setup)


def _dot_of_head(setup: Setup, q: Tensor, k: Tensor, h: int) -> Tensor:
    from attnbench.kit.scores import map_keys, map_queries, soft_cap

    dot = setup.scoring.dot
    assert dot is not None
    # Maps see all heads, since their parameters do.
    query, key = map_queries(dot, q)[:, h], map_keys(dot, k)[:, h // setup.case.group]
    return soft_cap(dot, query @ key.mT * dot.scale)


def _weights_of_head(setup: Setup, scores: Tensor, h: int) -> Tensor:
    sink = setup.scoring.sink
    top = scores.amax(-1, keepdim=True)
    top = top.masked_fill(top.isneginf(), 0) if sink is None else top.clamp_min(float(sink[h]))
    powers = (scores - top).exp()
    total = powers.sum(-1, keepdim=True)
    total = total if sink is None else total + (sink[h].to(scores) - top).exp()
    return powers / total.masked_fill(total == 0, 1)


KINDS: dict[str, tuple[str, Callable[[Setup], Call]]] = {
    "keys_one_by_one": ("blocks of one key, a running maximum", _key_blocks(lambda Lk: 1)),
    "key_blocks_of_7": ("blocks of 7 keys, a running maximum", _key_blocks(lambda Lk: 7)),
    "key_blocks_of_64": ("blocks of 64 keys, a running maximum", _key_blocks(lambda Lk: 64)),
    "two_halves_merged": (
        "two halves of the keys, merged by their sums of powers",
        _key_blocks(lambda Lk: -(-Lk // 2)),
    ),
    "parts_merged_by_log_sums": ("three parts of the keys, merged by log-sum-exps", _merged_by_log_sums(3)),
    "query_blocks_of_5": ("five queries at a time", _query_blocks(5)),
    "queries_one_by_one": ("one query at a time", _query_blocks(1)),
    "batch_by_batch": ("one batch element at a time", _batch_by_batch),
    "head_by_head": ("one head at a time", _head_by_head),
}

MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant(name=name, summary=words, prepare=prepare, applies=anywhere, right=True)
    for name, (words, prepare) in KINDS.items()
)
