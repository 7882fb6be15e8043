from __future__ import annotations

from itertools import combinations, product
from math import prod
from typing import Any

import pytest
from make_edges import FILE, MOST, MOST_HALF, MOST_TANH, possible, text
from make_edges import VALUES as OTHERS

from attnbench.cases.ids import case_id
from attnbench.cases.suites import read_suite
from attnbench.rules import attnbench_rules
from attnbench.types.case import Case
from attnbench.types.mask import mask_text

VALUES = {"rule": tuple(rule.name for rule in attnbench_rules())} | OTHERS
SUITE = read_suite(FILE)


def conditions(case: Case) -> dict[str, Any]:
    """A case in the terms of ``VALUES``, read back from the case itself."""
    layer: dict[str, Any] = {}
    if case.layer is not None:
        layer = {"E": case.layer.E, "bias": case.layer.bias, "cross": case.layer.cross, "out": case.layer.out}
        usual = {"bias": False, "cross": False, "out": True}
        layer = {key: value for key, value in layer.items() if usual.get(key) != value}
    return {
        "rule": case.rule,
        "mask": mask_text(case.mask),
        "lengths": (case.Lq, case.Lk),
        "features": (case.D, case.Dv),
        "heads": (case.H, case.Hkv),
        "layer": layer,
        "dtype": case.dtype,
        "B": case.B,
    }


def is_usual_layer(case: Case) -> bool:
    return case.layer is not None and case.layer.E == case.H * case.D and case.layer.out


ROWS = [conditions(case) for case in SUITE.cases if not is_usual_layer(case)]
USUAL = [case for case in SUITE.cases if is_usual_layer(case)]


def can_meet(pair: dict[str, Any]) -> bool:
    """Whether a whole case has both: tried out over all values of the parameters that could forbid it."""
    limiting = [name for name in VALUES if name not in pair and name != "layer"]
    return any(
        possible(pair | dict(zip(limiting, rest, strict=True)) | {"layer": pair.get("layer", {})})
        for rest in product(*(VALUES[name] for name in limiting))
    )


@pytest.mark.parametrize(("left", "right"), list(combinations(VALUES, 2)))
def test_every_two_conditions_that_can_meet_do(left: str, right: str) -> None:
    for a, b in product(VALUES[left], VALUES[right]):
        pair = {left: a, right: b}
        meets = any(row[left] == a and row[right] == b for row in ROWS)
        assert meets == can_meet(pair), pair


def test_the_file_is_what_its_script_writes() -> None:
    assert FILE.read_text(encoding="utf-8") == text()


def test_it_is_a_selection_and_not_a_product() -> None:
    assert 60 <= len(SUITE.cases) <= 110
    assert len({case_id(case) for case in SUITE.cases}) == len(SUITE.cases)


def test_the_layer_that_most_libraries_have_meets_every_mask_and_length() -> None:
    assert {case.rule for case in USUAL} == {"scaled_dot"}
    assert all(case.Hkv == case.H and case.Dv == case.D for case in USUAL)
    masks = {"none", "causal", "padding", "bool", "float"}
    lengths = {(65, 65), (63, 129)}
    assert {(mask_text(c.mask), (c.Lq, c.Lk)) for c in USUAL} == set(product(masks, lengths))
    assert {(case.is_self_attention, case.layer.bias) for case in USUAL if case.layer} == set(
        product([True, False], repeat=2)
    )


def test_no_case_is_too_much_work() -> None:
    for case in SUITE.cases:
        size = prod((case.B, case.H, case.Lq, case.Lk, case.D))
        assert size <= MOST, case_id(case)
        assert case.dtype != "float16" or size <= MOST_HALF, case_id(case)
        assert not case.rule.startswith("additive") or size <= MOST_TANH, case_id(case)


def test_it_is_for_checking_and_compiles_on_a_handful() -> None:
    assert SUITE.check_only
    assert 3 <= len(SUITE.compiled) <= 5
    compiled = [SUITE.cases[position] for position in SUITE.compiled]
    assert {case.operation for case in compiled} == {"attention"}
    assert len({case.mask for case in compiled}) == len(compiled)
