"""How near rounding and small mistakes come to the limits of coarse arithmetics.

``python tests/benchmarks/arithmetics.py``

The kernels are those of tests/maths: coarse_kernels.py, and the small mistakes of test_coarse_rounding.py.
For each arithmetic: the largest share of its limits that rounding reaches over the cases there, and of the
limits of TF32 the smallest that all operands together reach; and the largest correlation of its errors before
and after a nudge. For each mistake: the arithmetics whose limits would hide it in some case, and the smallest
correlation there.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "maths"))

from coarse_kernels import coarse_kernels
from test_coarse_rounding import CASES, LONG, SUBTLE, judges, within

from attnbench.types.arithmetic import ARITHMETICS, UNIT, assumed


def main() -> None:
    """Print both tables as Markdown."""
    warnings.simplefilter("ignore")
    print("| arithmetic | gap | assumed | largest share | least share of TF32's | correlation |")
    print("| --- " * 6 + "|")
    for arithmetic in ARITHMETICS[1:]:
        rounded = coarse_kernels(arithmetic)
        share = max(within(case, kernel, arithmetic) for case in CASES for kernel in rounded.values())
        alike = max(
            judges(case)["normal"].scatter(kernel).alike for case in CASES for kernel in rounded.values()
        )
        finer = min(within(case, rounded["qk weights v"], "tf32") for case in CASES)
        is_assumed = "yes" if arithmetic in assumed("float32") else ""
        start = f"{arithmetic} | {UNIT[arithmetic]:g} | {is_assumed}"
        print(f"| {start} | {share:.2f} | {finer:.2g} | {alike:.2f} |")
    print("\n| mistake | within the limits of | correlation | elements off |\n| --- | --- | --- | --- |")
    for name, kernel in SUBTLE.items():
        hides = [one for one in assumed("float32") if any(within(case, kernel, one) <= 1 for case in LONG)]
        found = [judges(case)["normal"].scatter(kernel) for case in LONG]
        alike, off = min(one.alike for one in found), max(one.off / one.count for one in found)
        print(f"| {name} | {', '.join(hides)} | {alike:.3f} | {off:.1%} |")


if __name__ == "__main__":
    main()
