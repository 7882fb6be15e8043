"""Lessons of recurrences: a state in place of a cache, and what the delta rule corrects in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from attnbench.explained.examples import numbered
from attnbench.explained.steps import Step
from attnbench.types.rule import Rule

RuleOf = Callable[[str], Rule]

WORDS = ("the", "cat", "sat", "down")


def linear(_: RuleOf, seed: int) -> Iterator[Step]:
    """Yield linear attention twice: as weights without a softmax, and as a state that each token adds to."""
    rng = np.random.default_rng([seed, 2])
    q, k, v = (rng.integers(-2, 3, (4, 3)) * 1.0 for _ in range(3))
    for name, rows in (("q", q), ("k", k), ("v", v)):
        yield Step(name, "a row for each token, the same as in the lesson kv_cache", rows, WORDS)
    weights = np.where(np.tri(4, dtype=bool), q @ k.T / np.sqrt(3), 0)
    text = (
        "q·k / √3 of the token and those before, 0 for those after. No softmax follows, so they may be "
        "negative, and need not sum to 1; nor has q or k been made positive by a function, as some papers do"
    )
    yield Step("weights", text, weights, WORDS, WORDS)
    yield Step("weights @ v", "the output; it takes all keys and values so far", weights @ v, WORDS)
    states = np.cumsum(k[:, :, None] * v[:, None], axis=0)
    after = tuple(f"after {word}" for word in WORDS)
    text = "S: the sum of k vᵀ so far, a row for each feature of k; it does not grow with the tokens"
    yield Step("state", text, states, numbered("k feature ", 3), numbered("v feature ", 3), after)
    read = np.einsum("id,ide->ie", q, states) / np.sqrt(3)
    yield Step("qᵀS / √3", "each token reads the state with its query: the same output", read, WORDS)
    lengths = (16, 1024, 65536)
    kept = np.array([[2.0 * 128 * length, 128.0 * 128] for length in lengths])
    text = (
        "numbers that a head of 128 features keeps; with softmax there is no such state, since no finite "
        "number of features of q and of k has the product e^(q·k)"
    )
    yield Step("kept", text, kept, tuple(f"{n} tokens" for n in lengths), ("cache", "state"))


def delta(_: RuleOf, seed: int) -> Iterator[Step]:
    """Yield a key that comes twice: a sum keeps both values, the delta rule the newer one."""
    k = np.array([[1.0, 0], [0, 1], [1, 0]])
    v = np.array([[4.0, 2], [1, 5], [-2, 6]])
    words = ("cat: small", "dog: old", "cat: black")
    yield Step("k", "of length 1; the third token has the key of the first", k, words)
    yield Step("v", "what is to be found by the key", v, words)
    summed = np.cumsum(k[:, :, None] * v[:, None], axis=0)
    features, after = (numbered("k feature ", 2), numbered("v feature ", 2)), numbered("after token ", 3)
    yield Step("state, linear", "the sum of k vᵀ", summed, *features, after)
    text = "Sᵀk after the last token: both values of the key at once"
    yield Step("read with the third key", text, (k[2] @ summed[2])[None], ("linear",))
    state = np.zeros((2, 2))
    known, states = [], []
    for key, value in zip(k, v, strict=True):
        known.append(key @ state)
        state = state + np.outer(key, value - known[-1])
        states.append(state)
    yield Step("Sᵀk", "what the state has for each key before its token", np.array(known), words)
    yield Step("v - Sᵀk", "what is new: this alone is added", v - np.array(known), words)
    text = "S + beta k (v - Sᵀk)ᵀ with beta = 1"
    yield Step("state, delta", text, np.array(states), *features, after)
    yield Step("read with the third key", "the newer value", (k[2] @ state)[None], ("delta",))
    betas = (0.0, 0.5, 1.0)
    text = "Sᵀk of the third key if the third token has another beta: a share of the way to its value"
    before = k[2] @ states[1]
    mixed = np.array([before + beta * (v[2] - before) for beta in betas])
    yield Step("beta", text, mixed, tuple(f"beta = {beta:g}" for beta in betas))
    faded = np.array([np.exp(g) * before for g in (0.0, -0.5, -3.0)])
    text = "the rule gated_delta multiplies the state by e^g first, here what is left of the value before"
    yield Step("decay", text, faded, ("g = 0", "g = -0.5", "g = -3"))
