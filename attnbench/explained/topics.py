"""The steps of a topic: of a rule on its example or on tokens of one's own, of an example, or of a lesson."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from attnbench.cases.ids import parse_rule, rule_word
from attnbench.explained.attention import explain, guarded
from attnbench.explained.examples import EXAMPLES, Example, example_for, example_of, with_layer
from attnbench.explained.lessons import LESSONS
from attnbench.explained.shown import Explained
from attnbench.plugins.registry import Registry
from attnbench.types.errors import BadInput
from attnbench.types.mask import parse_mask
from attnbench.types.words import unknown_name


def explained(
    registry: Registry,
    topic: str,
    tokens: Any,
    labels: tuple[str, ...],
    heads: int | None,
    mask: str | None,
    seed: int,
) -> Explained:
    """Compute the steps of a topic. The arguments are those of :func:`attnbench.api.explain`.

    Raises:
        BadInput: the topic is unknown, or the inputs don't fit it.
    """
    word, constants = parse_rule(topic)
    if word in LESSONS and word not in registry.scoring_rules:
        if constants or tokens is not None or labels or heads or mask:
            raise BadInput(f"{word} has its own numbers: leave out constants, tokens, labels, heads and mask")
        summary, lesson = LESSONS[word]
        return Explained(f"{word}: {summary}", tuple(lesson(registry.rule, seed)))
    inputs = _inputs(registry, word, tokens, labels, heads)
    rule = word if word in registry.rules else inputs.rule
    mask_of_inputs = inputs.mask if mask is None else parse_mask(mask)
    inputs = replace(inputs, seed=seed, mask=mask_of_inputs, constants=constants)
    if word == "multihead":
        inputs = with_layer(inputs, registry.rule(rule))
    steps = guarded(registry.rules[rule], explain, registry.rule(rule), inputs)
    return Explained(f"{rule_word(rule, dict(constants))} on {inputs.summary}", steps)


_RECURRENT = "which docs/recurrent.md goes on from"
_ALSO = {
    "attention": "scaled_dot", "bahdanau": "additive", "bfloat16": "precision", "cache": "kv_cache",
    "causal": "masks", "cross": "multihead-cross", "decode": "kv_cache", "entropy": "saturation",
    "flash_attention": "flash", "gated": f"linear, {_RECURRENT}", "gated_delta": f"delta, {_RECURRENT}",
    "gated_delta_channels": f"delta, {_RECURRENT}", "gradient": "saturation", "grouped_query": "gqa",
    "head": "multihead", "heads": "multihead", "key": "projections", "kv": "kv_cache",
    "lightning": f"linear, {_RECURRENT}", "luong": "dot or general",
    "mask": "masks", "mha": "multihead", "mqa": "gqa", "online_softmax": "flash",
    "padding": "masks", "position": "rope", "positional": "rope", "positions": "rope", "prefix": "masks",
    "query": "projections", "recurrent": "linear", "rotary": "rope", "rwkv7": f"delta, {_RECURRENT}",
    "selective": f"linear, {_RECURRENT}", "sink": "sinks", "softmax": "scaled_dot or flash",
    "temperature": "saturation", "value": "projections", "window": "masks",
}  # fmt: skip
"""The topics for names by which people look for them: of authors, papers, parts, and rules of recurrences."""


def topics(registry: Registry) -> dict[str, tuple[str, str]]:
    """Return the kind and the summary of every topic."""
    found = {name: ("examples", f"{one.summary} ({one.rule})") for name, one in EXAMPLES.items()}
    found |= {name: ("lessons", summary) for name, (summary, _) in LESSONS.items()}
    rules = {name: ("rules", rule.formula) for name, rule in registry.scoring_rules.items()}
    return rules | {name: topic for name, topic in found.items() if name not in rules}


def unknown_topic(word: str, registry: Registry) -> str:
    """Return a sentence that a topic is unknown, with the one that is meant where that is known."""
    known = topics(registry)
    words = [one.removesuffix("attention") for one in re.split(r"[\s_-]+", word.lower())]
    words = list(filter(None, words)) or ["attention"]
    # The whole name first: grouped query is no query.
    for name in ("_".join(words), *words):
        if name in known or name in _ALSO:
            return f"no topic {word!r}: look at {name if name in known else _ALSO[name]}"
    return unknown_name("topic", word, known)


def _inputs(
    registry: Registry, word: str, tokens: Any, labels: tuple[str, ...], heads: int | None
) -> Example:
    if word not in registry.scoring_rules and word not in EXAMPLES:
        raise BadInput(unknown_topic(word, registry))
    if tokens is not None:
        if word in EXAMPLES and word not in registry.rules:
            raise BadInput(f"{word} is an example with tokens of its own: name a rule to give others")
        return example_of({"X": tokens}, labels=labels, heads=heads or 1, summary="tokens of your own")
    if labels or heads:
        raise BadInput("labels and heads are for tokens of your own: give tokens too")
    example = word if word in EXAMPLES and word not in registry.rules else example_for(word)
    return replace(EXAMPLES[example], summary=f"the example {example}: {EXAMPLES[example].summary}")
