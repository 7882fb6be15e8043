"""Lessons with numbers of their own: masks, rounding, batched products, saturation, and those of kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce

import numpy as np

from attnbench.explained.behaviour import behaviour_steps, behaviours
from attnbench.explained.examples import EXAMPLES, numbered
from attnbench.explained.kernels import RuleOf, flash, gqa, kv_cache, rope
from attnbench.explained.recurrences import delta, linear
from attnbench.explained.steps import Step
from attnbench.inputs.draw import Wide, store, widen
from attnbench.masks import keep_rows
from attnbench.oracle.solve import softmax
from attnbench.types.case import Case
from attnbench.types.mask import mask_text, parse_mask

_MASKS = (
    ("causal", 4, 4, "each query sees its own key and those before"),
    ("causal", 2, 5, "the queries are the first two of five tokens"),
    ("causal:lower_right", 2, 5, "the queries are the last two of five tokens, three of which came before"),
    ("causal", 5, 2, "later queries see all keys, of which there are two"),
    ("causal:lower_right", 5, 2, "the last query sees all keys; the first three see none"),
    ("padding:3", 4, 5, "the first 3 keys are tokens, the others fill the row up"),
    ("window:2", 5, 5, "keys less than 2 tokens away, before and after; the query's own key counts"),
    ("causal+window:2", 5, 5, "2 keys: the query's own key counts, and one before"),
    ("causal+left_padding:2", 5, 5, "the first 2 keys fill the row up; their own queries see none"),
    ("causal+document:2,4", 6, 6, "documents of 2 and 4 tokens, none of which sees another"),
    ("causal+chunked:3", 6, 6, "chunks of 3 tokens: keys of the query's own chunk"),
    ("causal+prefix:3", 6, 6, "all queries see the first 3 keys, those of a prompt; the rest is causal"),
    ("causal+window:2+first:1", 6, 6, "the window, and always the first key before it"),
    ("window:2+global:1", 6, 6, "the window; the first token sees all, and all see it"),
    ("reach:2,1", 6, 6, "2 keys before the query's own, and 1 after"),
    ("dilated:2", 6, 6, "each second key, counted from the query's own"),
    ("blocks:2", 6, 6, "blocks of 2 by 2 pairs, kept or dropped whole; a case draws which"),
    ("causal+image:1,3", 6, 6, "3 tokens behind the first are an image, whose tokens see each other"),
    ("tree:0,0,1,1", 4, 6, "2 tokens of text, then 4 drafts: two follow the text, two the first of these"),
    ("causal+window:2+document:3,3", 6, 6, "the window ends where the query's own document begins"),
    ("causal+window:2+image:1,3", 6, 6, "tokens of an image see all of it; window and causal drop others"),
    ("causal+document:3,3+prefix:2", 6, 6, "a prefix lifts causal, not documents: the second sees none"),
    ("causal:lower_right+window:3+first:1+tree:0,0,1", 3, 6, "drafts see the window, and the first key"),
)  # fmt: skip


def _masks(_: RuleOf, seed: int) -> Iterator[Step]:
    scores = np.array([[1.0, 0, 2, 1], [1, 0, 2, -np.inf], [1, 0, -np.inf, -np.inf], [-np.inf] * 4])
    rows, keys = ("all kept", "k4 dropped", "k3, k4 dropped", "all dropped"), numbered("k", 4)
    text = "one row of scores, of which more and more keys are dropped: the mask adds 0 or -inf"
    yield Step("scores + mask", text, scores, rows, keys)
    # A row of only -inf has no largest number to subtract.
    powers = np.exp(scores - np.maximum(scores.max(axis=1, keepdims=True), 0))
    text = (
        "e^(score − the largest of its row); e^-inf is exactly 0. Of a row of only -inf nothing is subtracted"
    )
    yield Step("powers", text, powers, rows, keys)
    text = "powers / their sum. A row that keeps no key gets 0; a plain softmax gives it NaN, 0 / 0"
    weights = softmax(scores)
    yield Step("weights", text, weights, rows, keys, drawn="shades")
    late = np.where(np.isneginf(scores), 0, weights[0])
    text = (
        "if the softmax comes first, and dropped weights become 0 after it, a row no longer sums to 1: what "
        "a dropped key had is missing from the others"
    )
    summed = np.concatenate([late, late.sum(axis=1, keepdims=True)], axis=1)[:3]
    yield Step("0 after the softmax instead", text, summed, rows[:3], (*keys, "sum"))
    for word, Lq, Lk, rule in _MASKS:
        case = Case("attention", "dot", 1, 1, 1, Lq, Lk, 1, 1, mask=parse_mask(word), seed=seed)
        keep = keep_rows(case, np.arange(Lq))
        assert keep is not None
        name = f"{mask_text(case.mask)}, {Lq} queries of {Lk} keys"
        text = f"{rule} (1 keeps a pair, 0 drops it)"
        yield Step(name, text, keep[0, 0] * 1.0, numbered("q", Lq), numbered("k", Lk), drawn="shades")


def _precision(_: RuleOf, seed: int) -> Iterator[Step]:
    def rounded(values: Wide) -> Wide:
        return widen(store(values, "bfloat16"), "bfloat16")

    scores = rounded(np.random.default_rng(seed).standard_normal((4, 4)) * 2)
    scores[np.triu_indices(4, 1)] = -np.inf
    labels = (EXAMPLES["causal-sentence"].queries,) * 2
    yield Step(
        "scores", "masked scores in bfloat16, which keeps 8 significant bits of each number", scores, *labels
    )
    powers = rounded(np.exp(rounded(scores - scores.max(axis=1, keepdims=True))))
    total = reduce(lambda left, right: rounded(left + right), powers.T)
    narrow = rounded(powers / total[:, None])
    text = "every difference, power, sum and quotient rounded to bfloat16 by hand"
    yield Step("weights in bfloat16", text, narrow, *labels, drawn="shades")
    wide = softmax(scores.astype(np.float32)).astype(np.float64)
    yield Step("weights in float32", "softmax(scores.float())", wide, *labels, drawn="shades")
    cast = rounded(wide)
    text = "softmax(scores.float()).to(bfloat16), rounded once; also torch.softmax of bfloat16"
    yield Step("weights cast back", text, cast, *labels, drawn="shades")
    text = "weights in bfloat16 − weights cast back: not 0 where the float32 softmax changes a digit"
    yield Step("difference", text, narrow - cast, *labels)


def _bmm(_: RuleOf, seed: int) -> Iterator[Step]:
    rng = np.random.default_rng(seed)
    A, B = rng.integers(0, 4, (10, 3, 4)) * 1.0, rng.integers(0, 4, (10, 4, 5)) * 1.0
    blocks, rows, inner, columns = (numbered(*one) for one in (("A", 10), ("i", 3), ("m", 4), ("j", 5)))
    yield Step("A", "ten matrices of 3 rows and 4 columns", A, rows, inner, blocks)
    yield Step("B", "ten matrices of 4 rows and 5 columns", B, inner, columns, numbered("B", 10))
    C = A @ B
    sum_ = " + ".join(f"{a:g}·{b:g}" for a, b in zip(A[0, 0], B[0, :, 0], strict=True))
    text = f"C1 = A1 @ B1 and so on; C1[i1, j1] = {sum_} = {C[0, 0, 0]:g}. Scores are q @ transposed k"
    yield Step("C", text, C, rows, columns, numbered("C", 10))


def _saturation(rule_of: RuleOf, seed: int) -> Iterator[Step]:
    names, keys = ("q·k", "q·k / √D"), numbered("k", 6)
    for D in (4, 64, 512):
        rng = np.random.default_rng([seed, D])
        # Tenths, so that a product of four features is exact as printed.
        k, q = rng.standard_normal((6, D)).round(1), rng.standard_normal(D).round(1)
        if D == 4:
            text = "standard normal features, rounded to tenths"
            yield Step(f"q and k, D = {D}", text, np.stack([q, *k]), ("q", *keys))
        scores = np.stack([k @ q, k @ q / np.sqrt(D)])
        weights = softmax(scores)
        shown = "" if D == 4 else f", {D} of each, too many to print"
        yield Step(f"scores, D = {D}", f"one query, six keys, such features{shown}", scores, names, keys)
        yield Step(f"weights, D = {D}", "softmax of each row", weights, names, keys, drawn="shades")
        text = "w(1 − w): the derivative of each weight by its own score; near 0, nothing is learned"
        yield Step(f"own derivatives, D = {D}", text, weights * (1 - weights), names, keys, drawn="shades")
    both = list(behaviours([rule_of("dot"), rule_of("scaled_dot")], (4, 16, 64, 256, 512), seed=seed))
    for step in behaviour_steps(both):
        yield replace(step, text=f"{step.text}. Other inputs than above: many queries, 32 keys each")


LESSONS: dict[str, tuple[str, Callable[[RuleOf, int], Iterator[Step]]]] = {
    "masks": ("-inf in a row of scores, and masks drawn", _masks),
    "precision": ("softmax in bfloat16, and in float32 cast back", _precision),
    "bmm": ("the batched product (10, 3, 4) × (10, 4, 5)", _bmm),
    "saturation": ("why scores are divided by √D: softmax and its gradient", _saturation),
    "gqa": ("grouped queries: heads of queries that share keys and values", gqa),
    "rope": ("rotary positions: why scores see how far apart tokens are", rope),
    "kv_cache": ("a decode: one new row, from the keys and values that are kept", kv_cache),
    "flash": ("softmax block by block, without a whole row of scores", flash),
    "linear": ("linear attention: a state in place of keys and values", linear),
    "delta": ("the delta rule: a state that corrects what it has for a key", delta),
}
"""A summary of each lesson, and its steps, made from the rules by name and a seed."""
