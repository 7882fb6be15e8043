"""Codes with scales in tensors of their own: a number is its code times the scale that it shares.

The codes of k and v have their shapes; ``k_scale`` and ``v_scale`` are float32, in the shape of the grain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from attnbench.types.encoding import Encoding, grain_of
from attnbench.types.operation import Kind, TensorSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from attnbench.types.case import Case

    Specs = tuple[TensorSpec, ...]
    Wide = NDArray[np.float64]

SHARED = {"head": (2, 3)}
"""The axes of (B, Hkv, L, D) over which numbers share a scale, by grain."""


def scale_spec(case: Case, spec: TensorSpec) -> TensorSpec:
    """Return the scales of a tensor: its axes without those that share one."""
    kept = [axis for axis in range(4) if axis not in SHARED[grain_of(case)]]
    return TensorSpec(
        f"{spec.name}_scale",
        tuple(spec.shape[axis] for axis in kept),
        "float32",
        axes="".join(spec.axes[axis] for axis in kept),
    )


def scales(case: Case, numbers: Wide, largest_code: float) -> NDArray[np.float32]:
    """Return float32 scales with which the largest magnitude of each group has the largest code.

    A group of zeros has the scale 1. The shared axes are there, with the size 1.
    """
    import numpy as np

    largest = np.abs(numbers).max(axis=SHARED[grain_of(case)], keepdims=True, initial=0.0)
    return np.where(largest == 0, 1, largest / largest_code).astype(np.float32)


@dataclass(frozen=True)
class Code:
    """A code of one number. The functions are of whole arrays."""

    kind: Kind
    largest: float
    """The largest number that a code stands for, as is the smallest with a minus."""
    write: Callable[[Wide], NDArray[Any]]
    """The nearest codes of numbers between these two."""
    read: Callable[[NDArray[Any]], Wide]


def encoding(name: str, summary: str, code: Code) -> Encoding:
    """Make an encoding of a code."""

    def tensors(case: Case, specs: Specs) -> Specs:
        codes = tuple(replace(spec, kind=code.kind) for spec in specs)
        return (*codes, *(scale_spec(case, spec) for spec in specs))

    def encode(case: Case, specs: Specs, numbers: Sequence[Wide]) -> Sequence[Any]:
        import numpy as np

        shared = [scales(case, array, code.largest) for array in numbers]
        codes = [
            code.write(np.clip(array / scale.astype(np.float64), -code.largest, code.largest))
            for array, scale in zip(numbers, shared, strict=True)
        ]
        shapes = [scale_spec(case, spec).shape for spec in specs]
        return [*codes, *(scale.reshape(shape) for scale, shape in zip(shared, shapes, strict=True))]

    def decode(case: Case, specs: Specs, stored: Sequence[Any]) -> Sequence[Any]:
        import numpy as np

        codes, shared = stored[: len(specs)], stored[len(specs) :]
        axes = SHARED[grain_of(case)]
        return [
            code.read(array) * np.expand_dims(scale.astype(np.float64), axes)
            for array, scale in zip(codes, shared, strict=True)
        ]

    return Encoding(name, summary, tensors, encode, decode, tuple(SHARED), baseline="dequantise_sdpa")


def _write_int8(numbers: Wide) -> NDArray[Any]:
    import numpy as np

    return np.rint(numbers).astype(np.int8)


def _read_int8(codes: NDArray[Any]) -> Wide:
    wide: Wide = codes.astype(float)
    return wide


INT8 = encoding(
    "int8", "int8 codes from -127 to 127, float32 scales", Code("int8", 127.0, _write_int8, _read_int8)
)
