"""What a call through a choice costs more than what computes it, in µs: hot, and inside a program.

    python tests/benchmarks/dispatch.py

Hot is the least of many repetitions of a call. A program does other work between two calls, which takes
their code out of the caches: here a product with 16 MiB of weights before each of 16 calls of a decode, each
with its own keys. Its figures are medians of CPU time over rounds in random order.
"""

from __future__ import annotations

import random
import tempfile
import time
import timeit
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention as real

import attnbench.choice
from attnbench.cases.ids import parse_case
from attnbench.choice.table import Choice, Table, machine_of, write_table
from attnbench.plugins.registry import load_registry
from attnbench.types.backend import Setup
from attnbench.worker.layouts import laying_out

LAYERS, ROUNDS = 16, 100
DECODE = "attention/scaled_dot/B1-H32-Hkv8-Lq1-Lk512-D64/none/float32"
CASES = ("B1-H1-Lq4-Lk4-D8/none", "B1-H1-Lq4-Lk4-D8/causal+window:2")


def least_us(call: object) -> float:
    """Return the least time of a call."""
    return min(timeit.repeat(call, number=200, repeat=3000)) / 200 * 1e6


def loaded(folder: str, cases: list[str], backend: str) -> Callable[..., Any]:
    """Return the function of a table in which a backend serves some cases."""
    path = Path(folder) / "choice.toml"
    chosen = [Choice(case, backend, 2.0, 1.9, 2.1) for case in cases]
    path.write_text(write_table(Table("0.1.0", [], "sdpa_flash", *machine_of(load_registry()), chosen)))
    return attnbench.choice.load(path)


def prepared(case_id: str, backend: str) -> Callable[..., Any]:
    """Return the call of a backend for a case, as the choice would make it."""
    registry, case = load_registry(), parse_case(case_id)
    rule = registry.rule(case.rule)
    call = registry.backend(backend).prepare(Setup(case, rule, rule.bind(case, {}), {}, {}))
    # With one query or one head, inputs lie in both layouts.
    return laying_out(call, replace(case, layout="BLHD"), "BHLD")


def hot() -> None:
    """Print the times of calls that are left to torch, without a mask, with one, with one that is read; and
    of one that is served.
    """
    with tempfile.TemporaryDirectory() as folder:
        attention = loaded(folder, [f"attention/dot/{case}" for case in CASES], "eager")
    one, four = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 4, 8)
    calls = (
        ("no mask", one, None),
        ("a mask", one, torch.ones(1, 1, dtype=torch.bool)),
        ("a mask of a shape in the table", four, torch.randn(4, 4)),
    )
    for words, q, given in calls:
        plain = least_us(lambda q=q, given=given: real(q, q, q, given))
        through = least_us(lambda q=q, given=given: attention(q, q, q, given))
        print(f"{words}: torch's function {plain:.2f}, the choice {through:.2f}: {through - plain:.2f} more")
    call = prepared(f"attention/dot/{CASES[0]}", "eager")
    plain = least_us(lambda: call(four, four, four))
    through = least_us(lambda: attention(four, four, four, scale=1.0))
    print(
        f"a call that eager serves: eager {plain:.2f}, the choice {through:.2f}: {through - plain:.2f} more"
    )


def inside_a_program() -> None:
    """Print what the calls of a decode take one after another, and with a layer's other work before each."""
    torch.manual_seed(0)
    bmm = prepared(DECODE, "bmm")
    with tempfile.TemporaryDirectory() as folder:
        served = loaded(folder, [DECODE], "bmm")
        left = loaded(folder, [DECODE.replace("Lk512", "Lk400")], "bmm")
    ways: dict[str, Callable[..., Any]] = {
        "torch's function": lambda q, k, v: real(q, k, v, enable_gqa=True),
        "left to it by the choice": lambda q, k, v: left(q, k, v, enable_gqa=True),
        "bmm": bmm,
        "bmm by the choice": lambda q, k, v: served(q, k, v, enable_gqa=True),
    }
    case = parse_case(DECODE)
    sizes = (1, case.Hkv, case.Lk, case.D)
    caches = [(torch.randn(sizes), torch.randn(sizes)) for _ in range(LAYERS)]
    width = case.H * case.D
    weights = [torch.randn(width, width) / width**0.5 for _ in range(LAYERS)]

    def step(attention: Callable[..., Any], other_work: bool) -> float:
        x, taken = torch.randn(1, width), []
        for (k, v), w in zip(caches, weights, strict=True):
            x = x @ w if other_work else x
            q = x.view(1, case.H, 1, case.D)
            begun = time.thread_time()
            y = attention(q, k, v)
            taken.append(time.thread_time() - begun)
            x = y.view(1, width)
        return median(taken) * 1e6

    for other_work, words in ((False, "one after another"), (True, "after other work")):
        found: dict[str, list[float]] = {way: [] for way in ways}
        for way in ways:
            step(ways[way], other_work)
        for _ in range(ROUNDS):
            for way in random.sample(list(ways), len(ways)):
                found[way].append(step(ways[way], other_work))
        told = ", ".join(f"{way} {median(taken):.0f}" for way, taken in found.items())
        print(f"a decode of {case.Lk} keys, {words}: {told}")


def main() -> None:
    """Print both."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    hot()
    inside_a_program()


if __name__ == "__main__":
    main()
