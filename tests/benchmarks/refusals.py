"""How often right kernels are refused, by stress input: ``python tests/benchmarks/refusals.py``.

Every kernel of tests/maths/right_kernels.py on random small cases (one key and one query included) in all
dtypes. For each stress input and dtype: how many were refused, the nearest to its limit, and what so many
without a refusal bound the rate by, at 95 % (three over their number).
"""

from __future__ import annotations

import random
import sys
import warnings
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "maths"))

import numpy as np
from judged import Judge
from maths_tools import RULES, small_case
from right_kernels import kernels

from attnbench.cases.ids import case_id
from attnbench.inputs.kinds import STRESS_INPUTS, stress_inputs_of
from attnbench.types.case import DTYPES, Case
from attnbench.types.mask import Mask

LENGTHS = (1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 33, 64)
FEATURES = (1, 2, 3, 4, 8, 13, 16, 32, 40, 64)


def random_case(rng: random.Random) -> Case:
    """A case of any rule, mask and dtype, of at most 64 queries and keys."""
    B, Hkv, Lk = rng.choice([1, 2]), rng.choice([1, 2]), rng.choice(LENGTHS)
    mask = Mask(
        causal=rng.choice([None, None, "upper_left", "lower_right"]),
        window=rng.choice([None, None, 1, 3, 9]),
        padding=rng.choice([None, None, "seeded", tuple(rng.randint(0, Lk) for _ in range(B))]),
        explicit=rng.choice([None, None, "bool", "float"]),
    )
    return small_case(
        rng.choice(sorted(RULES)),
        B=B,
        Hkv=Hkv,
        H=Hkv * rng.choice([1, 2, 3]),
        Lq=rng.choice(LENGTHS),
        Lk=Lk,
        D=rng.choice(FEATURES),
        Dv=rng.choice((1, 2, 8, 16, 40)),
        mask=mask,
        dtype=rng.choice(DTYPES),
        seed=rng.randrange(2**32),
    )


def main() -> None:
    """Print the table, and every refusal with the id of its case."""
    warnings.simplefilter("ignore")
    judged: dict[tuple[str, str], list[float]] = defaultdict(list)
    refused: dict[tuple[str, str], int] = defaultdict(int)
    for seed in range(200):
        case = random_case(random.Random(seed))
        for stress in stress_inputs_of(case, RULES[case.rule]):
            judge = Judge(case, stress=stress)
            for kernel in kernels():
                accuracy, problem = judge.of(kernel)
                limits = (accuracy.rms_error, accuracy.rms_limit), (accuracy.max_error, accuracy.max_limit)
                share = max(error / limit if limit else float(error > 0) for error, limit in limits)
                judged[stress, case.dtype].append(share)
                if problem:
                    refused[stress, case.dtype] += 1
                    print(f"{stress} {kernel.__name__} {case_id(case)}: {problem}", flush=True)
    for stress in (each.name for each in STRESS_INPUTS):
        for dtype in DTYPES:
            shares = judged[stress, dtype]
            if shares:
                nearest = (
                    f"nearest to its limit {np.max(shares):.2f} of it, 99 % {np.quantile(shares, 0.99):.2f}"
                )
                print(
                    f"{stress:12} {dtype:9} {refused[stress, dtype]:3} of {len(shares):5} refused; {nearest}"
                )
    total, wrong = sum(map(len, judged.values())), sum(refused.values())
    bound = "" if wrong else f", so at most {300 / total:.2g} % at 95 %"
    print(f"{wrong} of {total} refused{bound}")


if __name__ == "__main__":
    main()
