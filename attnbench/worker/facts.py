"""What the loaded torch is, said to the parent, which doesn't load it."""

from __future__ import annotations

from attnbench.worker.messages import TorchFacts


def torch_facts() -> TorchFacts:
    """Version, flags and CUDA devices. To ask for their names may make a CUDA context: never in a server."""
    import torch

    devices: tuple[str, ...] = ()
    if torch.version.cuda is not None:
        devices = tuple(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    flags = {
        "threads": str(torch.get_num_threads()),
        "interop_threads": str(torch.get_num_interop_threads()),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic_algorithms": str(torch.are_deterministic_algorithms_enabled()),
        "build": " ".join(torch.__config__.show().split()),
    }
    return TorchFacts(str(torch.__version__), devices, flags)
