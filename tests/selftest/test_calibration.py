"""How far planted slowdowns count: from ratios measured like any others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from attnbench.selftest.calibration import calibration_part, calibrations, iterations_for, needs_calibration
from attnbench.selftest.contenders import PROBE_ITERATIONS
from attnbench.selftest.experiments import Choices, aa_parts, power_parts
from attnbench.selftest.trials import Trial
from attnbench.types.errors import MeasuringFailed
from attnbench.types.record import Block, SetLine


def block(call_ns: int) -> Block:
    return Block(
        stretch=0, turns=[0, 1], calls=1, wall_ns=[call_ns] * 2, cpu_ns=[call_ns] * 2, switches=[0, 0],
        faults=[0, 0], asked_ns=[call_ns] * 2,
    )  # fmt: skip


def trial(**call_ns: int) -> Trial:
    blocks = {name: [block(ns)] for name, ns in call_ns.items()}
    line = SetLine(
        case="c", index=0, draws=[0], order=list(blocks), warmup_ns={}, blocks=blocks, verified=[], failed={}
    )
    return Trial("c", (line,) * 9)


@pytest.mark.parametrize(("percent", "part"), [(5, 1 / 4), (3, 3 / 20)])
def test_as_many_iterations_as_the_part_of_what_the_probe_took(percent: int, part: float) -> None:
    found = iterations_for(percent, [trial(copy_0=1_000_000, probe=1_200_000)], 16)
    assert found == round(PROBE_ITERATIONS[16] * part)


@pytest.mark.parametrize("probe_ns", [1_000_000, 1_049_000, 900_000])
def test_a_probe_that_is_hardly_slower_calibrates_nothing(probe_ns: int) -> None:
    with pytest.raises(MeasuringFailed, match=r"iterations add .* to a call; measure when"):
        iterations_for(3, [trial(copy_0=1_000_000, probe=probe_ns)], 512)


@pytest.mark.parametrize("trials", [[], [trial(copy_0=1_000)]])
def test_a_probe_that_failed_calibrates_nothing(trials: list[Trial]) -> None:
    with pytest.raises(MeasuringFailed, match="their probe was not measured"):
        iterations_for(3, trials, 16)


@pytest.mark.parametrize("choices", [Choices(), Choices(full=True)])
def test_each_length_is_calibrated_once(choices: Choices) -> None:
    parts = power_parts(choices)
    assert [part.length for part in calibrations(parts)] == [16, 512]
    assert len({calibration_part(part) for part in parts}) == 2
    assert calibrations(aa_parts(choices)) == ()


def test_a_device_calibrates_its_own() -> None:
    part = power_parts(Choices())[0]
    assert needs_calibration(part)
    assert not needs_calibration(replace(part, device="cuda"))
    assert not needs_calibration(replace(part, percent=0))
