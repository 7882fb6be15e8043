"""Why a kernel for NVIDIA's GPUs can't run on this machine."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Any

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


def cannot_call(load: Callable[[], Callable[..., Any]], *arguments: str) -> str | None:
    """Return why a library's function can't be called with these arguments, or None.

    load: imports and returns it.
    """
    try:
        function = load()
    except Exception as failure:
        # A library that was built for another torch raises exceptions of its own.
        return f"the library can't be loaded: {type(failure).__name__}: {failure}"
    try:
        known = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    named = {one.name for one in known if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}
    missing = ", ".join(name for name in arguments if name not in named)
    # Of code that a wrapper hides nothing is known.
    if not missing or not named:
        return None
    return (
        f"{getattr(function, '__name__', function)} of this release takes no {missing}: "
        "install the release that the README of attnbench-cuda names"
    )


def _word(capability: Capability) -> str:
    return "{}.{}".format(*capability)
