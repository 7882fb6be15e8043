"""What a call through a choice costs more than what computes it: the least of many repetitions, in µs.

python tests/benchmarks/dispatch.py
"""

from __future__ import annotations

import tempfile
import timeit
from dataclasses import replace
from pathlib import Path

import torch
from torch.nn.functional import scaled_dot_product_attention as real

import attnbench.choice
from attnbench.cases.ids import parse_case
from attnbench.choice.table import Choice, Table, machine_of, write_table
from attnbench.plugins.registry import load_registry
from attnbench.types.backend import Setup
from attnbench.worker.layouts import laying_out

CASES = ("B1-H1-Lq4-Lk4-D8/none", "B1-H1-Lq4-Lk4-D8/causal+window:2")


def least_us(call: object) -> float:
    """Return the least time of a call."""
    return min(timeit.repeat(call, number=200, repeat=3000)) / 200 * 1e6


def main() -> None:
    """Print the times of calls that are left to torch, without a mask, with one, with one that is read; and
    of one that is served.
    """
    torch.set_num_threads(1)
    chosen = [Choice(f"attention/dot/{case}", "eager", 2.0, 1.9, 2.1) for case in CASES]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "choice.toml"
        path.write_text(write_table(Table("0.1.0", [], "sdpa_flash", *machine_of(load_registry()), chosen)))
        attention = attnbench.choice.load(path)
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
    registry, case = load_registry(), parse_case(f"attention/dot/{CASES[0]}")
    rule = registry.rule(case.rule)
    prepared = registry.backend("eager").prepare(Setup(case, rule, rule.bind(case, {}), {}, {}))
    call = laying_out(prepared, replace(case, layout="BLHD"), "BHLD")
    plain = least_us(lambda: call(four, four, four))
    through = least_us(lambda: attention(four, four, four, scale=1.0))
    print(
        f"a call that eager serves: eager {plain:.2f}, the choice {through:.2f}: {through - plain:.2f} more"
    )


if __name__ == "__main__":
    main()
