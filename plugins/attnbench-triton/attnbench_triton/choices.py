"""Blocks of the kernels: which are tried, and the fastest of them on the device at hand.

A kernel's name in traces and records tells what was chosen (``names.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnbench.types.case import Case


@dataclass(frozen=True)
class Choice:
    """Rows of queries and of keys in a block, warps of a program, and stages of its pipeline of loads."""

    M: int
    N: int
    warps: int
    stages: int

    @property
    def constants(self) -> dict[str, int]:
        """The kernel's own arguments."""
        return {"M": self.M, "N": self.N, "WARPS": self.warps, "STAGES": self.stages}

    @property
    def options(self) -> dict[str, int]:
        """All arguments of a launch."""
        return self.constants | {"num_warps": self.warps, "num_stages": self.stages}


def choose(kernel, case, programs, given, shapes) -> Choice:
    if kernel.__name__ == "decode_kernel":
        rows = case.group*case.Lq
        return Choice(max(16, 1 << (rows - 1).bit_length()), 32, 4, 1)
    return Choice(32, 32, 4, 1)

def splits(case):
    return min(4, -(-case.Lk//32))
