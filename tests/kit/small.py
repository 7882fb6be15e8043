"""Small cases for the kit, and a softmax in float64 over Python's own numbers."""

from __future__ import annotations

from math import exp, inf

import torch
from hypothesis import strategies as st

from attnbench.types.case import Case
from attnbench.types.mask import Mask

torch.set_num_threads(1)

MASKS = st.builds(
    Mask,
    causal=st.sampled_from([None, "upper_left", "lower_right"]),
    window=st.none() | st.integers(1, 4),
    explicit=st.sampled_from([None, "bool", "float"]),
)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Cases of up to 6 queries and keys, of every grouping and mask, padding to nothing included."""
    B, Hkv, Lk = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 6))
    mask = draw(MASKS)
    padding = draw(st.none() | st.tuples(*[st.integers(0, Lk)] * B))
    made: dict[str, object] = {
        "operation": "attention",
        "rule": "dot",
        "B": B,
        "H": Hkv * draw(st.integers(1, 3)),
        "Hkv": Hkv,
        "Lq": draw(st.integers(1, 6)),
        "Lk": Lk,
        "D": draw(st.integers(1, 4)),
        "Dv": draw(st.integers(1, 4)),
        "mask": Mask(mask.causal, mask.window, padding, mask.explicit),
        "dtype": "float64",
        "seed": draw(st.integers(0, 9)),
    }
    return Case(**made)  # type: ignore[arg-type]


def weights_of_row(scores: list[float], sink: float | None = None) -> list[float]:
    """Softmax over the scores that aren't -inf and the sink; zeros where there is nothing."""
    logits = scores if sink is None else [*scores, sink]
    largest = max(logits)
    if largest == -inf:
        return [0.0] * len(scores)
    powers = [exp(score - largest) for score in logits]
    return [power / sum(powers) for power in powers[: len(scores)]]


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
