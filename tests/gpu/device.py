"""The device of a campaign: facts about it and its software, and its two peaks. Run as a process of its own.

    python tests/gpu/device.py environment|peaks FILE cuda|cpu

Needs torch for the peaks, and nothing but the standard library for the facts.
"""

from __future__ import annotations

import ctypes
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

OLDEST_TORCH, NEWEST_TORCH = "2.6", "2.13"
"""torch from which attnbench installs, and the newest with which its tests were run."""

NEEDED = {
    "torch": "everything", "numpy": "everything", "click": "attnbench", "msgspec": "attnbench",
    "pandas": "attnbench", "pluggy": "attnbench", "psutil": "attnbench", "rich": "attnbench",
    "scipy": "selftest", "triton": "flex, compiled and the plugin attnbench-triton",
    "nvidia-ml-py": "clocks in the samples", "jinja2": "the page", "vl-convert-python": "the page",
}  # fmt: skip
"""Distributions, and what is missing without them."""

MUST = ("torch", "numpy", "click", "msgspec", "pandas", "pluggy", "psutil", "rich")
"""attnbench does not start without these."""

SENSORS = (
    "name", "driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "temperature.gpu", "power.draw",
    "power.limit", "memory.total", "memory.used", "utilization.gpu",
)  # fmt: skip

SIDE, COPY_BYTES = 8192, 2**32
CPU_SIDE, CPU_COPY_BYTES = 512, 2**26
SAMPLES, WARM_S = 10, 0.5


def sensors() -> dict[str, str]:
    """Return what nvidia-smi says of the first device of CUDA now; nothing where there is none."""
    asked = f"--query-gpu={','.join(SENSORS)}"
    command = ["nvidia-smi", asked, "--format=csv,noheader,nounits", f"--id={_bus_address() or 0}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    # It prints its errors there too.
    cells = [cell.strip() for cell in done.stdout.split(",")]
    return dict(zip(SENSORS, cells, strict=True)) if len(cells) == len(SENSORS) else {}


def _bus_address() -> str:
    """Return the PCI address of the first device that CUDA shows this process; "" where it shows none.

    nvidia-smi numbers all devices by address, CUDA those in CUDA_VISIBLE_DEVICES by speed.
    """
    number, address = ctypes.c_int(), ctypes.create_string_buffer(32)
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ""
    failed = (
        cuda.cuInit(0)
        or cuda.cuDeviceGet(ctypes.byref(number), 0)
        or cuda.cuDeviceGetPCIBusId(address, len(address), number)
    )
    return "" if failed else address.value.decode()


def packages() -> dict[str, str]:
    """Return the version of each needed distribution, "" where it is missing."""
    found = {}
    for name in NEEDED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = ""
    return found


def environment(device: str) -> dict[str, Any]:
    """Return facts: packages, what nvidia-smi says, and how long a process needs to reach the device."""
    facts: dict[str, Any] = {
        "python": platform.python_version(), "system": f"{platform.system()} {platform.release()}",
        "packages": packages(), "sensors": sensors(), "gpu": False,
    }  # fmt: skip
    if facts["packages"]["torch"]:
        started = time.perf_counter()
        import torch

        facts["import_torch_s"] = time.perf_counter() - started
        facts |= {"torch": torch.__version__, "cuda": torch.version.cuda, "gpu": torch.cuda.is_available()}
        if facts["gpu"] and device == "cuda":
            started = time.perf_counter()
            torch.zeros(1, device="cuda")
            torch.cuda.synchronize()
            facts["reach_device_s"] = time.perf_counter() - started
            known = torch.cuda.get_device_properties(0)
            facts |= {
                "card": known.name,
                "capability": f"{known.major}.{known.minor}", "processors": known.multi_processor_count,
                "l2_bytes": getattr(known, "L2_cache_size", 0), "memory_bytes": known.total_memory,
                "cudnn": torch.backends.cudnn.version(),
            }  # fmt: skip
    return facts


def peaks(device: str) -> dict[str, Any]:
    """Measure products of large square matrices (TFLOP/s by dtype), and a copy (GB/s, read plus written)."""
    import torch

    side, copy_bytes = (SIDE, COPY_BYTES) if device == "cuda" else (CPU_SIDE, CPU_COPY_BYTES)
    found: dict[str, Any] = {"side": side, "copy_bytes": copy_bytes, "gemm_tflops": {}, "before": sensors()}
    for word in ("float16", "bfloat16"):
        # Random numbers: zeros take less power, and products of them are faster.
        a, b = (torch.randn(side, side, device=device).to(getattr(torch, word)) for _ in range(2))
        out = torch.empty_like(a)
        seconds = median(_seconds(lambda a=a, b=b, out=out: torch.mm(a, b, out=out), device))
        found["gemm_tflops"][word] = 2 * side**3 / seconds / 1e12
    source = torch.ones(copy_bytes // 8, device=device)
    target = torch.empty_like(source)
    found["copy_gbps"] = copy_bytes / median(_seconds(lambda: target.copy_(source), device)) / 1e9
    found["after"] = sensors()
    return found


def _seconds(call: Callable[[], object], device: str) -> list[float]:
    """Return the times of single calls, after calls for half a second."""
    import torch

    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    end = time.perf_counter() + WARM_S
    while time.perf_counter() < end:
        call()
        wait()
    taken = []
    for _ in range(SAMPLES):
        if device == "cuda":
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            call()
            last.record()
            wait()
            taken.append(first.elapsed_time(last) / 1e3)
        else:
            started = time.perf_counter()
            call()
            taken.append(time.perf_counter() - started)
    return taken


if __name__ == "__main__":
    what, file, where = sys.argv[1:]
    found = {"environment": environment, "peaks": peaks}[what](where)
    Path(file).write_text(json.dumps(found, indent=1) + "\n", "utf-8")
