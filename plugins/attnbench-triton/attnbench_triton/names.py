"""Names of compiled kernels that tell the blocks they compute with: traces and records show them."""

from collections.abc import Callable
from typing import Any


def named(name: str) -> Callable[[Any], str]:
    """Make the function that Triton asks for a kernel's name, as in ``triton_forward_128x64_8w_3s``.

    The numbers are rows of queries and of keys in a block, warps, and stages of the pipeline.
    """

    def name_of(specialization: Any) -> str:
        chosen = specialization.constants
        return "{}_{M}x{N}_{WARPS}w_{STAGES}s".format(name, **chosen)

    return name_of
