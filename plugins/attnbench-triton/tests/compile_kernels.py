"""Compile the kernels for GPUs on a machine without one, and print what each needs.

Usage: python compile_kernels.py ARCHITECTURE all|features|CASE...

ARCHITECTURE: as 90 for compute capability 9.0. all: every kernel with every candidate for its blocks.
features: with the first one, every kind of mask, rule and shape. CASE: the id of a case, with the first one.
The command fails where one does not compile, or needs more shared memory than a program may have there.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import triton
from attnbench_triton import attention, choices, recurrence
from attnbench_triton.backend import problem_of
from attnbench_triton.choices import Choice
from triton.backends.compiler import GPUTarget

from attnbench.cases.ids import parse_case
from attnbench.rules import attnbench_rules
from attnbench.types.backend import Setup
from attnbench.types.case import Case, rule_parameter_shapes

RULES = {rule.name: rule for rule in attnbench_rules()}
KERNELS = {
    attention: ("forward_kernel", "decode_kernel", "merge_kernel", "queries_kernel", "keys_kernel"),
    recurrence: ("inverses_kernel", "chunks_kernel"),
}
SHARED_KIB = {80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 103: 227, 120: 99}
"""What a program may have, by compute capability (CUDA C++ Programming Guide, technical specifications)."""
FIRST_KIB = 99
"""Of first candidates as compiled for 8.0, since 8.6 and 8.9 get the same code."""

SHAPES = (
    *(
        f"attention/scaled_dot/{shape}-D{D}/causal:lower_right/{dtype}/{passes}"
        for dtype in ("bfloat16", "float32")
        for D in (64, 128, 256)
        for shape, passes in (("H4-Hkv2-L256", "both"), ("H8-Hkv2-Lq1-Lk512", "forward"))
    ),
    "attention/softcap/H2-L256-D256/bool:per_head/bfloat16/both",
    "attention/alibi/B2-H2-L256-D64/padding+float/float16/both",
    "attention/alibi/B2-H4-Hkv1-Lq16-Lk256-D64/float/float16/forward",
    *(
        f"recurrent/gated_delta/H4-Hkv2-L256-D{D}/{dtype}"
        for dtype in ("bfloat16", "float32")
        for D in (64, 128)
    ),
)
FEATURES = (
    "attention/scaled_dot/H2-L256-D64/none/float16/both",
    "attention/scaled_dot/B2-H4-Hkv2-Lq100-Lk300-D80/causal+window:9/bfloat16/both",
    "attention/scaled_dot/B2-H4-Lq64-Lk300-D13-Dv24/padding/float16/both",
    "attention/alibi/B2-H4-Hkv2-L256-D32/causal/bfloat16/both",
    "attention/alibi/B2-H4-Hkv1-Lq1-Lk300-D112/padding/float16/both",
    "attention/softcap/H2-L256-D64/causal/bfloat16/both",
    "attention/softcap/H2-Lq4-Lk256-D64/bool:per_head/bfloat16/both",
    "attention/sinks/B2-H4-Hkv1-L256-D64/causal+window:2/bfloat16/both",
    "attention/sinks/H4-Hkv1-Lq16-Lk300-D96/float/bfloat16/both",
    "attention/dot/B2-H2-L70-D16/bool/bfloat16/both",
    "attention/dot/B2-H2-L70-D256/float/bfloat16/both",
    "attention/dot/H4-Hkv1-Lq16-Lk300-D128/none/bfloat16/both",
    "attention/dot/H4-Hkv1-Lq16-Lk300-D256/none/bfloat16/both",
    "attention/dot/B2-H2-L70-D16/causal+float:per_head/float16/both",
    "attention/scaled_dot/H1-Lq1-Lk2-D1/window:1/float16/both",
    "attention/scaled_dot/H1-Lq65-Lk1-D1/float32/both",
    "recurrent/linear/H2-L100-D13-Dv80/float16",
    "recurrent/gated/H4-Hkv1-L100-D128-Dv64/bfloat16",
    "recurrent/delta/H2-L1-D64/bfloat16",
)


class Offline:
    """Stands for a device to Triton."""

    def __init__(self, architecture: int) -> None:
        self.get_current_device = lambda: 0
        self.get_current_stream = lambda device: 0
        self.get_current_target = lambda: GPUTarget("cuda", architecture, 32)


class Compiling:
    """Stands for a kernel to the code that launches it, which gives it real arguments, and compiles it."""

    def __init__(self, kernel: Any) -> None:
        self.kernel, self.__name__ = kernel, kernel.__name__
        self.compiled: list[Any] = []

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def compile_it(*given: Any, **told: Any) -> None:
            self.compiled.append(self.kernel.warmup(*given, grid=grid, **told))

        return compile_it


def launch(case: Case) -> None:
    """Run the host's side of a forward pass, and of a backward pass where the case has one."""
    rule = RULES[case.rule]
    dtype = getattr(torch, case.dtype)
    if rule.update is not None:
        step = case.B, case.H, case.Lq
        q, k = (torch.zeros(case.B, case.Hkv, case.Lq, case.D, dtype=dtype) for _ in "qk")
        decay = torch.zeros(step) if rule.update.decays else None
        beta = torch.zeros(step, dtype=dtype) if rule.update.corrects else None
        state = torch.zeros(case.B, case.H, case.D, case.Dv)
        recurrence.recurrence(
            replace(case, device="cuda"), q, k, torch.zeros(*step, case.Dv, dtype=dtype), decay, beta, state
        )
        return
    shapes = rule_parameter_shapes(case, rule)
    own = {name: torch.zeros(shape, dtype=dtype) for name, shape in shapes.items()}
    problem = problem_of(Setup(case, rule, rule.bind(case, own), own, {}))
    q = torch.zeros(case.B, case.H, case.Lq, case.D, dtype=dtype)
    k = torch.zeros(case.B, case.Hkv, case.Lk, case.D, dtype=dtype)
    v = torch.zeros(case.B, case.Hkv, case.Lk, case.Dv, dtype=dtype)
    learned = own.get("slope"), own.get("sink")
    out, lse = attention.forward(problem, q, k, v, *learned)
    if case.pass_ != "forward":
        attention.backward(problem, torch.zeros_like(out), q, k, v, out, lse, *learned)


