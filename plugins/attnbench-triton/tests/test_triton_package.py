"""What the package brings, where it runs, and what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from attnbench_triton import (
    TRITON_FLASH,
    TRITON_INTERPRETED,
    TRITON_RECURRENT,
    TRITON_RECURRENT_INTERPRETED,
    attnbench_backends,
)  # fmt: skip
from attnbench_triton.fla import FLA
from solved import RULES

from attnbench.cases.ids import parse_case
from attnbench.plugins.kinds import fault
from attnbench.plugins.registry import load_wanted
from attnbench.types.rule import Scoring


def test_what_it_brings() -> None:
    on_gpus, on_cpus = (TRITON_FLASH, TRITON_RECURRENT), (TRITON_INTERPRETED, TRITON_RECURRENT_INTERPRETED)
    assert {*attnbench_backends()} == {*on_gpus, *on_cpus, *FLA}
    assert [fault(backend) for backend in FLA] == [None] * len(FLA)
    for backend, device in (*((one, "cuda") for one in on_gpus), *((one, "cpu") for one in on_cpus)):
        assert fault(backend) is None
        assert backend.devices == (device,)
        assert backend.requires == ("triton",)
    assert all("times mean nothing" in one.summary for one in on_cpus)


def test_importing_it_imports_nothing_heavy() -> None:
    code = "import sys, attnbench_triton; print(sorted({'triton', 'torch', 'scipy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


ASKED = """
from attnbench_triton import TRITON_FLASH, TRITON_INTERPRETED
print(TRITON_FLASH.available("cuda"))
print(TRITON_INTERPRETED.available("cpu"))
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("interprets", ["0", "1"])
def test_one_of_the_two_at_most_is_available(interprets: str) -> None:
    environment = {**os.environ, "TRITON_INTERPRET": interprets}
    done = subprocess.run(
        [sys.executable, "-c", ASKED], env=environment, capture_output=True, text=True, check=True
    )
    flash, interpreted = done.stdout.splitlines()
    if interprets == "1":
        assert flash == "TRITON_INTERPRET is set, so Triton compiles nothing: unset it to run on a GPU"
        assert interpreted == "None"
    else:
        assert "finds none" in flash
        assert "TRITON_INTERPRET=1" in interpreted


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("attention/scaled_dot/H1-L4-D257", "heads of up to 256 features; here D = 257"),
        ("attention/scaled_dot/H1-L4-D8-Dv300", "here D = 8 and Dv = 300"),
        ("attention/scaled_dot/H4-L512-D64", "B·H·Lq·Lk is 262144 at most; here 1048576"),
    ],
)
def test_what_it_refuses(text: str, reason: str) -> None:
    case = parse_case(text)
    assert reason in (TRITON_INTERPRETED.supports(case, RULES[case.rule]) or "")


def test_recurrences_of_many_steps_or_wide_heads_are_refused() -> None:
    for text, reason in (
        ("H8-L1024-D16", "B·H·L is 4096 at most; here 8192"),
        ("H1-L4-D300", "here D = 300"),
    ):
        case = parse_case(f"recurrent/gated/{text}")
        assert reason in (TRITON_RECURRENT_INTERPRETED.supports(case, load_wanted([]).rule("gated")) or "")


def test_on_a_gpu_large_cases_are_taken() -> None:
    case = parse_case("attention/scaled_dot/B8-H32-Hkv8-L8192-D128/causal/bfloat16/cuda/both")
    assert TRITON_FLASH.supports(case, RULES["scaled_dot"]) is None


def test_another_bias_is_refused() -> None:
    from dataclasses import replace

    def bind(case, parameters):
        made = RULES["scaled_dot"].bind(case, parameters)
        return Scoring(dot=made.dot, bias=lambda rows, cols: torch.zeros(case.H, 1, 1))

    rule = replace(RULES["scaled_dot"], name="mine", bind=bind)
    case = parse_case("attention/scaled_dot/H2-L4-D8")
    assert TRITON_FLASH.supports(case, rule) == "the kernels add no bias but that of alibi"
