"""Attention on small inputs, step by step: from tokens to the output of a rule or of a whole layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from attnbench.explained.examples import Example, cut, numbered, stream
from attnbench.explained.steps import Drawn, Step
from attnbench.inputs.draw import draw_parameters
from attnbench.masks import added_rows, keep_rows
from attnbench.oracle.solve import softmax
from attnbench.plugins.calling import Raised, call
from attnbench.plugins.registry import Entry
from attnbench.types.case import Case
from attnbench.types.errors import AttnbenchError, BadInput, PluginFailed
from attnbench.types.mask import mask_text
from attnbench.types.rule import Rule, of_head, wrong_constant

if TYPE_CHECKING:
    from attnbench.types.rule import Array

T = TypeVar("T")

SCORES, MASKED, WEIGHTS, OUTPUT = "scores", "masked scores", "weights", "output"
_SOURCES = {
    "X": "the tokens, one per row", "Y": "the tokens that keys and values come from",
    "q": "queries, one per row", "k": "keys, one per row", "v": "values, one per row",
}  # fmt: skip


def heads_of(example: Example) -> tuple[Array, Array, Array]:
    """Return q (H, Lq, D), k (H, Lk, D) and v (H, Lk, Dv), by the matrices of each head.

    Raises:
        BadInput: the heads do not divide the features.
    """
    H, made = example.heads, []
    for letter, (_, rows) in zip("qkv", example.sources, strict=True):
        matrix, bias = (example.matrices.get(f"{kind}_{letter}") for kind in "Wb")
        heads = cut(rows, H) if matrix is None else rows @ cut(matrix, H)
        made.append(heads if bias is None else heads + cut(bias, H))
    return made[0], made[1], made[2]


def case_of(rule: Rule, example: Example) -> Case:
    """Return the case of the heads of an example.

    Raises:
        BadCase: it can't exist, for example because the mask does not fit.
    """
    (H, Lq, D), _, (_, Lk, Dv) = (array.shape for array in heads_of(example))
    sizes = (1, H, H, Lq, Lk, D, Dv)
    return Case(
        "attention", rule.name, *sizes, mask=example.mask, dtype="float64", seed=example.seed,
        constants=example.constants,
    )  # fmt: skip


def scores_of(
    rule: Rule, q: Array, k: Array, parameters: Mapping[str, Array], positions: Array, Lk: int
) -> Array:
    """Compute the scores (R, Lk) of one head by the rule's reference, for q (R, D).

    Raises:
        PluginFailed: the reference returns another shape, NaN or +inf.
    """
    scores = np.asarray(rule.reference(q, k, parameters, positions))
    what = f"the reference of the rule {rule.name} returned scores"
    if scores.shape != (len(q), Lk):
        raise PluginFailed(f"{what} of shape {scores.shape}; {(len(q), Lk)} is needed")
    if np.isnan(scores).any() or np.isposinf(scores).any():
        raise PluginFailed(f"{what} that are NaN or infinite")
    return scores


def explain(rule: Rule, example: Example) -> tuple[Step, ...]:
    """Compute every step of a rule; several heads stand side by side.

    Raises:
        BadInput: the rule does not support such inputs.
    """
    q, k, v = heads_of(example)
    case = case_of(rule, example)
    keys, needed = k.shape[1], case.Lq if rule.pairs_keys else case.Lk
    if keys != needed and not (rule.pairs_keys and keys == case.Lk > needed):
        what = "query" if rule.pairs_keys else "value"
        raise BadInput(f"{rule.name} needs {needed} keys, one for each {what}: there are {keys}")
    if problem := wrong_constant(case, rule):
        raise BadInput(problem)
    reason = rule.refuses(case)
    if reason is not None:
        raise BadInput(f"{rule.name} does not support these inputs: {reason}")
    if rule.pairs_keys:
        k = k[:, : case.Lq]
        own = [(name, rows[: case.Lq] if name == "k" else rows) for name, rows in example.sources]
        example = replace(example, sources=tuple(own))
    return tuple(_steps(rule, example, case, (q, k, v)))


def _steps(rule: Rule, example: Example, case: Case, qkv: tuple[Array, Array, Array]) -> Iterator[Step]:
    (q, k, v), labels = qkv, (example.queries, example.keys)
    yield from _inputs(example, qkv)
    drawn = draw_parameters(case, rule).rule
    for name, array in drawn.items():
        # additive has a parameter v, which is not the values.
        shown = f"{name} of {rule.name}" if name in ("q", "k", "v") else name
        columns = ", in whose formula q and k are columns" if array.ndim > 2 else ""
        yield _of_heads(shown, f"a parameter of {rule.name}{columns}", array)
    own = [of_head(case, rule, drawn, head) for head in range(case.H)]
    rows = np.arange(case.Lq)
    positions = (rows + case.query_offset).astype(np.float64)
    inner = [rule.inner(q[h], k[h], own[h], positions) for h in range(case.H)] if rule.inner else [{}]
    for name in inner[0]:
        yield _inner(example, case, name, np.stack([np.asarray(one[name]) for one in inner]))
    scores = np.stack([scores_of(rule, q[h], k[h], own[h], positions, case.Lk) for h in range(case.H)])
    text = rule.formula + "".join(
        f", but here {_constant_words(name, value)}" for name, value in case.constants
    )
    if case.H == 1:
        text += "".join(f"; {same} = {name}" for name, same in _unprojected(example).items() if same != name)
    if len(example.sources[1][1]) > k.shape[1]:
        text += f"; k has only the first {case.Lq} rows, a key for each query"
    yield _of_heads(SCORES, text, scores, *labels)
    added, keep = added_rows(case, rows), keep_rows(case, rows)
    if not case.mask.is_none:
        if added is not None:
            yield _of_heads("mask", f"what {mask_text(case.mask)} adds", added[0], *labels)
        scores = scores if added is None else scores + added[0]
        scores = scores if keep is None else np.where(keep[0], scores, -np.inf)
        how = "-inf drops a key" if added is None else "its numbers are added, -inf drops a key"
        if np.isfinite(scores).all():
            hints = [word.hint for word in case.mask.words if word.hint]
            how = "; ".join([how, "none is dropped here", *hints])
        yield _of_heads(MASKED, f"mask {mask_text(case.mask)}: {how}", scores, *labels)
    sinks = [None if rule.sink is None else rule.sink(parameters) for parameters in own]
    weights = np.stack([softmax(scores[h], sinks[h]) for h in range(case.H)])
    over = ""
    if rule.sink is not None:
        told = ", ".join(f"{sink:.4g}" for sink in sinks)
        over = f" and a sink of {told}, whose e^sink the sum has too: what a row lacks to 1 is its share"
    empty = "; 0 where a row keeps no key" if np.isneginf(scores).all(axis=-1).any() else ""
    text = f"softmax over the keys of each row{over}{empty}; queries down, keys across"
    yield _of_heads(WEIGHTS, text, weights, *labels, drawn="shades")
    yield from _outputs(rule, example, weights, q, v)
    if "W_O" in example.matrices and case.H > 1:
        yield from _fused_steps(example)


def _constant_words(name: str, value: float) -> str:
    """Say a constant; the scale of a case stands in place of the formula's own."""
    return f"{value:g} in place of 1/√D" if name == "scale" else f"{name} = {value:g}"


