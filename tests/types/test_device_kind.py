"""The kind of device of a case follows from the facts of its run."""

from __future__ import annotations

from typing import Any

import pytest

from attnbench.types.device import UNKNOWN, device_kind

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
