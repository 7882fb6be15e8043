from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from attnbench_cuda import attnbench_backends
from attnbench_cuda.device import needs_gpu

from attnbench.plugins.kinds import fault

BACKENDS = {backend.name: backend for backend in attnbench_backends()}


def test_what_it_brings() -> None:
    assert {name: backend.requires for name, backend in BACKENDS.items()} == {
        "flash_attn": ("flash_attn",),
        "flashinfer_prefill": ("flashinfer",),
        "xformers_attention": ("xformers",),
        "sageattention": ("sageattention",),
    }


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
def test_declared_as_attnbench_asks(backend) -> None:
    assert fault(backend) is None
    assert backend.devices == ("cuda",)
    assert not backend.forkable
    assert backend.layout == "BLHD"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
def test_without_a_gpu_each_says_why(backend) -> None:
    assert "needs a CUDA device" in (backend.available("cuda") or "")


def test_an_older_gpu_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    assert needs_gpu("flash-attn") == "flash-attn needs compute capability 8.0 or more; this device has 7.5"
    assert needs_gpu("xformers", (6, 0)) is None


def test_importing_it_imports_nothing_heavy() -> None:
    names = "{'torch', 'flash_attn', 'flashinfer', 'xformers', 'sageattention'}"
    code = f"import sys, attnbench_cuda; print(sorted({names} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
