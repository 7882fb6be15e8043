"""A worker's requests for a CUDA device, on the CPU: tensors are made here, and time is simulated.

What only a device shows (its numbers, its driver) is left to the tests marked ``cuda``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from asked import BUILT_IN_BACKENDS, RULES, Asked, Stored, attend, segment
from fake_cuda import FakeCuda
from torch.overrides import TorchFunctionMode

from attnbench.cases.ids import parse_case
from attnbench.inputs.draw import draw_activations
from attnbench.ipc import messages as m
from attnbench.timing import sample as timing
from attnbench.timing.allocator import UNKNOWN_CACHE_BYTES, last_level_cache_bytes
from attnbench.timing.cuda import CudaTimer, _cleared, cuda_timer
from attnbench.timing.warmup import Limits
from attnbench.worker import calls, outputs, serve, state, trace
from attnbench.worker.guards import poison

CASE = "attention/dot/B2-H2-Lq3-Lk5-D4-Dv4/none/float32/cuda"
ROTATING = f"{CASE}/forward/rotating"
KERNEL_NS = 7_000


class MadeHere(TorchFunctionMode):
    """Tensors that are asked for on CUDA are made on the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # torch 2.6 names a device through modes too.
        if func is torch.device:
            return func(*args, **(kwargs or {}))
        return func(*map(_here, args), **{name: _here(value) for name, value in (kwargs or {}).items()})


def _here(value: Any) -> Any:
    return "cpu" if isinstance(value, str) and value == "cuda" else value


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    """Let everything that asks for CUDA get the simulated device."""
    device = FakeCuda()
    timers: dict[tuple[str, str, bool], Any] = {}

    def timer_for(name: str, cache: str = "hot", captures: bool = True) -> Any:
        if name == "cpu":
            return timing.CpuTimer()
        cold = cache == "rotating"
        made = CudaTimer(
            device, device.overwrite, cold=cold, captures=captures, clear=_cleared, now_ns=device.now_ns
        )
        return timers.setdefault((name, cache, captures), made)

    for module in (calls, timing):
        monkeypatch.setattr(module, "timer_for", timer_for)
    monkeypatch.setattr("attnbench.worker.prepared.timer_for", timer_for)
    monkeypatch.setattr(serve, "be_first_to_go", lambda: None)
    # Its outputs lie on the CPU, and nothing else about them is let through.
    check = _like_those_of("cpu", outputs.check_output)
    for module in (calls, outputs):
        monkeypatch.setattr(module, "check_output", check)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 0)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", device.get_device_properties)
    with MadeHere():
        yield device


def _like_those_of(device: str, check: Callable[..., None]) -> Callable[..., None]:
    return lambda output, case, *rest: check(output, replace(case, device=device), *rest)


def copy_all(into: Any, new: Any) -> None:
    """Write the output of a call over another; it has one tensor, or several in a case with gradients."""
    one = isinstance(into, torch.Tensor)
    for old, now in zip((into,) if one else into, (new,) if one else new, strict=True):
        old.copy_(now)


