"""The path of a rule from queries and keys to its output, every array of it kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnbench.cases.mask_text import mask_text
from attnbench.inputs.draw import draw_parameters
from attnbench.masks import added_rows, keep_rows
from attnbench.oracle.weights import softmax
from attnbench.types.case import Case
from attnbench.types.errors import BadInput
from attnbench.types.rule import Rule
from attnbench.worked.question import Question

if TYPE_CHECKING:
    from attnbench.types.rule import Array

SCORES, MASKED, WEIGHTS, OUTPUT = "scores", "masked scores", "weights", "output"


@dataclass(frozen=True)
class Step:
    """One array on the way.

    name: as formulas write it. text: how it's made. values: one or two axes. rows, columns: a label for each
    of the array's; () where it has none. head: which head it belongs to; None for what all have in common.
    """

    name: str
    text: str
    values: Array
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    head: int | None = None


def case_of(rule: Rule, question: Question) -> Case:
    """The case that a question is.

    Raises:
        BadCase: it can't exist, as with a mask that doesn't fit.
    """
    (H, Lq, D), (_, Lk, Dv) = question.q.shape, question.v.shape
    return Case(
        "attention", rule.name, 1, H, H, Lq, Lk, D, Dv,
        mask=question.mask, dtype="float64", seed=question.seed,
    )  # fmt: skip


def worked(rule: Rule, question: Question) -> tuple[Step, ...]:
    """Every step of a rule on a question, those of the first head first.

    Raises:
        BadInput: the rule can't work on such inputs; in words.
    """
    case = case_of(rule, question)
    if rule.pairs_keys and question.k.shape[1] != case.Lq:
        raise BadInput(
            f"{rule.name} pairs each query with its own key: {case.Lq} queries, {question.k.shape[1]} keys"
        )
    reason = rule.supports(case)
    if reason is not None:
        raise BadInput(f"{rule.name} can't be worked on this: {reason}")
    parameters = question.parameters
    if parameters is None:
        parameters = draw_parameters(case, rule).rule
    steps = list(_tokens(question))
    for head in range(case.H):
        own = {name: np.asarray(array[head], np.float64) for name, array in parameters.items()}
        steps += _head(rule, question, case, own, head)
    return tuple(steps)


def _tokens(question: Question) -> Iterator[Step]:
    if question.tokens is not None:
        yield Step("X", "the tokens, a row each", question.tokens, question.queries)
    for name, matrix in question.matrices.items():
        yield Step(name, "tokens are multiplied by it", matrix)


def _head(
    rule: Rule, given: Question, case: Case, parameters: Mapping[str, Array], head: int
) -> Iterator[Step]:
    q, k, v = given.q[head], given.k[head], given.v[head]
    queries, keys = given.queries, given.keys
    own_keys = queries if rule.pairs_keys else keys
    for name, array, labels in (("q", q, queries), ("k", k, own_keys), ("v", v, keys)):
        yield Step(name, _made(name, given, head), array, labels, head=head)
    for name, array in parameters.items():
        yield Step(name, f"a parameter of {rule.name}", array, head=head)
    rows = np.arange(case.Lq)
    scores = np.asarray(rule.reference(q, k, parameters, (rows + case.query_offset).astype(np.float64)))
    yield Step(SCORES, rule.formula, scores, queries, keys, head)
    added, keep = added_rows(case, rows), keep_rows(case, rows)
    if added is not None or keep is not None:
        scores = scores if added is None else scores + added[0, 0]
        scores = scores if keep is None else np.where(keep[0, 0], scores, -np.inf)
        yield Step(MASKED, f"mask {mask_text(case.mask)}: -inf is no score", scores, queries, keys, head)
    sink = None if rule.sink is None else rule.sink(parameters)
    over = "the keys of each row" if sink is None else f"the keys of each row and a sink of {sink:.4g}"
    weights = softmax(scores, sink)
    yield Step(WEIGHTS, f"softmax over {over}", weights, queries, keys, head)
    output = weights @ v
    yield Step(OUTPUT, "weights @ v", output, queries, head=head)
    if given.combine is not None:
        combined = np.concatenate([q, output], axis=-1) @ given.combine
        yield Step("combined", "[q ; output] @ a matrix that is drawn", combined, queries, head=head)


def _made(name: str, given: Question, head: int) -> str:
    if given.tokens is None:
        return {"q": "queries", "k": "keys", "v": "values"}[name] + ", a row each"
    if f"W_{name}" in given.matrices:
        return f"X @ W_{name}"
    heads, D = given.q.shape[0], given.q.shape[2]
    return "X" if heads == 1 else f"columns {head * D} to {head * D + D - 1} of X"
