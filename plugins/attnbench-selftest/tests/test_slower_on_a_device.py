"""The slowdown that is planted on a device: its part of the time, by a device that is simulated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from attnbench_selftest import candidates
from fake_cuda import FakeCuda
from torch.overrides import TorchFunctionMode

from attnbench.cases.ids import parse_case
from attnbench.timing.cuda import CudaTimer

CASE = parse_case("attention/scaled_dot/B2-H4-Hkv2-Lq3-Lk5-D8-Dv6/none/bfloat16/cuda")


class MadeHere(TorchFunctionMode):
    """Tensors that are asked for on CUDA are made on the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        here = {name: "cpu" if value == "cuda" else value for name, value in (kwargs or {}).items()}
        return func(*args, **here)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    device = FakeCuda()
    timer = CudaTimer(device, device.overwrite, cold=False, now_ns=device.now_ns)
    monkeypatch.setattr(candidates, "timer_for", {"cuda": timer}.__getitem__)
    monkeypatch.setattr(torch.cuda, "_sleep", device._sleep)
    return device


@pytest.mark.parametrize("part", [0.03, 0.05, 0.5])
def test_a_call_becomes_slower_by_its_part(part: float, cuda: FakeCuda) -> None:
    shapes = []

    def call(q: Any, k: Any, v: Any) -> None:
        shapes.append([tuple(x.shape) for x in (q, k, v)])
        cuda.kernel(20_000)

    with MadeHere():
        slower = candidates.plant_on_device(call, SimpleNamespace(case=CASE), part)
    assert shapes[0] == [(2, 4, 3, 8), (2, 2, 5, 8), (2, 2, 5, 6)]
    take = CudaTimer(cuda, cuda.overwrite, cold=False, now_ns=cuda.now_ns)
    inputs = [torch.zeros(shape) for shape in shapes[0]]
    for _ in range(3):
        sample, _ = take(slower, *inputs, 40)
    assert take.mode == "batch", "the spin stands in the graph"
    assert sample.wall_ns / 40 == pytest.approx(20_000 * (1 + part), rel=0.001)


def test_a_device_on_which_spinning_takes_no_time_is_an_error(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: None)
    with MadeHere(), pytest.raises(RuntimeError, match="spinning takes no time here"):
        candidates.plant_on_device(lambda q, k, v: cuda.kernel(900), SimpleNamespace(case=CASE), 0.05)
