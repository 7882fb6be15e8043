"""kernels_flash_attn3: FlashAttention-3 by Hugging Face's package ``kernels``, from the local cache alone.

Checked against ``kernels.get_kernel`` of 0.17.2 and ``flash_attn_func`` of kernels-community/flash-attn3:
its arguments are those of :mod:`attnbench_cuda.flash_attn_3`.

attnbench uses no network while it runs, and ``get_kernel`` downloads what it doesn't find. With
HF_HUB_OFFLINE=1 in the environment it takes what is in the cache (HF_HOME, or KERNELS_CACHE) and raises
otherwise, so the backend is ``unavailable`` without that word. The versions are major ones, as branches v1
and v2 of the repository.

"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from attnbench_cuda.device import cannot_call, needs_gpu
from attnbench_cuda.flash_attn_3 import ARGUMENTS, FLASH_ATTN_3, attend_by

if TYPE_CHECKING:
    from attnbench.types.backend import Call, Setup

REPOSITORY = "kernels-community/flash-attn3"
VERSIONS = (2, 1)
"""Major versions whose function was read, the preferred one first."""

FETCH = f'python -c "from kernels import get_kernel; get_kernel({REPOSITORY!r}, version={VERSIONS[0]})"'


@lru_cache(maxsize=1)
def cached() -> Any:
    """Load the kernel from the cache: the module of the first version that is there.

    Raises the library's exception for the last version where none is there.
    """
    from kernels import get_kernel

    for version in VERSIONS[:-1]:
        try:
            return get_kernel(REPOSITORY, version=version)
        except (ValueError, FileNotFoundError):
            continue
    return get_kernel(REPOSITORY, version=VERSIONS[-1])


def prepare(setup: Setup) -> Call:
    """Make the function of the case, for either operation."""
    return attend_by(cached().flash_attn_func, setup)


def available(device: str) -> str | None:
    """Ask for a device, for the word that forbids downloads, and for the kernel in the cache."""
    if (reason := needs_gpu("FlashAttention-3", below=(10, 0))) is not None:
        return reason
    from huggingface_hub import constants

    if not constants.HF_HUB_OFFLINE:
        return f"attnbench loads kernels from the cache alone: run `{FETCH}` once, then set HF_HUB_OFFLINE=1"
    try:
        cached()
    except Exception as failure:
        return f"{REPOSITORY} can't be loaded from the cache: {type(failure).__name__}: {failure}"
    return cannot_call(lambda: cached().flash_attn_func, *ARGUMENTS)


KERNELS_FLASH_ATTN3 = replace(
    FLASH_ATTN_3,
    name="kernels_flash_attn3",
    summary=f"{REPOSITORY} by the package kernels, from the local cache alone",
    prepare=prepare,
    available=available,
    requires=("kernels",),
)
