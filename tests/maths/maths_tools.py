"""What the tests of the maths share: all rules, drawn and widened inputs, tensors, small cases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from hypothesis import strategies as st

from attnbench.inputs.draw import Parameters, draw_activations, draw_inputs, draw_parameters, widen, widened
from attnbench.rules import attnbench_rules
from attnbench.types.backend import Setup
from attnbench.types.case import Case, Layer
from attnbench.types.mask import Mask
from attnbench.worker.outputs import to_tensors

RULES = {rule.name: rule for rule in attnbench_rules() if rule.kind == "scores"}

torch.set_num_threads(1)


def small_case(rule: str = "scaled_dot", **fields: object) -> Case:
    """B2 H4 Hkv2 Lq5 Lk7 D6 Dv3 float32, unless told otherwise."""
    sizes = {"B": 2, "H": 4, "Hkv": 2, "Lq": 5, "Lk": 7, "D": 6, "Dv": 3}
    operation = "multihead" if fields.get("layer") is not None else "attention"
    return Case(operation, rule, **(sizes | fields))


def wide_parameters(case: Case) -> Parameters:
    return widened(draw_parameters(case, RULES[case.rule]), case)


def wide_activations(case: Case, index: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    a, b, c = draw_activations(case, RULES[case.rule], case.seed, index)
    return widen(a, case.dtype), widen(b, case.dtype), widen(c, case.dtype)


def tensors(case: Case, entropy: int = 1) -> tuple[torch.Tensor, ...]:
    """Drawn inputs; a source that serves twice is one tensor."""
    drawn = draw_inputs(case, RULES[case.rule], entropy, 0)
    return tuple(to_tensors(drawn, case).values())


def tensor(stored: np.ndarray, dtype: str) -> torch.Tensor:
    """A storage array as a tensor with the same bits."""
    plain = torch.from_numpy(np.array(stored))
    return plain.view(torch.bfloat16) if dtype == "bfloat16" else plain


def stored_bits(output: torch.Tensor) -> np.ndarray:
    """A tensor as a storage array with the same bits."""
    plain = output.detach().contiguous()
    return plain.view(torch.uint16).numpy() if plain.dtype == torch.bfloat16 else plain.numpy()


def setup_of(case: Case) -> Setup:
    rule = RULES[case.rule]
    drawn = draw_parameters(case, rule)
    own = {name: tensor(array, case.dtype) for name, array in drawn.rule.items()}
    projections = {name: tensor(array, case.dtype) for name, array in drawn.projections.items()}
    return Setup(case, rule, rule.bind(case, own), own, projections)


@st.composite
def masks(draw: st.DrawFn, B: int, Lk: int) -> Mask:
    lengths = st.tuples(*[st.integers(0, Lk)] * B)
    explicit = draw(st.sampled_from([None, "bool", "float"]))
    return Mask(
        causal=draw(st.sampled_from([None, "upper_left", "lower_right"])),
        window=draw(st.none() | st.integers(1, Lk + 2)),
        padding=draw(st.none() | st.just("seeded") | lengths),
        explicit=explicit,
        per_head=explicit is not None and draw(st.booleans()),
    )


@st.composite
def small_cases(draw: st.DrawFn, multihead: bool = True, largest: int = 8, **fields: object) -> Case:
    """Tiny cases of every rule, mask, grouping and layer."""
    B, Hkv = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    Lq, Lk = draw(st.integers(1, largest)), draw(st.integers(1, largest))
    # Of any rule: one that lacks a constant ignores it.
    constants = {"c": (1, 60), "scale": (0.05, 1), "sink": (-3, 5), "slope": (0, 2)}
    chosen = sorted(draw(st.sets(st.sampled_from(sorted(constants)))))
    layers = st.none() | st.builds(Layer, st.integers(1, 5), st.booleans(), st.booleans(), st.booleans())
    case = small_case(
        rule=draw(st.sampled_from(sorted(RULES))),
        B=B,
        H=Hkv * draw(st.integers(1, 3)),
        Hkv=Hkv,
        Lq=Lq,
        Lk=Lk,
        D=draw(st.integers(1, 6)),
        Dv=draw(st.integers(1, 6)),
        layer=draw(layers) if multihead else None,
        mask=draw(masks(B, Lk)),
        seed=draw(st.integers(0, 2**40)),
        constants=tuple((name, draw(st.floats(*constants[name]))) for name in chosen),
    )
    return replace(case, **fields)