def _outputs(rule: Rule, example: Example, weights: Array, q: Array, v: Array) -> Iterator[Step]:
    """Yield dropout, the sums of values, and the product with W_O."""
    labels, output = (example.queries, example.keys), "Z" if "W_O" in example.matrices else OUTPUT
    name = WEIGHTS
    if example.dropout:
        p = example.dropout
        kept = stream(example.seed, "dropout").random(weights.shape) >= p
        yield _of_heads("kept", f"0 with probability {p:g}, drawn from the seed; else 1", kept * 1.0, *labels)
        name, weights = "weights after dropout", kept * weights / (1 - p)
        text = f"weights · kept / (1 − {p:g}): the division keeps the mean over many draws"
        yield _of_heads(name, text, weights, *labels, drawn="shades")
    yield from _summed(example, name, weights, v, output)
    if example.rounded is not None and rule.name == example.rule:
        text = "weights as the tutorial rounds them by hand, so that the output has other digits"
        yield Step("rounded weights", text, example.rounded, *labels)
        yield from _summed(example, "rounded weights", example.rounded[None], v, f"rounded {output}")
    merged = _merged(weights @ v)
    if len(v) > 1:
        yield Step("Concat", f"{output} of all heads, side by side in each row", merged, example.queries)
        output = "Concat"
    if "W_O" in example.matrices:
        yield from _projected(example, _merged(q), merged, output)


