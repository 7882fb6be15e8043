"""The zoo: backends that are known to be wrong, each in its way, and right ones that are written differently.

A plugin that only the self-test loads. Importing it imports no torch. Wrong animals are mistakes that kernels
really have, or tricks by which a benchmark can be fooled; what they have to be asked for their mistake to
show is said by :class:`~attnbench.selftest.zoo.animal.Animal`.
"""

from __future__ import annotations

from collections.abc import Iterator

from attnbench.hookspecs import hookimpl
from attnbench.selftest.zoo import (
    right_blocks,
    right_layouts,
    right_orders,
    wrong_answers,
    wrong_caches,
    wrong_gradients,
    wrong_heads,
    wrong_inputs,
    wrong_layer,
    wrong_masks,
    wrong_outputs,
    wrong_precision,
    wrong_rules,
    wrong_scores,
    wrong_softmax,
    wrong_tails,
    wrong_turns,
    wrong_world,
)
from attnbench.selftest.zoo.animal import Animal, backend_of
from attnbench.types.backend import Backend

ANIMALS: tuple[Animal, ...] = (
    *right_orders.ANIMALS,
    *right_blocks.ANIMALS,
    *right_layouts.ANIMALS,
    *wrong_scores.ANIMALS,
    *wrong_softmax.ANIMALS,
    *wrong_masks.ANIMALS,
    *wrong_heads.ANIMALS,
    *wrong_tails.ANIMALS,
    *wrong_precision.ANIMALS,
    *wrong_rules.ANIMALS,
    *wrong_layer.ANIMALS,
    *wrong_answers.ANIMALS,
    *wrong_caches.ANIMALS,
    *wrong_turns.ANIMALS,
    *wrong_outputs.ANIMALS,
    *wrong_inputs.ANIMALS,
    *wrong_world.ANIMALS,
    *wrong_gradients.ANIMALS,
)
"""Right ones first."""


@hookimpl
def attnbench_backends() -> Iterator[Backend]:
    """All animals, named by what they are."""
    for animal in ANIMALS:
        yield backend_of(animal)
