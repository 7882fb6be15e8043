"""Why a kernel for NVIDIA's GPUs can't run on this machine."""

from __future__ import annotations

from collections.abc import Collection

Capability = tuple[int, int]


def needs_gpu(
    what: str,
    least: Capability = (8, 0),
    *,
    below: Capability | None = None,
    only: Collection[Capability] = (),
) -> str | None:
    """Return the reason why the device is not enough, or None.

    least, below: the compute capabilities that kernels need, and from which on there are none. only: all that
    there are kernels for, where they are single ones.
    """
    import torch

    if torch.version.cuda is None:  # type: ignore[attr-defined]  # torch exports it to no type checker
        return f"{what} needs a CUDA device, and this build of torch ({torch.__version__}) knows none"
    if not torch.cuda.is_available():
        return f"{what} needs a CUDA device, and torch finds none here"
    found = torch.cuda.get_device_capability()
    here = f"; this device has {_word(found)}"
    if only and found not in only:
        return f"{what} has kernels for the compute capabilities {', '.join(map(_word, sorted(only)))}{here}"
    if found < least:
        return f"{what} needs compute capability {_word(least)} or more{here}"
    if below is not None and found >= below:
        return f"{what} has kernels for compute capabilities below {_word(below)}{here}"
    return None


def _word(capability: Capability) -> str:
    return "{}.{}".format(*capability)
