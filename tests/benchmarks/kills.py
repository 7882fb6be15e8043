"""Which mistakes each family of inputs shows alone: ``python tests/benchmarks/kills.py [ID ...]``.

A table for each case: the kernels of tests/maths/wrong_kernels.py by family, ``x`` where the verdict refuses
one.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "maths"))

from judged import Judge
from maths_tools import RULES
from right_kernels import kernels
from wrong_kernels import WRONG

from attnbench.cases.ids import parse_case
from attnbench.inputs.kinds import families_of, family_draws

CASES = [
    f"attention/{rule}/H4-Hkv2-Lq{lengths[0]}-Lk{lengths[1]}-D{D}/{mask}/{dtype}"
    for rule, D in (
        ("scaled_dot", 64),
        ("scaled_dot", 80),
        ("general", 64),
        ("softcap", 64),
        ("additive", 16),
    )
    for lengths, mask in (((64, 65), "none"), ((512, 512), "causal"))
    for dtype in ("bfloat16", "float32")
]


def main(ids: list[str]) -> None:
    """Print the tables."""
    warnings.simplefilter("ignore")
    for text in ids or CASES:
        case = parse_case(text)
        judges = {name: Judge(case, family=name) for name in families_of(case, RULES[case.rule])}
        print(text, {name: family_draws(case, name) for name in judges}, flush=True)
        right = {kernel.__name__: kernel for kernel in kernels() if kernel.__name__ != "one_query_at_a_time"}
        for name, kernel in {**right, **WRONG}.items():
            marks = ["x" if judge.of(kernel)[1] else "." for judge in judges.values()]
            print(
                f"  {name:24}", "  ".join(f"{mark:>{len(f)}}" for mark, f in zip(marks, judges, strict=True))
            )
        print(" " * 27 + "  ".join(judges), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
