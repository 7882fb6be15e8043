"""Contenders whose answer is known: right, alike, and slower by work that is really done."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from typing import Any

import pytest
import torch

from attnbench.cases.identity import parse_case
from attnbench.plugins.registry import Registry, load_registry
from attnbench.plugins.sources import installed
from attnbench_selftest import planting, planting_cuda
from attnbench_selftest.contenders import (
    INLINE_KERNELS,
    INLINE_NO_OP,
    NO_OP,
    PROBE,
    PROBE_ITERATIONS,
    copies,
    inline,
    no_op,
    planted,
)
from attnbench_selftest.plan import SHAPES
from attnbench_selftest.measure import CONTENDERS, registry
from attnbench.timing.sample import Sample
from attnbench.types.backend import Setup

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@pytest.fixture(scope="module")
def known() -> Registry:
    return registry()


def setup_of(length: int, known: Registry) -> Setup:
    case = parse_case(SHAPES[length])
    rule = known.rule(case.rule)
    return Setup(case=case, rule=rule, scoring=rule.bind(case, {}), rule_parameters={}, projections={})


def inputs_of(length: int) -> Inputs:
    case = parse_case(SHAPES[length])
    generator = torch.Generator().manual_seed(3)
    q = torch.randn(case.B, case.H, case.Lq, case.D, generator=generator)
    k = torch.randn(case.B, case.Hkv, case.Lk, case.D, generator=generator)
    return q, k, torch.randn(case.B, case.Hkv, case.Lk, case.Dv, generator=generator)


def expected(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = q.double() @ k.double().transpose(-1, -2) / q.shape[-1] ** 0.5
    return torch.softmax(scores, -1) @ v.double()


def test_nothing_installed_brings_them() -> None:
    assert CONTENDERS.module not in {source.module for source in installed()}
    assert not set(copies(16)) & set(load_registry().backends)


def test_importing_them_loads_no_torch() -> None:
    script = "import sys, attnbench_selftest.contenders; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_copies_are_one_function_prepared_by_one_function(known: Registry) -> None:
    """But for its name each is the same record, so that nothing tells them apart."""
    from dataclasses import replace

    records = [known.backend(name) for name in copies(16)]
    assert len({record.name for record in records}) == 16
    assert len({replace(record, name="one") for record in records}) == 1


def test_they_do_what_the_baseline_of_runs_does(known: Registry) -> None:
    """The same code as eager's: the same bits."""
    setup, inputs = setup_of(16, known), inputs_of(16)
    copy = known.backend("copy_3").prepare(setup)(*inputs)
    assert torch.equal(copy, known.backend("eager").prepare(setup)(*inputs))
    torch.testing.assert_close(copy.double(), expected(*inputs), rtol=0, atol=1e-5)


@pytest.mark.parametrize("length", [16, 512])
def test_planted_ones_give_the_same_bits(length: int, known: Registry) -> None:
    setup, inputs = setup_of(length, known), inputs_of(length)
    expected_bits = known.backend("copy_0").prepare(setup)(*inputs)
    with planting.telling({3: 10, 5: 20}):
        for name in (*planted(3, 1), *planted(5, 1), PROBE):
            assert torch.equal(known.backend(name).prepare(setup)(*inputs), expected_bits)


def test_no_op_is_right_for_one_key_and_refuses_more(known: Registry) -> None:
    one = parse_case(SHAPES[1])
    inputs = inputs_of(1)
    torch.testing.assert_close(no_op(*inputs).double(), expected(*inputs), rtol=0, atol=0)
    for name in (NO_OP, INLINE_NO_OP):
        backend = known.backend(name)
        assert backend.supports(one, known.rule("scaled_dot")) is None
        for text in (SHAPES[16], "attention/scaled_dot/B1-H2-Hkv1-L1-D1"):
            reason = backend.supports(parse_case(text), known.rule("scaled_dot"))
            assert reason == "returns v: only for one key a query"


def test_an_inline_loop_makes_every_call_and_gives_the_last_output() -> None:
    made: list[int] = []

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        made.append(len(made))
        return torch.tensor(len(made))

    assert int(inline(call, INLINE_KERNELS)(*inputs_of(1))) == INLINE_KERNELS
    assert len(made) == INLINE_KERNELS


