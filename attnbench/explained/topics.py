"""The steps of a topic: of a rule on its example or on tokens of one's own, of an example, or of a lesson."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from attnbench.cases.ids import parse_rule, rule_word
from attnbench.explained.attention import explain, guarded
from attnbench.explained.examples import EXAMPLES, Example, example_for, with_layer
from attnbench.explained.lessons import LESSONS
from attnbench.explained.shown import Explained
from attnbench.plugins.registry import Registry
from attnbench.types.errors import BadInput
from attnbench.types.mask import Mask
from attnbench.types.words import unknown_name


def explained(
    registry: Registry,
    topic: str,
    own: Callable[[int], Example] | None = None,
    *,
    rule: str | None = None,
    example: str | None = None,
    heads: int | None = None,
    mask: Mask | None = None,
    dropout: float | None = None,
    weighted: bool = False,
    seed: int = 0,
    typed: Mapping[str, str] = MappingProxyType({}),
) -> Explained:
    """Compute the steps of a topic; "" is the rule or the example alone.

    own: makes inputs of the user's own tokens, cut into so many heads. typed: the names by which the user
    gave options, for messages: ``tokens`` for ``own``, and the others where they are not called as here. The
    others are the options of ``attnbench explain``.

    Raises:
        BadInput: the topic is unknown, or the inputs don't fit it.
    """
    word, constants = parse_rule(topic)
    if word in LESSONS and word not in registry.scoring_rules:
        given = {
            "constants": constants, "rule": rule, "example": example, "tokens": own, "heads": heads,
            "mask": mask, "dropout": dropout, "weighted": weighted,
        }  # fmt: skip
        if others := [name for name, value in given.items() if value]:
            raise BadInput(f"{word} has its own numbers: leave out {_as_typed(others, typed)}")
        summary, lesson = LESSONS[word]
        return Explained(f"{word}: {summary}", tuple(lesson(registry.rule, seed)))
    layer = word == "multihead" and word not in registry.scoring_rules
    if rule:
        rule, constants = parse_rule(rule)
    if word in registry.scoring_rules:
        if rule is not None:
            raise BadInput(f"the rule {rule} for {word}, which is a rule already: give one of them")
        rule = word
    elif word and word not in EXAMPLES:
        raise BadInput(unknown_topic(word, registry))
    elif word and own is None and example is None:
        example = word
    elif word and not layer:
        given = {"tokens": own, "example": example}
        others = [name for name, value in given.items() if value is not None]
        raise BadInput(f"{word} is an example: leave out {_as_typed(others, typed)}")
    if own is not None and example is not None:
        raise BadInput(f"the example {example} has its own inputs: leave out {_as_typed(['tokens'], typed)}")
    inputs = _inputs(own, rule, example, heads, layer=layer)
    rule = rule or inputs.rule or "scaled_dot"
    inputs = replace(
        inputs, seed=seed, mask=inputs.mask if mask is None else mask, weighted=weighted or inputs.weighted,
        dropout=inputs.dropout if dropout is None else dropout, constants=constants,
    )  # fmt: skip
    record = registry.rule(rule)
    if layer:
        inputs = with_layer(inputs, record)
    steps = guarded(registry.rules[rule], explain, record, inputs)
    return Explained(f"{rule_word(rule, dict(constants))} on {inputs.summary}", steps, rule)


def _as_typed(names: Iterable[str], typed: Mapping[str, str]) -> str:
    return " and ".join(typed.get(name, name) for name in names)


def _inputs(
    own: Callable[[int], Example] | None,
    rule: str | None,
    example: str | None,
    heads: int | None,
    *,
    layer: bool,
) -> Example:
    """Return a user's tokens, or those of an example; a layer has two heads unless its matrices say more."""
    if own is not None:
        return own(heads or (2 if layer else 1))
    if example is not None and example not in EXAMPLES:
        raise BadInput(unknown_name("example", example, EXAMPLES))
    example = example or example_for(rule or "")
    inputs = EXAMPLES[example]
    if heads and inputs.matrices and heads != inputs.heads:
        raise BadInput(f"the example {example} can't be cut into {heads} heads: give tokens, or another")
    cut = heads or (2 if layer and not inputs.matrices else inputs.heads)
    return replace(inputs, heads=cut, summary=f"the example {example}: {inputs.summary}")


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
    if (described := _described(words, known)) and len(described) <= _MOST_DESCRIBED:
        return f"no topic {word!r}: look at {' or '.join(described)}"
    return unknown_name("topic", word, known)


_LEAST_LETTERS, _MOST_DESCRIBED = 4, 3
"""Shorter words, and those of more topics, tell nothing."""


def _described(words: Sequence[str], known: Mapping[str, tuple[str, str]]) -> list[str]:
    """Return the topics whose summary has a word, or all of several; plurals count as the same word."""

    def stems(text: str) -> set[str]:
        found = re.findall(r"[a-z]+", text.lower())
        return {one.removesuffix("s") for one in found if len(one) >= _LEAST_LETTERS}

    asked = stems(" ".join(words))
    return [name for name, (_, summary) in known.items() if asked and asked <= stems(summary)]
