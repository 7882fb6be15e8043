"""The inputs of the textbook, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from attnbench.types.errors import BadInput
from attnbench.types.mask import Mask
from attnbench.types.words import unknown_name
from attnbench.worked.steps import Question
from attnbench.worked.tokens import question_of


@dataclass(frozen=True)
class Example:
    """Named inputs. rule: the one that the textbook works on them; other rules work too."""

    name: str
    rule: str
    summary: str
    make: Callable[[], Question]


def _self_attention() -> Question:
    return question_of(np.array([[1.0, 3, 2], [1, 1, 3], [1, 2, 1]]))


def _five_tokens() -> Question:
    return question_of(np.array([[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0], [0, 0, 1, 1], [1, 0.5, 0.5, 0]]))


def _projections() -> Question:
    x = np.array([[1.0, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]])
    matrices = {
        "W_q": np.array([[1.0, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]]),
        "W_k": np.array([[0.0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]]),
        "W_v": np.array([[0.0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]]),
    }
    return question_of(x, matrices=matrices)


def _concatenate() -> Question:
    rng = np.random.default_rng(0)
    q, k, v = rng.random((1, 1, 32)), rng.random((1, 1, 32)), rng.random((1, 32, 64))
    combine = rng.standard_normal((96, 64)) / np.sqrt(96)
    return Question(q, k, v, ("q1",), tuple(f"v{i}" for i in range(1, 33)), combine=combine)


def _causal_sentence() -> Question:
    tokens = np.random.default_rng(0).standard_normal((4, 4))
    made = question_of(tokens, labels=("the", "cat", "sat", "down"))
    return replace(made, mask=Mask(causal="upper_left"))


EXAMPLES = {
    example.name: example
    for example in (
        Example("self-attention", "dot", "three tokens of three features", _self_attention),
        Example("five-tokens", "scaled_dot", "five tokens of four features", _five_tokens),
        Example("projections", "dot", "three tokens, times W_q, W_k and W_v first", _projections),
        Example("concatenate", "concat_linear", "one query joined with its key, 32 values", _concatenate),
        Example(
            "causal-sentence", "scaled_dot", "four words, each sees itself and those before", _causal_sentence
        ),
    )
}


def example(name: str) -> Example:
    """Return the example of a name; raises :class:`BadInput` with the nearest name."""
    if name not in EXAMPLES:
        raise BadInput(unknown_name("example", name, EXAMPLES))
    return EXAMPLES[name]


def example_for(rule: str) -> Example:
    """Return the example that the textbook works with a rule; ``five-tokens`` for other rules."""
    return next((e for e in EXAMPLES.values() if e.rule == rule), EXAMPLES["five-tokens"])
