"""Drawing the activations and parameters of a case from seeds.

What is drawn depends on what matters to the values (operation, rule, sizes, layer, dtype and the seed), not
on device, threads, cache mode, pass or mask: backends are compared on the same numbers everywhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnbench.inputs.rounding import Stored, Wide, store, widen
from attnbench.types.case import Case
from attnbench.types.rule import Rule
from attnbench.types.shapes import activation_shapes, output_shape, projection_shapes, rule_parameter_shapes


@dataclass(frozen=True)
class Parameters:
    """What a case has besides its activations: the rule's parameters and ``multihead``'s projections.

    Both by name, in the shapes of :mod:`attnbench.types.shapes`; as storage arrays or widened to float64.
    """

    rule: Mapping[str, NDArray[Any]]
    projections: Mapping[str, NDArray[Any]]


def draw_activations(case: Case, rule: Rule, entropy: int, index: int) -> tuple[Stored, Stored, Stored]:
    """Draw number ``index`` of the case's inputs: q, k, v, or the sources of queries, keys and values.

    Entries of q and k are standard normal, as are those of the sources. v leans on its key, so that however
    many keys there are the output stays away from the mean of the values, and has a mean of its own
    in each head. One source that serves twice (x, or a context) is one array, the same object.

    entropy: seeds them, together with the case's sizes; ``case.seed`` isn't read here.
    """
    shapes = activation_shapes(case, rule)
    a, b, c = (stream(case, "activations", entropy, index, name) for name in ("a", "b", "c"))
    first = a.standard_normal(shapes[0])
    if case.layer is not None:
        x = store(first, case.dtype)
        if case.is_self_attention:
            return x, x, x
        values = store(c.standard_normal(shapes[2]), case.dtype)
        keys = values if shapes[1] == shapes[2] else store(b.standard_normal(shapes[1]), case.dtype)
        return x, keys, values
    k = b.standard_normal(shapes[1])
    v = c.standard_normal(shapes[2])
    if not rule.pairs_keys:
        v = (v + k[..., np.arange(case.Dv) % case.D]) / np.sqrt(2)
    v += head_means(case.Hkv)[:, None, None]
    return store(first, case.dtype), store(k, case.dtype), store(v, case.dtype)


def draw_upstream(case: Case, entropy: int, index: int) -> Stored:
    """The gradient of the output that gradients are made with: standard normal, in the output's shape."""
    values = stream(case, "upstream", entropy, index).standard_normal(output_shape(case))
    return store(values, case.dtype)


def draw_parameters(case: Case, rule: Rule) -> Parameters:
    """The rule's parameters as it initialises them, and projections with variance 1 / (width they read).

    Raises:
        ValueError: the rule draws another shape than it declares.
    """
    drawn: dict[str, Stored] = {}
    shapes = rule_parameter_shapes(case, rule)
    for parameter in rule.parameters(case):
        rng = stream(case, "rule", case.seed, parameter.name)
        values = np.asarray(parameter.draw(rng, case.H, parameter.shape), dtype=np.float64)
        if values.shape != shapes[parameter.name]:
            raise ValueError(
                f"rule {rule.name!r} draws {parameter.name!r} of shape {values.shape}; "
                f"it declares {shapes[parameter.name]}"
            )
        drawn[parameter.name] = store(values, case.dtype)
    projections: dict[str, Stored] = {}
    for name, shape in projection_shapes(case, rule).items():
        values = stream(case, "projection", case.seed, name).standard_normal(shape)
        scale = 0.5 if name.startswith("b_") else shape[-1] ** -0.5
        projections[name] = store(values * scale, case.dtype)
    return Parameters(drawn, projections)


def widened(parameters: Parameters, case: Case) -> Parameters:
    """Drawn parameters in float64, exactly."""
    return Parameters(
        rule={name: widen(array, case.dtype) for name, array in parameters.rule.items()},
        projections={name: widen(array, case.dtype) for name, array in parameters.projections.items()},
    )


def head_means(Hkv: int) -> Wide:
    """The mean of v in each key/value head: even steps from -1/2 to 1/2, 0 where there is one."""
    return np.linspace(-0.5, 0.5, Hkv) if Hkv > 1 else np.zeros(1)


def stream(case: Case, *parts: object) -> np.random.Generator:
    """Random numbers for one purpose, seeded by what matters to the values and by ``parts``."""
    layer = case.layer
    words = (
        *("attnbench inputs 1", case.operation, case.rule),
        *(case.B, case.H, case.Hkv, case.Lq, case.Lk, case.D, case.Dv),
        *(() if layer is None else (layer.E, layer.bias, layer.out, layer.cross)),
        *(case.dtype, *parts),
    )
    digest = hashlib.sha256("\n".join(map(str, words)).encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))
