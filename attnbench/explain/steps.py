"""A rule step by step: every array from queries and keys to the output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from attnbench.explain.examples import Example
from attnbench.inputs.draw import draw_parameters
from attnbench.masks import added_rows, keep_rows
from attnbench.oracle.solve import softmax
from attnbench.plugins.calling import Raised, call
from attnbench.plugins.registry import Entry
from attnbench.types.case import Case
from attnbench.types.errors import AttnbenchError, BadInput, PluginFailed
from attnbench.types.mask import mask_text
from attnbench.types.rule import Rule
from attnbench.types.words import count_of

if TYPE_CHECKING:
    from attnbench.types.rule import Array

T = TypeVar("T")

SCORES, MASKED, WEIGHTS, OUTPUT = "scores", "masked scores", "weights", "output"


@dataclass(frozen=True)
class Step:
    """One array of the computation.

    name: as in formulas. text: how it is made. values: any number of axes. rows, columns: labels; () for
    none. head: the head it belongs to; None where all heads share it.
    """

    name: str
    text: str
    values: Array
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    head: int | None = None


def case_of(rule: Rule, example: Example) -> Case:
    """Return the case of an example.

    Raises:
        BadCase: it can't exist, for example because the mask does not fit.
    """
    (H, Lq, D), (_, Lk, Dv) = example.q.shape, example.v.shape
    return Case(
        "attention", rule.name, 1, H, H, Lq, Lk, D, Dv,
        mask=example.mask, dtype="float64", seed=example.seed,
    )  # fmt: skip


def explain(rule: Rule, example: Example) -> tuple[Step, ...]:
    """Compute every step of a rule, head by head.

    Raises:
        BadInput: the rule does not support such inputs.
    """
    case, keys = case_of(rule, example), example.k.shape[1]
    if rule.pairs_keys and keys != case.Lq:
        raise BadInput(f"{rule.name} needs a key for each query: {case.Lq} queries, {count_of(keys, 'key')}")
    if not rule.pairs_keys and keys != case.Lk:
        raise BadInput(f"{rule.name} needs a key for each value: {count_of(keys, 'key')}, {case.Lk} values")
    reason = rule.supports(case)
    if reason is not None:
        raise BadInput(f"{rule.name} does not support these inputs: {reason}")
    drawn = draw_parameters(case, rule).rule
    steps = []
    if example.tokens is not None:
        steps.append(Step("X", "the tokens, one per row", example.tokens, example.queries))
    steps += [Step(name, "tokens are multiplied by it", matrix) for name, matrix in example.matrices.items()]
    for head in range(case.H):
        parameters = {name: np.asarray(array[head], np.float64) for name, array in drawn.items()}
        steps += _steps_of_head(rule, example, case, parameters, head)
    return tuple(steps)


def scores_of(
    rule: Rule, q: Array, k: Array, parameters: Mapping[str, Array], positions: Array, Lk: int
) -> Array:
    """Compute the scores (R, Lk) of one head by the rule's reference, for q (R, D).

    Raises:
        PluginFailed: the reference returns another shape, NaN or +inf.
    """
    scores = np.asarray(rule.reference(q, k, parameters, positions))
    if scores.shape != (len(q), Lk):
        raise PluginFailed(
            f"the reference of the rule {rule.name} returned scores of shape {scores.shape}; "
            f"{(len(q), Lk)} is needed"
        )
    if np.isnan(scores).any() or np.isposinf(scores).any():
        raise PluginFailed(f"the reference of the rule {rule.name} returned scores that are NaN or infinite")
    return scores


def _steps_of_head(
    rule: Rule, example: Example, case: Case, parameters: Mapping[str, Array], head: int
) -> Iterator[Step]:
    q, k, v = example.q[head], example.k[head], example.v[head]
    queries, keys = example.queries, example.keys
    own_keys = queries if rule.pairs_keys else keys
    for name, array, labels in (("q", q, queries), ("k", k, own_keys), ("v", v, keys)):
        yield Step(name, _source(name, example, head), array, labels, head=head)
    for name, array in parameters.items():
        # additive has a parameter v, which is not the values.
        shown = f"{name} of {rule.name}" if name in ("q", "k", "v") else name
        yield Step(shown, f"a parameter of {rule.name}", array, head=head)
    rows = np.arange(case.Lq)
    positions = (rows + case.query_offset).astype(np.float64)
    scores = scores_of(rule, q, k, parameters, positions, case.Lk)
    yield Step(SCORES, rule.formula, scores, queries, keys, head)
    added, keep = added_rows(case, rows), keep_rows(case, rows)
    if added is not None or keep is not None:
        scores = scores if added is None else scores + added[0, 0]
        scores = scores if keep is None else np.where(keep[0, 0], scores, -np.inf)
        how = "-inf drops a key" if added is None else "its numbers are added, -inf drops a key"
        yield Step(MASKED, f"mask {mask_text(case.mask)}: {how}", scores, queries, keys, head)
    sink = None if rule.sink is None else rule.sink(parameters)
    over = "the keys of each row" if sink is None else f"the keys of each row and a sink of {sink:.4g}"
    weights = softmax(scores, sink)
    empty = "; 0 where a row keeps no key" if np.isneginf(scores).all(axis=1).any() else ""
    yield Step(WEIGHTS, f"softmax over {over}{empty}", weights, queries, keys, head)
    output = weights @ v
    yield Step(OUTPUT, "weights @ v", output, queries, head=head)
    if example.combine is not None:
        yield Step("W_combine", "[q ; output] is multiplied by it", example.combine, head=head)
        combined = np.concatenate([q, output], axis=-1) @ example.combine
        yield Step("combined", "[q ; output] @ W_combine", combined, queries, head=head)


def _source(name: str, example: Example, head: int) -> str:
    """Return in words what q, k or v is made from."""
    if example.tokens is None:
        return {"q": "queries", "k": "keys", "v": "values"}[name] + ", one per row"
    if f"W_{name}" in example.matrices:
        return f"X @ W_{name}"
    heads, D = example.q.shape[0], example.q.shape[2]
    return "X" if heads == 1 else f"columns {head * D + 1} to {(head + 1) * D} of X"


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