class LinkHere:
    """The link to a worker in this process, whose calls launch kernels on the simulated device."""

    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda, self.prepared = cuda, None

    def ask(self, request: Any, expects: Any, timeout_s: float = 0, fds: tuple[int, ...] = ()) -> Any:
        first = isinstance(request, m.Activations) and self.prepared.inputs is None
        with torch.inference_mode():
            self.prepared, reply, out = serve._answer(request, list(fds), self.prepared)
        assert isinstance(reply, expects), reply
        if first:
            self.prepared = replace(self.prepared, call=self.launching(self.prepared.call))
        return reply, out[0] if out else -1

    def launching(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def launched(*inputs: Any) -> Any:
            out: list[Any] = []
            self.cuda.kernel(KERNEL_NS, effect=lambda: out and copy_all(out[0], call(*inputs)))
            out.append(call(*inputs))
            return out[0]

        return launched


def warmed_up(cuda: FakeCuda, case: str) -> Asked:
    """A worker with inputs that has warmed up."""
    worker = Asked(LinkHere(cuda), case)
    worker.prepare("eager", BUILT_IN_BACKENDS)
    worker.give()
    warmed, _ = worker.link.ask(m.WarmUp(Limits(8, 0.5), reserve=True), m.Warmed)
    assert warmed.trace_ns[-1] == KERNEL_NS
    return worker


def answer(case: str, draw: int) -> Stored:
    parsed = parse_case(case)
    return attend(*draw_activations(parsed, RULES[parsed.rule], 1, draw))


@pytest.mark.parametrize(("case", "mode"), [(CASE, "batch"), (ROTATING, "cold")])
def test_a_worker_computes_warms_up_and_takes_slots_on_a_device(cuda: FakeCuda, case: str, mode: str) -> None:
    worker = warmed_up(cuda, case)
    for _ in range(3):
        np.testing.assert_allclose(worker.output(), answer(case, 0), rtol=1e-5)
    block = segment(worker, 1, calls=5, samples=3, warm_calls=1).samples
    assert (block.mode, block.wall_ns) == (mode, [5 * KERNEL_NS] * 3)
    assert (len(block.host_ns), block.clock_mhz, block.default_clock_mhz) == (3, [1900] * 3, 2000)
    # On a device inputs are refreshed before the calls of a sample, never between two.
    assert block.refreshed_ns == 0
    kept = worker.kept()
    assert any(each.refreshed for each, _ in kept)
    for each, output in kept:
        np.testing.assert_allclose(output, answer(case, int(each.refreshed)), rtol=1e-5)


@pytest.mark.parametrize(("passes", "mode"), [("both", "batch"), ("backward", "launches")])
def test_a_backward_pass_is_captured_only_together_with_its_forward_pass(
    cuda: FakeCuda, passes: str, mode: str
) -> None:
    """New inputs give a backward pass alone another graph, in other memory than a captured call reads."""
    block = segment(warmed_up(cuda, f"{CASE}/{passes}"), 1, calls=5, samples=2, warm_calls=1).samples
    assert (block.mode, block.wall_ns) == (mode, [5 * KERNEL_NS] * 2)


def test_kernels_are_those_of_the_device_in_their_order_once_all_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The profiler is the real one; what it saw on a device is made up."""
    from torch._C import _autograd

    stop, happened = _autograd._disable_profiler, []

    def event(name: str, device: str, start: int) -> SimpleNamespace:
        kind = getattr(_autograd.DeviceType, device)
        return SimpleNamespace(name=lambda: name, device_type=lambda: kind, start_ns=lambda: start)

    def stopped() -> SimpleNamespace:
        happened.append("stopped")
        stop()
        seen = [event("second", "CUDA", 9), event("aten::mm", "CPU", 1), event("first", "CUDA", 5)]
        return SimpleNamespace(events=lambda: seen)

    monkeypatch.setattr(_autograd, "_disable_profiler", stopped)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: happened.append("idle"))
    ran, problem = trace.what_ran(lambda: happened.append("called"), "cuda")
    assert (ran, problem) == (("cuda:first", "cuda:second"), "")
    assert happened == ["called", "called", "idle", "stopped"]
    # A call that raises leaves no profiler on, which would refuse to be switched on again.
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            trace.kernels(lambda: 1 / 0)

    def broken() -> None:
        stop()
        raise RuntimeError("no CUPTI")

    monkeypatch.setattr(_autograd, "_disable_profiler", broken)
    assert "no CUPTI" in trace.what_ran(lambda: None, "cuda")[1]


def test_memory_of_the_device_that_stays_with_every_call_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    held = [0]
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: held[0])

    def keeps() -> None:
        held[0] += 2**24

    with pytest.raises(state.WrongOutput, match="every call keeps 16 MiB"):
        state.check_growth(keeps, "cuda")
    state.check_growth(lambda: None, "cuda")


def test_a_device_is_asked_for_its_cache_and_its_name(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert last_level_cache_bytes("cuda") == cuda.l2_bytes
    cuda.l2_bytes = 0
    assert last_level_cache_bytes("cuda") == UNKNOWN_CACHE_BYTES
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda i: f"GPU {i}")
    known = SimpleNamespace(multi_processor_count=132, total_memory=80 * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda i: known)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (5 * 2**30, 6 * 2**30))
    facts = serve.torch_facts()
    assert facts.card_facts()["cuda_devices"] == ["GPU 0", "GPU 1"]
    assert facts.free_bytes("cuda") == 5 * 2**30
    assert [words.split(", ")[:2] for words in facts.card_facts()["cuda_details"]] == [
        ["132 multiprocessors", "80.0 GiB"]
    ] * 2

    def full() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch.cuda, "mem_get_info", full)
    assert serve.torch_facts().free_bytes("cuda") == 0, "runs on the CPU go on"
    assert poison(64, "cuda") is not None


def test_the_timer_of_torchs_device_clears_outputs_to_see_whether_a_replay_computes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch, "cuda", cuda := FakeCuda())
    hidden, seen = cuda.Stream(), []

    def call(a: Any, b: Any, c: Any) -> torch.Tensor:
        output = torch.zeros(3)
        cuda.kernel(500, hidden, effect=lambda: seen.append(output.fill_(1.0)))
        return output

    take = cuda_timer(cold=False)
    for _ in range(3):
        take(call, 1, 2, 3, 4)
    assert (take.mode, take.refused) == ("launches", "it leaves work on other streams")


@pytest.mark.parametrize(
    ("asked", "mode", "graphs", "flushes"),
    [
        (("hot",), "batch", True, 0),
        (("hot", False), "launches", False, 0),
        (("rotating",), "cold", False, 4),
    ],
)
def test_a_process_has_one_timer_for_each_way_to_time(
    asked: tuple[Any, ...], mode: str, graphs: bool, flushes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cold cache each launch follows a write over twice its size."""
    monkeypatch.setattr(torch, "cuda", cuda := FakeCuda(l2_bytes=4096))
    timing.timer_for.cache_clear()
    zeroed: list[int] = []
    monkeypatch.setattr(torch.Tensor, "zero_", lambda tensor: zeroed.append(tensor.nbytes))

    def call(a: Any, b: Any, c: Any) -> None:
        cuda.kernel(KERNEL_NS)

    with MadeHere():
        take = timing.timer_for("cuda", *asked)
        take(call, 1, 2, 3, 4)
        assert timing.timer_for("cuda", *asked) is take
    timing.timer_for.cache_clear()
    assert (take.mode, bool(cuda.graphs)) == (mode, graphs)
    assert zeroed == [2 * 4096] * flushes


def test_outputs_are_cleared_that_have_a_nan() -> None:
    with torch.inference_mode():
        output = torch.ones(3)
        still = _cleared(output)
        assert still()
        output[1] = 0.0
        assert not still(), "a call wrote a part of it"
    graded = torch.ones(2, requires_grad=True) * 2
    still = _cleared(graded)
    assert still()
    assert _cleared(torch.ones(3, dtype=torch.int64)) is None
    assert _cleared((torch.ones(3),)) is None
