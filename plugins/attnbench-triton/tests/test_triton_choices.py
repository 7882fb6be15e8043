"""Which kernels and blocks are chosen, and how: on a GPU that a test stands in for."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest
from attnbench_triton import choices
from attnbench_triton.choices import INTERPRETED, Choice, candidates, choose, splits, splits_keys
from attnbench_triton.forward import forward_kernel

from attnbench.cases.ids import parse_case


def on_gpu(text: str):
    return replace(parse_case(text), device="cuda")


@pytest.mark.parametrize(
    ("text", "decodes"),
    [
        ("attention/scaled_dot/H8-Hkv1-Lq8-Lk999-D64/bfloat16", True),
        ("attention/scaled_dot/H16-Hkv1-Lq8-Lk999-D64/bfloat16", False),
        ("attention/scaled_dot/H8-Lq17-Lk999-D64/bfloat16", False),
        ("attention/scaled_dot/H8-Hkv1-Lq8-Lk999-D64/float32", False),
    ],
)
def test_few_queries_go_through_the_decoding_kernel(text: str, decodes: bool) -> None:
    assert splits_keys(parse_case(text)) == decodes


def test_the_rows_of_the_decoding_kernel_hold_all_queries_of_a_group() -> None:
    for text, rows in (("H8-Hkv1-Lq5", 64), ("H8-Lq1", 16), ("H6-Hkv2-Lq6", 32)):
        found = candidates("decode_kernel", on_gpu(f"attention/scaled_dot/{text}-Lk512-D64/float16"))
        assert {one.M for one in found} == {rows}


def test_keys_are_split_until_the_device_is_full_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "processors", lambda: 100)
    for text, wanted in (
        ("B1-H32-Hkv8-Lq1-Lk131072-D128", 25),
        ("B1-H1-Lq1-Lk131072-D128", 128),
        ("B1-H32-Hkv8-Lq1-Lk1000-D128", 4),
        ("B64-H32-Hkv8-Lq1-Lk131072-D128", 1),
        ("B1-H1-Lq1-Lk131072-D128/causal:lower_right+window:500", 4),
    ):
        assert splits(on_gpu(f"attention/scaled_dot/{text}")) == wanted


def test_small_cases_and_the_interpreter_take_what_needs_no_tuning() -> None:
    case = on_gpu("attention/scaled_dot/H2-L256-D64/float16")

    assert choose(forward_kernel, case, lambda chosen: 1, (), {}) == candidates("forward_kernel", case)[0]
    assert choose(forward_kernel, replace(case, device="cpu"), lambda chosen: 1, (), {}) == INTERPRETED


TUNED = """
import sys
from dataclasses import replace
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.runtime import JITFunction
from attnbench.cases.ids import parse_case
from attnbench_triton.choices import candidates, choose
from attnbench_triton.forward import forward_kernel

class Device:
    get_current_device = staticmethod(lambda: 0)
    get_current_target = staticmethod(lambda: GPUTarget("cuda", 90, 32))
    @staticmethod
    def get_benchmarker():
        def measure(call, quantiles):
            call()
            print("measured", ran[-1])
            return [2.0 if ran[-1][0] == (128 * 64,) else 1.0] * 3
        return measure

ran = []
triton.runtime.driver.set_active(Device)
def run(self, *given, grid, **told):
    chosen = told["M"], told["N"], told["num_warps"], told["num_stages"], told["enable_fp_fusion"]
    ran.append((grid(told), *chosen))
JITFunction.run = run
case = replace(parse_case("attention/scaled_dot/H32-L8192-D128/causal/float16"), device="cuda")
q = torch.zeros(1, dtype=torch.float16)
given = [q] * 5 + [None] * 4 + [1] * 15 + [1, 32, 1, 8192, 8192, 0, 1 << 30, 0, 0.1, None]
shapes = dict(D=128, DV=128, D_BLOCK=128, DV_BLOCK=128)
print(choose(forward_kernel, case, lambda chosen: chosen.M * chosen.N, given, shapes))
"""


def test_the_fastest_is_taken_and_all_processes_take_the_same(tmp_path) -> None:
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    first, second = (
        subprocess.run(
            [sys.executable, "-c", TUNED], env=environment, capture_output=True, text=True, check=True
        ).stdout.splitlines()
        for _ in range(2)
    )
    # Of those that take the time 1 the first: neither of the two with 128 queries and 64 keys.
    assert first[-1] == str(Choice(64, 64, 4, 3))
    assert sum(line.startswith("measured") for line in first) == 4
    assert second == first[-1:]
