"""Inputs whose keys and values are encoded: how they are drawn, what is stored, and what that means.

Drawn numbers are rounded to the dtype of the case first, as a program has them that writes a cache. All that
changes inputs acts on these, before they are encoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from attnbench.inputs.draw import Stored, Wide, store, stream, widen, widen_inputs
from attnbench.inputs.kinds import NEAR_DUPLICATE, NORMAL, STRIDED
from attnbench.types.case import Case
from attnbench.types.encoding import encoding_of, is_encoded
from attnbench.types.operation import operation_of
from attnbench.types.problem import encoded_specs, stored_inputs
from attnbench.types.rule import Rule
from attnbench.types.storage import KEYS_OF_RUN

SPREADS = 1.0, 0.5, 0.5
"""Numbers of a head, a token and a channel are larger or smaller by powers of two with these exponents."""
OUTLIERS, LARGER = 16, 8.0
"""In every second draw one in so many channels, at least one, is so many times larger. Evenly drawn numbers
flatter few bits: keys of language models have such channels (Liu and others, KIVI, 2024, figure 2)."""

AMPLIFIED = (NORMAL, NEAR_DUPLICATE, STRIDED)
"""The kinds of inputs whose numbers differ in size so."""


def with_amplitudes(
    case: Case, rule: Rule, inputs: Mapping[str, Stored], entropy: int, index: int
) -> dict[str, Stored]:
    """Return ordinary inputs whose heads, tokens and channels differ in size, as those of caches do.

    So a scale of another head, token, channel or tensor is far from the right one.
    """
    made = amplified(case, rule, inputs, entropy, index)
    return dict(inputs) | {name: store(array, case.dtype) for name, array in made.items()}


def amplified(
    case: Case, rule: Rule, inputs: Mapping[str, Stored], entropy: int, index: int
) -> dict[str, Wide]:
    """Return the keys and values of :func:`with_amplitudes` in float64, before they are rounded."""
    made: dict[str, Wide] = {}
    for spec in encoded_specs(case, rule):
        rng = stream(case, "amplitudes", entropy, index, spec.name)
        spreads = zip(SPREADS, spec.shape[1:], strict=True)
        heads, tokens, channels = (np.exp2(rng.uniform(-most, most, size)) for most, size in spreads)
        if index % 2:
            count = max(1, len(channels) // OUTLIERS)
            channels[rng.choice(len(channels), count, replace=False)] *= LARGER
        if encoding_of(case).runs(case):
            # The largest of 32 tokens is nearly the same in all runs.
            runs = np.exp2(rng.uniform(-1.0, 1.0, -(-len(tokens) // KEYS_OF_RUN)))
            tokens = tokens * np.repeat(runs, KEYS_OF_RUN)[: len(tokens)]
        wide = widen(inputs[spec.name], case.dtype)
        # In place, as in every step here: a long cache takes gigabytes.
        for factors in (heads[:, None, None], tokens[:, None], channels):
            wide *= factors
        made[spec.name] = wide
    return made


def encoded(case: Case, rule: Rule, inputs: Mapping[str, Stored]) -> dict[str, Stored]:
    """Return inputs as the case stores them, in the order of a call, from all in its dtype."""
    specs = encoded_specs(case, rule)
    names = [spec.name for spec in specs]
    numbers = [widen(inputs[name], case.dtype) for name in names]
    coded = iter(encoding_of(case).encode(case, specs, numbers))
    made: dict[str, Stored] = {}
    for spec in stored_inputs(case, rule):
        if spec.name in inputs and spec.name not in names:
            array = inputs[spec.name]
        else:
            array = next(coded)
            array = store(array, case.dtype) if spec.kind == "float" else array
        if array.shape != spec.shape:
            raise ValueError(
                f"the encoding {case.kv} makes {spec.name} of shape {array.shape}, not {spec.shape}"
            )
        made[spec.name] = array
    return made


def meant(
    case: Case, rule: Rule, inputs: Mapping[str, Stored], stored: Mapping[str, Stored] | None = None
) -> dict[str, Any]:
    """Return inputs as an operation's ``solve`` takes them, with keys and values as they are read back.

    inputs: all in the dtype of the case, before they are encoded. stored: as the case stores them, if known.
    """
    if not is_encoded(case):
        return widen_inputs(case, rule, inputs)
    held = operation_of(case).encoded
    others = {name: array for name, array in inputs.items() if name not in held}
    own = stored or encoded(case, rule, inputs)
    return widen_inputs(case, rule, others) | read_back(case, rule, own)


def read_back(case: Case, rule: Rule, stored: Mapping[str, Stored]) -> dict[str, Wide]:
    """Return what stored keys and values mean, by name."""
    specs = encoded_specs(case, rule)
    encoding = encoding_of(case)
    own = [
        widen(stored[spec.name], case.dtype) if spec.kind == "float" else stored[spec.name]
        for spec in encoding.tensors(case, specs)
    ]
    numbers = encoding.decode(case, specs, own)
    return dict(zip((spec.name for spec in specs), numbers, strict=True))