def iterations_in(call: Any) -> set[object]:
    return {cell.cell_contents for cell in call.__closure__ if isinstance(cell.cell_contents, int)}


def test_planted_ones_count_as_far_as_is_told(known: Registry) -> None:
    setup = setup_of(16, known)
    with planting.telling({3: 30, 5: 50}):
        assert iterations_in(known.backend("plus3_0").prepare(setup)) == {30}
        assert iterations_in(known.backend("plus5_7").prepare(setup)) == {50}
        with planting.telling({3: 31}):
            assert iterations_in(known.backend("plus3_0").prepare(setup)) == {31}
        assert iterations_in(known.backend("plus3_0").prepare(setup)) == {30}
    assert iterations_in(known.backend(PROBE).prepare(setup)) == {PROBE_ITERATIONS[16]}


def test_processes_started_meanwhile_are_told(known: Registry) -> None:
    script = (
        "from attnbench_selftest.contenders import plant\n"
        "from types import SimpleNamespace as N\n"
        "slower = plant(None, N(case=N(device='cpu')), 3)\n"
        "print([c.cell_contents for c in slower.__closure__ if isinstance(c.cell_contents, int)])"
    )
    with planting.telling({3: 77}):
        run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[77]"


@pytest.mark.parametrize("told", [{}, {5: 50}])
def test_a_slowdown_that_nobody_calibrated_says_so(known: Registry, told: dict[int, int]) -> None:
    with planting.telling(told), pytest.raises(RuntimeError, match="selftest power alone"):
        known.backend("plus3_0").prepare(setup_of(16, known))


def test_every_iteration_is_made() -> None:
    """Counting further takes longer, by what the iterations take and nothing else."""
    slower = {count: planting.counting(count, no_op) for count in (0, 20_000, 40_000)}
    inputs, took = inputs_of(1), dict.fromkeys(slower, math.inf)
    # In turns, so that a core that is slower for a while is so for all.
    for _ in range(100):
        for count, call in slower.items():
            start = time.perf_counter_ns()
            call(*inputs)
            took[count] = min(took[count], time.perf_counter_ns() - start)
    assert 1.5 < (took[40_000] - took[0]) / (took[20_000] - took[0]) < 2.5


class SpinningDevice:
    """A device on which a call takes 20 µs, a kernel 1 µs to launch, and a cycle half a nanosecond."""

    mode = "batch"
    default_clock_mhz = 2000

    def __init__(self) -> None:
        self.ns = 0.0

    def spin(self, count: int) -> None:
        self.ns += 1_000 + count / 2

    def call(self, q: object, k: object, v: object) -> object:
        self.ns += 20_000
        return v

    def warm(self, call: Any, a: Any, b: Any, c: Any, calls: int) -> None:
        call(a, b, c)

    def settle(self) -> None:
        pass

    def __call__(self, call: Any, a: Any, b: Any, c: Any, calls: int) -> tuple[Sample, Any]:
        before = self.ns
        for _ in range(calls):
            call(a, b, c)
        return Sample(calls, round(self.ns - before), 0, 0, 0), None


@pytest.mark.parametrize(("part", "cycles"), [(0.10, 2_000), (0.0501, 4), (0.03, 0)])
def test_on_a_device_the_launch_counts_as_part_of_the_slowdown(part: float, cycles: int) -> None:
    device = SpinningDevice()
    found = planting_cuda.cycles(device.call, device.spin, (1, 2, 3), part, device)  # type: ignore[arg-type]
    assert found == pytest.approx(cycles, abs=1)


def test_a_device_that_does_not_spin_says_so() -> None:
    device = SpinningDevice()
    with pytest.raises(RuntimeError, match="could not be calibrated"):
        planting_cuda.cycles(device.call, lambda count: None, (1, 2, 3), 0.1, device)  # type: ignore[arg-type]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_planted_on_cuda_gives_the_same_bits(known: Registry) -> None:
    from dataclasses import replace

    setup = setup_of(512, known)
    setup = replace(setup, case=replace(setup.case, device="cuda"))
    inputs = tuple(tensor.cuda() for tensor in inputs_of(512))
    copy = known.backend("copy_0").prepare(setup)(*inputs)
    assert torch.equal(known.backend("plus5_0").prepare(setup)(*inputs), copy)
