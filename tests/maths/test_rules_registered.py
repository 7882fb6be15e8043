from __future__ import annotations

import pytest
from maths_tools import RULES, small_case

from attnbench.plugins.registry import load_registry

NAMES = [
    "dot", "scaled_dot", "general", "additive", "additive_sum",
    "concat_linear", "cosine", "alibi", "softcap", "sinks",
]  # fmt: skip


def test_the_built_in_rules_come_in_by_the_door_of_plugins() -> None:
    rules = load_registry().rules
    assert [name for name, entry in rules.items() if entry.source.module == "attnbench.rules"] == NAMES


@pytest.mark.parametrize("rule", NAMES)
def test_formula_and_source_are_a_line_each(rule: str) -> None:
    for line in (RULES[rule].formula, RULES[rule].source):
        assert line
        assert "\n" not in line
        assert len(line) < 100


def test_only_the_rule_that_joins_query_and_key_pairs_and_concatenates() -> None:
    assert [n for n, rule in RULES.items() if rule.pairs_keys] == ["concat_linear"]
    assert [n for n, rule in RULES.items() if rule.concatenates] == ["concat_linear"]


@pytest.mark.parametrize("rule", NAMES)
def test_every_case_makes_sense_for_every_rule(rule: str) -> None:
    assert RULES[rule].supports(small_case(rule)) is None
