"""Why a backend can't run on this machine at all."""

from __future__ import annotations

from importlib.util import find_spec

from attnbench.types.backend import Backend
from attnbench.types.words import clean, one_line


def absent(backend: Backend) -> str:
    """The reason in words, in the order in which a run finds it; "" where there is none."""
    missing = [name for name in backend.requires if not _importable(name)]
    if missing:
        return f"needs {', '.join(missing)}, which is not installed"
    device = device_of(backend)
    if device == "cuda" and not _has_cuda():
        return "this machine has no CUDA device"
    try:
        reason = backend.available(device)
    except KeyboardInterrupt:
        raise
    except BaseException as failure:
        return f"available() raised {one_line(failure)}"
    return "" if reason is None else clean(reason)


def device_of(backend: Backend) -> str:
    """The device that the kit checks it on: the CPU where it can."""
    return "cpu" if "cpu" in backend.devices else backend.devices[0]


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def _importable(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ImportError:
        return False
