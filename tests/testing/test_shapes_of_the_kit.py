"""The kit's shapes: mistakes that show at some sizes alone, and the pairs of sizes that meet."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import wrong_shapes

from attnbench import Backend, Case
from attnbench.plugins.registry import load_registry
from attnbench.runner.options import make_options
from attnbench.testing.cases import choose
from attnbench.testing.judge import located, plan, records_of, rules_in

RULES = rules_in(load_registry())
SIMPLE = Backend("mine", "a test", prepare=print, rules=("scaled_dot",), dtypes=("float32", "bfloat16"))

REACHED: dict[str, Callable[[Case], bool]] = {
    "wrong_scale at 80": lambda case: case.D == 80,
    "wrong_scale at 96": lambda case: case.D == 96,
    "third_group": lambda case: case.Hkv == 3 and case.H == 6,
    "last_key": lambda case: case.Lk == 385 and case.mask.is_none,
    "causal_rows": lambda case: case.mask.causal is not None and case.Lq > 2048,
    "rows": lambda case: case.Lq > 4096,
}
"""The cases in which each mistake shows."""


def test_mistakes_of_some_sizes_are_found() -> None:
    registry = located(Path(wrong_shapes.__file__)).registry
    names = ("attend", *(function.__name__ for function in wrong_shapes.WRONG))
    choices = plan(registry, names).choices
    asked: dict[str, tuple[str, ...]] = {}
    for mistake, reached in REACHED.items():
        name = mistake.partition(" ")[0]
        case = next(one for one in choices[name].cases if reached(one.case))
        asked[case.id] = ("attend", name)
    found = {
        (record.case, record.backend): (record.status, record.failed_check)
        for record in records_of(asked, registry, make_options(timed=False))
    }
    assert found == {
        (case, name): ("ok", "") if name == "attend" else ("mismatch", "values")
        for case, both in asked.items()
        for name in both
    }


def test_every_two_sizes_meet() -> None:
    cases = [one.case for one in choose(SIMPLE, RULES).cases if one.large]
    lengths = {(case.Lq, case.Lk) for case in cases if 1 < case.Lq < 600 and case.B == 1}
    features, heads = {16, 32, 64, 80, 96, 112, 128, 256}, {(3, 3), (4, 1), (4, 2), (6, 3), (16, 8)}
    for wanted, of in (
        (lengths, lambda case: (case.Lq, case.Lk)),
        (features, lambda case: case.D),
        (heads, lambda case: (case.H, case.Hkv)),
    ):
        for other, of_other in ((features, lambda case: case.D), (heads, lambda case: (case.H, case.Hkv))):
            if wanted is not other:
                assert {(of(case), of_other(case)) for case in cases} >= set(product(wanted, other))
    alone = {length for both in lengths for length in both}
    beside = {multiple + step for multiple in (16, 64, 128, 256, 512) for step in (-1, 0, 1)}
    assert beside <= alone
    assert {2049, 4097} <= {case.Lq for case in cases}
    assert {2049, 4097} <= {case.Lk for case in cases}