def compiled(texts: tuple[str, ...], most: int) -> Iterator[tuple[str, Any]]:
    """Yield cases and what was compiled for them, with up to so many candidates."""
    stand_ins = []
    for module, names in KERNELS.items():
        for name in names:
            stand_ins.append(Compiling(getattr(module, name)))
            setattr(module, name, stand_ins[-1])
    for text in texts:
        case = parse_case(text)
        on_gpu = replace(case, device="cuda")
        for number in range(most):

            def chosen(kernel: Any, *_: Any, number: int = number, on_gpu: Case = on_gpu) -> Choice:
                listed = choices.candidates(kernel.__name__, on_gpu)
                return listed[min(number, len(listed) - 1)]

            choices.choose = chosen
            launch(case)
        found = [each for stand_in in stand_ins for each in stand_in.compiled]
        yield from ((text, each) for each in dict.fromkeys(found))
        for stand_in in stand_ins:
            stand_in.compiled.clear()


def resources(cubin: bytes) -> str:
    """Return registers and bytes of stack of a thread, in words."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(cubin)
        asked = [triton.knobs.nvidia.cuobjdump.path, "-res-usage", file.name]
        told = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", told)
    assert found is not None, told
    return f"{found[1]} registers, {found[2]} bytes of stack"


def main(architecture: int, *words: str) -> int:
    """Compile; return how many need too much."""
    triton.runtime.driver.set_active(Offline(architecture))
    too_much = 0
    everything = words == ("all",)
    texts = SHAPES if everything else FEATURES if words == ("features",) else words
    for text, kernel in compiled(texts, 4 if everything else 1):
        limit = FIRST_KIB if architecture == 80 and not everything else SHARED_KIB[architecture]
        shared = kernel.metadata.shared / 1024
        words = f"{shared:.0f} KiB shared, {resources(kernel.asm['cubin'])}"
        print(f"{kernel.metadata.name} {text}: {words}", flush=True)
        if shared > limit:
            too_much += 1
            print(f"FAILED: more than {limit} KiB of shared memory", flush=True)
    return too_much


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]) > 0)