def _inner(example: Example, case: Case, name: str, values: Array) -> Step:
    """Return a part of the scores (H, Lq or 1, Lk or 1, any); raises ValueError for another shape."""
    H, Lq, Lk, features = values.shape
    np.broadcast_to(values, (H, case.Lq, case.Lk, features))
    if case.Lq == case.Lk == 1:
        return _of_heads(name, "of the only token", values[:, 0], example.queries)
    if (Lq, Lk) == (case.Lq, 1):
        return _of_heads(name, "of each query", values[:, :, 0], example.queries)
    if Lq == 1:
        return _of_heads(name, "of each key", values[:, 0], example.keys[:Lk])
    if features == 1:
        return _of_heads(name, "of each query and key", values[..., 0], example.queries, example.keys[:Lk])
    return _of_pairs(example, name, "of each query and key, a block for each query", values)


def _of_pairs(example: Example, name: str, text: str, values: Array) -> Step:
    """Return (H, Lq, Lk, any) as a step with a block for each query."""
    heads = [f"{head}, " for head in numbered("head ", len(values))] if len(values) > 1 else [""]
    blocks = tuple(head + query for head in heads for query in example.queries)
    return Step(name, text, values.reshape(-1, *values.shape[2:]), example.keys, blocks=blocks)


def _of_heads(
    name: str, text: str, values: Array, rows: tuple[str, ...] = (), columns: tuple[str, ...] = (),
    drawn: Drawn = "numbers",
) -> Step:  # fmt: skip
    """Return a step of all heads (H, ...) side by side; one head has no axis of heads."""
    blocks = numbered("head ", len(values)) if len(values) > 1 else ()
    return Step(name, text, values if blocks else values[0], rows, columns, blocks, drawn)


def _merged(heads: Array) -> Array:
    """Return (H, L, D) as (L, H * D): the heads side by side."""
    return heads.swapaxes(0, 1).reshape(heads.shape[1], -1)


def _unprojected(example: Example) -> dict[str, str]:
    """Return by the name of a source which of q, k and v it serves as it is: ``q = k = v``."""
    letters: dict[str, str] = {}
    for letter, (name, _) in zip("qkv", example.sources, strict=True):
        if f"W_{letter}" not in example.matrices:
            letters[name] = f"{letters[name]} = {letter}" if name in letters else letter
    return letters


