"""A run is refused if it got another device than its place has."""

from __future__ import annotations

from typing import Any

import pytest

from attnbench.fleet.facts import Facts, check_given
from attnbench.types.errors import BadInput
from attnbench.types.record import Manifest, PluginLine

FACTS = Facts(
    cpu="a processor", cores=8, memory_bytes=2**36, cuda_devices=("NVIDIA H100",),
    cuda_details=("132 multiprocessors, 80.0 GiB, 700 W",), attnbench="0.1.0", python="3.12.1",
    torch="2.13.0",
    plugins={"attnbench": "0.1.0"},
)  # fmt: skip


def given(**changes: Any) -> Manifest:
    found = {
        "cpu": FACTS.cpu, "cpu_quota": FACTS.cores, "memory_bytes": FACTS.memory_bytes, "torch": FACTS.torch,
        "cuda_devices": list(FACTS.cuda_devices), "cuda_details": list(FACTS.cuda_details),
    }  # fmt: skip
    return Manifest(
        format=1, run_id="a", started="2026-01-01T00:00:00+00:00", attnbench=FACTS.attnbench, command=[],
        cases=[], backends=[], named=[], compiled_on=None, protocol={},
        plugins=[PluginLine("builtins", "attnbench", "0.1.0")],
        environment=found | changes,
    )  # fmt: skip


def test_the_device_of_the_place_is_accepted() -> None:
    check_given(FACTS, given(), "node0")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cuda_devices": ["NVIDIA H200"]}, r"CUDA devices \['NVIDIA H200'\] instead of \['NVIDIA H100'\]"),
        ({"cuda_details": ["114 multiprocessors, 80.0 GiB, 350 W"]}, "details of CUDA devices .*114 multi"),
        ({"cuda_details": ["132 multiprocessors, 80.0 GiB, 500 W"]}, "500 W.* instead of .*700 W"),
        ({"cpu_quota": 4}, "cores 4 instead of 8"),
        ({"torch": "2.12.0"}, "torch 2.12.0 instead of 2.13.0"),
    ],
)
def test_another_device_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        check_given(FACTS, given(**changes), "node0")
