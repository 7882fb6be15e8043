"""Blocks of the kernels: the candidates, and the fastest of them on the GPU at hand.

A kernel's name in traces and records tells what was chosen (``names.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnbench.types.case import Case

    Programs = Callable[["Choice"], int]


OPTIONS = {"enable_fp_fusion": True}
"""Of all kernels: fused multiply-adds, which Triton will leave out by default from 3.10 on."""


@dataclass(frozen=True)
class Choice:
    """Rows of queries and of keys in a block, warps of a program, and stages of its pipeline of loads."""

    M: int
    N: int
    warps: int
    stages: int

    @property
    def constants(self) -> dict[str, int]:
        """The arguments that a kernel itself takes."""
        return {"M": self.M, "N": self.N, "WARPS": self.warps, "STAGES": self.stages}

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of a launch."""
        return {**self.constants, "num_warps": self.warps, "num_stages": self.stages, **OPTIONS}


HALF = {
    "forward_kernel": {
        64: ((128, 64, 4, 3), (128, 128, 8, 3), (64, 64, 4, 3)),
        128: ((128, 64, 8, 2), (128, 64, 8, 3), (64, 64, 4, 3), (128, 128, 8, 2)),
        256: ((64, 32, 4, 2), (128, 32, 8, 2), (64, 64, 8, 2), (128, 64, 8, 2)),
    },
    "decode_kernel": {
        64: ((16, 64, 4, 3), (16, 128, 4, 3), (16, 64, 2, 3)),
        128: ((16, 64, 4, 2), (16, 64, 4, 3), (16, 32, 4, 3)),
        256: ((16, 32, 4, 2), (16, 32, 4, 3)),
    },
    "queries_kernel": {
        64: ((64, 64, 4, 2), (128, 64, 8, 2), (64, 128, 8, 2)),
        128: ((64, 64, 8, 2), (128, 64, 8, 2), (64, 128, 8, 2)),
        256: ((32, 32, 8, 2), (32, 64, 8, 1)),
    },
    "keys_kernel": {
        64: ((64, 64, 4, 2), (64, 128, 8, 2), (32, 64, 4, 2)),
        128: ((64, 64, 8, 2), (32, 64, 4, 2), (32, 128, 8, 2)),
        256: ((32, 32, 8, 2), (64, 32, 8, 1)),
    },
}
"""In half precision: (M, N, warps, stages) by kernel and by the features that a block holds.

The first ones fit the shared memory of every GPU from compute capability 8.0 on, 99 KiB, and are taken where
tuning would not pay. The others fit 163 KiB as compiled for 8.0, and 227 KiB for 9.0.
``tests/compile_kernels.py`` compiles them all.
"""
SINGLE = {
    "forward_kernel": {64: ((64, 32, 8, 1), (32, 32, 4, 2)), 128: ((32, 32, 8, 1),), 256: ((16, 32, 8, 2),)},
    "decode_kernel": {64: ((16, 32, 4, 2),), 128: ((16, 32, 8, 2),), 256: ((16, 32, 8, 2),)},
    "queries_kernel": {64: ((32, 32, 8, 1),), 128: ((16, 16, 8, 1),), 256: ((16, 16, 8, 1),)},
    "keys_kernel": {64: ((32, 32, 8, 1),), 128: ((16, 32, 8, 1),), 256: ((16, 16, 8, 1),)},
}
"""In float32. Products are computed without tensor cores, and larger blocks would not fit the registers."""
INTERPRETED = Choice(64, 64, 4, 1)
"""Small, so that small cases have several blocks."""

WORTH_TUNING = 1 << 31
"""Multiplications and additions of a forward pass, about 10 µs on a large GPU."""
MOST_QUERIES, MOST_ROWS, MOST_ROWS_SINGLE = 16, 64, 16
"""Of the decoding kernel: queries, and queries of all heads of a group; the last in float32."""
FEWEST_KEYS, MOST_SPLITS = 256, 128
"""Keys of a split of the decoding kernel, and splits of the keys of a head."""


def candidates(kernel: str, case: Case) -> tuple[Choice, ...]:
    """Return the blocks to try for a kernel; the first one is always possible.

    A mask as a table takes as many registers as many features do.
    """
    widest = max(case.D, case.Dv)
    held = 256 if case.mask.needs_table else 64 if widest <= 64 else 128 if widest <= 128 else 256
    listed = (SINGLE if case.dtype == "float32" else HALF)[kernel][held]
    found = [INTERPRETED] if case.device == "cpu" else [Choice(*numbers) for numbers in listed]
    if kernel == "decode_kernel":
        found = [replace(one, M=power_of_2(case.group * case.Lq)) for one in found]
    return tuple(found)


def splits_keys(case: Case) -> bool:
    """Return whether the decoding kernel takes a case: all queries of a group are rows of one block."""
    most = MOST_ROWS_SINGLE if case.dtype == "float32" else MOST_ROWS
    return case.Lq <= MOST_QUERIES and case.group * case.Lq <= most


def choose(
    kernel: Any,
    case: Case,
    programs: Callable[[Choice], int],
    given: Sequence[Any],
    shapes: Mapping[str, Any],
) -> Choice:
    """Return the fastest candidate on these arguments, or the first one where tuning would not pay.

    Triton measures, and keeps its times with the compiled kernels, so that all processes choose alike.
    """
    first, *others = candidates(kernel.__name__, case)
    if not others or case.B * case.H * case.Lq * case.Lk * (case.D + case.Dv) < WORTH_TUNING:
        return first
    import triton

    configs = [
        triton.Config(one.constants, num_warps=one.warps, num_stages=one.stages) for one in (first, *others)
    ]
    # Triton adds the dtypes of tensors.
    key = [name for name, value in zip(kernel.arg_names, given, strict=False) if not hasattr(value, "dtype")]
    tuner = triton.autotune(configs, key=[*key, *shapes], cache_results=True)(kernel)
    tuner[lambda chosen: (programs(Choice(chosen["M"], chosen["N"], 0, 0)),)](*given, **shapes, **OPTIONS)
    best = tuner.best_config
    return Choice(best.kwargs["M"], best.kwargs["N"], best.num_warps, best.num_stages)


def power_of_2(size: int, least: int = 16) -> int:
    """Return the size of a block that holds ``size``: a power of 2, and enough for a matrix product."""
    return max(least, 1 << (size - 1).bit_length())


def splits(case: Case) -> int:
    """Return into how many parts the keys of a head are split, so that programs fill the device twice."""
    before = case.mask.band.before
    seen = case.Lk if before is None else min(case.Lk, 2 * (before + 1) + case.Lq)
    if case.device == "cpu":
        return min(4, -(-seen // INTERPRETED.N))
    wanted = 2 * processors() // (case.B * case.Hkv)
    return max(1, min(wanted, -(-seen // FEWEST_KEYS), MOST_SPLITS))


@cache
def processors() -> int:
    """Return how many multiprocessors the current device has."""
    import torch

    return torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
