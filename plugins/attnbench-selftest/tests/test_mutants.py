"""Mutants: how many of which kind, their names, and how they come in."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest
from attnbench_selftest.judge import SOURCE
from attnbench_selftest.mutants import MUTANTS, attnbench_backends
from attnbench_selftest.mutants.mutant import Mutant

from attnbench.cases.ids import parse_case
from attnbench.plugins.load import load
from attnbench.plugins.registry import load_registry
from attnbench.plugins.sources import installed
from attnbench.types.backend import Backend

BIG_WORDS = {"value", "shape", "timed", "state", "gradient"}

mutants = pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.backend_name)


def named(name: str) -> Mutant:
    (mutant,) = (mutant for mutant in MUTANTS if mutant.backend_name == name)
    return mutant


def test_there_are_enough_of_both() -> None:
    assert sum(not mutant.right for mutant in MUTANTS) >= 66
    assert sum(mutant.right for mutant in MUTANTS) >= 16


def test_there_are_some_for_everything_that_shows_a_mistake() -> None:
    traits = Counter(mutant.trait for mutant in MUTANTS if not mutant.right)
    assert set(traits) == BIG_WORDS
    assert min(traits.values()) >= 5


def test_names_and_summaries_are_their_own() -> None:
    for of in ("backend_name", "summary"):
        counts = Counter((getattr(mutant, of), mutant.right) for mutant in MUTANTS)
        assert [what for what, count in counts.items() if count > 1] == []


def test_they_come_in_as_a_plugin_does_without_a_fault() -> None:
    loaded = load(SOURCE)
    assert loaded.faults == ()
    assert [backend.name for backend in loaded.of(Backend)] == [mutant.backend_name for mutant in MUTANTS]


def test_nothing_installed_brings_them() -> None:
    assert SOURCE.module not in {source.module for source in installed()}
    assert not {mutant.backend_name for mutant in MUTANTS} & set(load_registry().backends)


def test_importing_them_loads_no_torch() -> None:
    script = "import sys, attnbench_selftest.mutants; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_asking_where_they_apply_loads_no_torch() -> None:
    script = (
        "import sys\n"
        "from attnbench.cases.ids import parse_case\n"
        "from attnbench.plugins.registry import load_registry\n"
        "from attnbench_selftest.mutants import MUTANTS\n"
        "case = parse_case('attention/alibi/B2-H4-Hkv2-Lq5-Lk70-D8/causal+padding+bool')\n"
        "rule = load_registry().rule('alibi')\n"
        "asked = [mutant.runs(case, rule) for mutant in MUTANTS]\n"
        "sys.exit('torch' in sys.modules or not any(asked) or all(asked))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@mutants
def test_right_ones_have_nothing_to_show(mutant: Mutant) -> None:
    assert not mutant.right or mutant.trait == "value"
    assert (mutant.trait == "gradient") <= ("both" in mutant.passes)


@pytest.mark.parametrize(
    ("name", "shows", "hides"),
    [
        ("wrong_window_one_wider", "Lq9-Lk9-D4/window:3", "Lq9-Lk9-D4/window:9"),
        ("wrong_causal_from_the_other_corner", "Lq5-Lk9-D4/causal", "Lq9-Lk9-D4/causal"),
        ("wrong_nan_in_empty_rows", "Lq9-Lk5-D4/causal:lower_right", "Lq9-Lk5-D4/causal"),
        ("wrong_padding_one_longer", "L9-D4/padding:5", "L9-D4/padding:9"),
        ("wrong_scale_omitted", "L9-D4", "L9-D1"),
        ("wrong_powers_of_2", "L9-D4", "Lq9-Lk1-D4"),
        ("wrong_tail_of_keys_dropped", "Lq9-Lk17-D4", "Lq9-Lk32-D4"),
        ("wrong_tail_of_keys_dropped", "Lq9-Lk17-D4", "Lq9-Lk17-D4/causal"),
        ("wrong_blocks_not_rescaled", "Lq9-Lk40-D4", "Lq9-Lk40-D4/causal"),
    ],
)
def test_a_mistake_applies_where_it_can_show(name: str, shows: str, hides: str) -> None:
    rule = load_registry().rule("scaled_dot")
    backends = {one.name: one for one in attnbench_backends()}
    supports = backends[name].supports
    for text, can in ((shows, True), (hides, False)):
        case = parse_case(f"attention/scaled_dot/H2-{text}")
        assert named(name).runs(case, rule) is can
        assert supports(case, rule) == (None if can else "its mistake can't show in such a case")


def test_what_belongs_to_a_rule_applies_to_that_rule_alone() -> None:
    registry = load_registry()
    for name, own in (("wrong_sink_forgotten", "sinks"), ("wrong_general_transposed", "general")):
        case = {rule: parse_case(f"attention/{rule}/H2-L9-D4") for rule in registry.rules}
        applies = [rule for rule in registry.rules if named(name).runs(case[rule], registry.rule(rule))]
        assert applies == [own]