def _inputs(example: Example, qkv: tuple[Array, Array, Array]) -> Iterator[Step]:
    """Yield each source once, then q, k and v where they are not a source itself."""
    several, same = example.heads > 1, _unprojected(example)
    labels = {}
    for name, rows in dict(example.sources).items():
        own = example.queries if name == example.sources[0][0] else example.keys
        # Of paired keys there may be more than values.
        labels[name] = own[: len(rows)] if len(rows) <= len(own) else numbered(name, len(rows))
        if not several or name in "XY":
            yield Step(name, _SOURCES[name], rows, labels[name])
        if several and name in same:
            heads = qkv["qkv".index(same[name][-1])]
            yield _of_heads(same[name], f"columns of {name}, cut into heads", heads, labels[name])
    for letter, (name, _), heads in zip("qkv", example.sources, qkv, strict=True):
        for kind, text in (("W", f"{name} is multiplied by it"), ("b", "added to each row")):
            matrix = example.matrices.get(f"{kind}_{letter}")
            if matrix is not None:
                yield _of_heads(f"{kind}_{letter}", text, cut(matrix, len(heads)))
        if f"W_{letter}" in example.matrices:
            text = f"{name} @ W_{letter}{_plus(example, letter)}"
            yield _of_heads(letter, text, heads, labels[name][: heads.shape[1]])


def _plus(example: Example, letter: str) -> str:
    return f" + b_{letter}" if f"b_{letter}" in example.matrices else ""


def _summed(example: Example, name: str, weights: Array, v: Array, output: str) -> Iterator[Step]:
    """Yield the sums of values, after each key's weighted value where the example shows them."""
    if example.weighted:
        text = f"{name} · v, a block for each query; {output} is the sum of its rows"
        shown = name.replace("weights", "weighted values")
        yield _of_pairs(example, shown, text, weights[..., None] * v[:, None])
    yield _of_heads(output, f"{name} @ v", weights @ v, example.queries)


def _projected(example: Example, queries: Array, merged: Array, source: str) -> Iterator[Step]:
    """Yield the product with W_O. A combine layer joins the queries to what is multiplied."""
    matrix = example.matrices["W_O"]
    if len(matrix) != merged.shape[1]:
        merged, source = np.concatenate([queries, merged], axis=-1), f"[q ; {source}]"
    yield Step("W_O", f"{source} is multiplied by it", matrix)
    out = merged @ matrix
    if "b_O" in example.matrices:
        yield Step("b_O", "added to each row", example.matrices["b_O"])
        out = out + example.matrices["b_O"]
    yield Step(OUTPUT, f"{source} @ W_O{_plus(example, 'O')}", out, example.queries)


def _fused_steps(example: Example) -> Iterator[Step]:
    """Yield q from the fused matrix, as libraries compute it, with the view and the transpose."""
    (name, rows), matrix = example.sources[0], example.matrices["W_q"]
    yield Step("fused W_q", "W_q of all heads side by side, as libraries store it", matrix)
    bias = example.matrices.get("b_q")
    if bias is not None:
        yield Step("fused b_q", "b_q of all heads side by side", bias.reshape(1, -1))
    fused = rows @ matrix + (0.0 if bias is None else bias)
    text = f"{name} @ fused W_q{'' if bias is None else ' + fused b_q'}: one product for all heads"
    yield Step("fused q", text, fused, example.queries)
    view = fused.reshape(len(rows), example.heads, -1)
    text = "fused q.view(L, H, D): each row is cut into heads; no number moves"
    yield Step("view", text, view, numbered("head ", example.heads), blocks=example.queries)
    why = "q of the separate matrices again, since each column of a product needs one column of W only"
    yield _of_heads("transpose", f"view.transpose(0, 1): {why}", view.swapaxes(0, 1), example.queries)


def guarded(entry: Entry[Rule], function: Callable[..., T], *arguments: Any) -> T:
    """Call a function that calls functions of a rule.

    Raises:
        PluginFailed: the rule raised or returned something wrong; the sentence names its plugin.
        AttnbenchError: what the function raises on purpose.
    """
    try:
        return call(function, *arguments)
    except Raised as failure:
        cause = failure.__cause__
        if isinstance(cause, AttnbenchError) and not isinstance(cause, PluginFailed):
            raise cause from None
        reason = cause if isinstance(cause, PluginFailed) else f"the rule {entry.name} raised {failure}"
        raise PluginFailed(f"plugin {entry.source}: {reason}") from failure
