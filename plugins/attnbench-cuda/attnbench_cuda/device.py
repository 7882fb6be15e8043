"""Why a kernel for NVIDIA's GPUs can't run on this machine."""

from __future__ import annotations


def needs_gpu(what: str, capability: tuple[int, int] = (8, 0)) -> str | None:
    """Return the reason why the device is not enough, or None. capability: the least that kernels need."""
    import torch

    if torch.version.cuda is None:  # type: ignore[attr-defined]  # torch exports it to no type checker
        return f"{what} needs a CUDA device, and this build of torch ({torch.__version__}) knows none"
    if not torch.cuda.is_available():
        return f"{what} needs a CUDA device, and torch finds none here"
    found = torch.cuda.get_device_capability()
    if found < capability:
        least, here = ("{}.{}".format(*each) for each in (capability, found))
        return f"{what} needs compute capability {least} or more; this device has {here}"
    return None
