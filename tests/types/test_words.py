"""Errors, words of names and statuses, kinds of devices, and what lines of a run file say."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbench.types import errors
from attnbench.types.device import UNKNOWN, device_kind
from attnbench.types.record import Accuracy, EndLine, Line
from attnbench.types.status import MEANING, STATUSES, Status
from attnbench.types.words import count_of, nearest, unknown_name

TREE = {
    "AttnbenchError": 3,
    "BadInput": 2,
    "BadCase": 2,
    "BadFile": 2,
    "MeasuringFailed": 3,
    "PluginFailed": 3,
    "Interrupted": 130,
}


def test_every_error_ends_a_command_with_its_status() -> None:
    found = {
        name: cls.exit_code
        for name, cls in vars(errors).items()
        if isinstance(cls, type) and issubclass(cls, errors.AttnbenchError)
    }
    assert found == TREE
    tree = (errors.__doc__ or "").splitlines()
    for name in TREE:
        assert any(f"{name} " in line for line in tree), name


def test_an_interruption_says_how_to_go_on() -> None:
    stopped = errors.Interrupted(Path("results/run 1.jsonl"))
    assert str(stopped) == "interrupted; continue with --resume results/run 1.jsonl"
    assert stopped.path == Path("results/run 1.jsonl")
    live = errors.Interrupted(stopped.path, live=True)
    assert str(live) == "interrupted; what was measured is in results/run 1.jsonl; compare again"


@pytest.mark.parametrize("name", ["", " ", "a" * 10_000, "\n", "None"])
def test_any_word_that_means_nothing_lists_what_there_is(name: str) -> None:
    known = ["eager", "chunked"]
    assert nearest(name, known) is None
    assert unknown_name("backend", name, known) == f"no backend {name!r}; there are eager, chunked."


@settings(max_examples=25)
@given(st.text(min_size=2, max_size=12), st.integers(0, 11))
def test_a_name_with_one_letter_too_many_is_found(name: str, at: int) -> None:
    assert nearest(name[:at] + "~" + name[at:], [name, "§" * 9]) == name


def test_of_equally_near_names_the_first_is_meant() -> None:
    assert nearest("sdpa_flash2", ["sdpa_flash1", "sdpa_flash3"]) == "sdpa_flash1"
    assert nearest("sdpa_flash2", ["sdpa_flash3", "sdpa_flash1"]) == "sdpa_flash3"


def test_things_are_counted_in_one_way() -> None:
    assert [count_of(number, "case") for number in (0, 1, 2)] == ["0 cases", "1 case", "2 cases"]
    assert count_of(12_000, "case") == "12,000 cases"


ON_CPU = "attention/dot/B1-H2-Lq8-Lk8-D4/none/float32/cpu/forward"
ON_CUDA = ON_CPU.replace("/cpu/", "/cuda/")
H100 = "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(
    ("environment", "case", "kind"),
    [
        ({"cpu": "Zen", "cpu_quota": 4, "cuda_devices": [H100]}, ON_CPU, "Zen, 4 cores"),
        ({"cpu": "Zen", "cpu_quota": 1}, ON_CPU, "Zen, 1 core"),
        ({"cpu": "Zen"}, ON_CPU, "Zen"),
        ({"cpu": "Zen"}, "test_it.py::test_sum[cuda]", "Zen"),
        ({"cpu": "Zen", "cpu_quota": 4, "cuda_devices": [H100, "another"]}, ON_CUDA, H100),
        ({"cpu": "Zen", "cpu_quota": 4, "cuda_devices": []}, ON_CUDA, UNKNOWN),
        ({"cpu": "Zen", "cpu_quota": 4}, ON_CUDA, UNKNOWN),
        ({"cpu": "unknown", "cpu_quota": 4}, ON_CPU, UNKNOWN),
        ({}, ON_CPU, UNKNOWN),
    ],
)
def test_a_case_on_cuda_has_the_card_and_another_the_processor_with_its_cores(
    environment: dict[str, Any], case: str, kind: str
) -> None:
    assert device_kind(environment, case) == kind


def test_a_field_that_a_later_version_adds_is_left_out() -> None:
    text = b'{"kind":"end","finished":"x","wall_s":1,"phases_s":{},"more":[1,2]}'
    assert msgspec.json.decode(text, type=Line) == EndLine("x", 1.0, {})


def test_each_status_word_of_files_has_one_meaning() -> None:
    assert get_args(Status) == STATUSES
    assert [status for status in STATUSES if MEANING[status].timed] == ["ok", "inaccurate", "suspect"]
    assert [status for status in STATUSES if MEANING[status].declined] == ["unsupported", "unavailable"]


@pytest.mark.parametrize(
    ("error", "reference", "budget"),
    [(3e-7, 1.5e-7, 2.0), (0.0, 1e-7, 0.0), (0.0, 0.0, 0.0), (1e-9, 0.0, math.inf)],
)
def test_the_error_budget_is_a_ratio_even_where_the_reference_is_exact(
    error: float, reference: float, budget: float
) -> None:
    rms = Accuracy(error, 9.0, reference, 3.0, 1.0, 1.0, 1, 1, 1)
    largest = Accuracy(9.0, error, 3.0, reference, 1.0, 1.0, 1, 1, 1)
    assert (rms.error_budget, rms.max_error_budget) == (pytest.approx(budget), 3)
    assert (largest.error_budget, largest.max_error_budget) == (3, pytest.approx(budget))
