"""Contenders whose answer is known: right, alike, and slower by work that is really done."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from attnbench.cases.identity import parse_case
from attnbench.plugins.registry import Registry, load_registry
from attnbench.plugins.sources import installed
from attnbench.selftest import planting, planting_cuda
from attnbench.selftest.contenders import INLINE_KERNELS, INLINE_NO_OP, NO_OP, copies, inline, no_op, planted
from attnbench.selftest.parts import SHAPES
from attnbench.selftest.session import CONTENDERS, registry
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
    import subprocess
    import sys

    script = "import sys, attnbench.selftest.contenders; sys.exit('torch' in sys.modules)"
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
def test_planted_ones_give_the_same_bits(
    length: int, known: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planting, "CALIBRATION_S", 0.02)
    setup, inputs = setup_of(length, known), inputs_of(length)
    expected_bits = known.backend("copy_0").prepare(setup)(*inputs)
    for name in (*planted(3, 1), *planted(5, 1)):
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


def test_the_template_is_left_as_it_was(known: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """No call and no array in the process that prepares: its children would find other memory."""
    here = os.getpid()
    made: list[str] = []
    monkeypatch.setattr(planting, "CALIBRATION_S", 0.01)
    made_inputs = planting._inputs

    def inputs(setup: Setup) -> Inputs:
        if os.getpid() == here:
            made.append("inputs")
        return made_inputs(setup)

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if os.getpid() == here:
            made.append("call")
        return v

    monkeypatch.setattr(planting, "_inputs", inputs)
    slower = planting.plant(call, setup_of(16, known), 0.03)
    assert made == []
    slower(*inputs_of(16))
    assert made == ["call"]


def test_more_is_more_work(known: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planting, "_inputs", lambda setup: inputs_of(16))
    monkeypatch.setattr(planting, "_iterations", lambda call, q, k, v, part: round(1000 * part))

    def left(part: float) -> object:
        slower = planting.plant(no_op, setup_of(16, known), part)
        assert slower.__closure__ is not None
        return {cell.cell_contents for cell in slower.__closure__ if isinstance(cell.cell_contents, int)}

    assert left(0.03) == {30}
    assert left(0.05) == {50}


def test_a_calibration_that_fails_says_so(known: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*words: object) -> int:
        os.close(2)
        raise ValueError("no")

    monkeypatch.setattr(planting, "_iterations", fail)
    with pytest.raises(RuntimeError, match="could not be calibrated"):
        planting.plant(no_op, setup_of(16, known), 0.03)


def test_calibration_is_of_the_whole_call_and_never_below_nothing() -> None:
    """A part of a call that the function around it exceeds already needs no iteration."""
    q, k, v = inputs_of(1)
    assert planting._iterations(no_op, q, k, v, 0.0) == 0
    many = planting._iterations(lambda q, k, v: expected(q, k, v), *inputs_of(512), 0.5)
    assert many > 1000


def test_no_file_is_left(known: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planting, "CALIBRATION_S", 0.01)
    open_files = Path("/proc/self/fd")
    before = {path.name for path in open_files.iterdir()}
    planting.plant(no_op, setup_of(1, known), 0.05)
    assert {path.name for path in open_files.iterdir()} == before


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
