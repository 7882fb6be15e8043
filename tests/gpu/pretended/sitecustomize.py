"""Let torch pretend, in processes that have this folder on PYTHONPATH, that the CPU is a CUDA device.

Tensors stay on the CPU, and calls can't be captured. So kernels and times mean nothing; but the parent, the
workers and the timer go the ways that they go on a device.
"""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from types import SimpleNamespace

MHZ = 1980
FREE_BYTES = 2**24


def pretend() -> None:
    import torch
    from torch.overrides import TorchFunctionMode

    def meant(device):
        return "cpu" if isinstance(device, str | torch.device) and "cuda" in str(device) else device

    class OnTheCpu(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            kwargs = {
                name: meant(value) if name == "device" else value for name, value in (kwargs or {}).items()
            }
            if getattr(func, "__name__", "") == "to":
                args = tuple(map(meant, args))
            return func(*args, **kwargs)

    class Event:
        at = 0.0

        def __init__(self, enable_timing=False):
            pass

        def record(self):
            self.at = time.perf_counter()

        def synchronize(self):
            pass

        def elapsed_time(self, end):
            return 1e3 * (end.at - self.at)

    def refuse_capture():
        raise RuntimeError("a pretended device captures nothing")

    stream = SimpleNamespace(wait_stream=lambda other: None)
    known = SimpleNamespace(
        name="a pretended device",
        L2_cache_size=2**20,
        clock_rate=1000 * MHZ,
        major=9,
        minor=0,
        multi_processor_count=1,
        total_memory=FREE_BYTES,
    )
    pretended = {
        "is_available": lambda: True, "device_count": lambda: 1, "current_device": lambda: 0,
        "get_device_name": lambda number=0: "a pretended device", "get_device_capability": lambda: (9, 0),
        "get_device_properties": lambda number=0: known, "clock_rate": lambda: MHZ, "Event": Event,
        "Stream": lambda: stream, "current_stream": lambda: stream, "stream": lambda other: nullcontext(),
        "synchronize": lambda: None, "CUDAGraph": refuse_capture, "_sleep": lambda cycles: None,
        "memory_allocated": lambda: 0, "max_memory_allocated": lambda: 2**20,
        "mem_get_info": lambda: (FREE_BYTES, FREE_BYTES),
        "reset_peak_memory_stats": lambda: None,
    }  # fmt: skip
    for name, value in pretended.items():
        setattr(torch.cuda, name, value)
    torch.version.cuda = "pretended"
    OnTheCpu().__enter__()


def allow_outputs_on_the_cpu() -> None:
    from dataclasses import replace

    from attnbench.worker import calls, outputs

    check = outputs.check_output

    def on_the_cpu(output, case, *form):
        check(output, replace(case, device="cpu"), *form)

    outputs.check_output = calls.check_output = on_the_cpu


if "attnbench.worker.server" in sys.orig_argv:
    pretend()
    allow_outputs_on_the_cpu()
elif "import sys, torch" in " ".join(sys.orig_argv):
    pretend()
