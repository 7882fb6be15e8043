"""The zoo: how many animals of which kind, what they are called, and how they come in."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from attnbench import __version__
from attnbench.cases.identity import parse_case
from attnbench.plugins.loading import load
from attnbench.plugins.registry import load_registry
from attnbench.plugins.sources import installed
from attnbench.selftest.zoo import ANIMALS
from attnbench.selftest.zoo.animal import Animal, backend_of, runs
from attnbench.types.backend import Backend
from attnbench.types.source import Source

ZOO = Source("zoo", "attnbench.selftest.zoo", "attnbench", __version__)
BIG_WORDS = {"value", "shape", "timed", "state", "gradient"}

animals = pytest.mark.parametrize("animal", ANIMALS, ids=lambda animal: animal.called)


def named(name: str) -> Animal:
    (animal,) = (animal for animal in ANIMALS if animal.called == name)
    return animal


def test_there_are_enough_of_both() -> None:
    assert sum(not animal.right for animal in ANIMALS) >= 66
    assert sum(animal.right for animal in ANIMALS) >= 16


def test_there_are_some_for_everything_that_shows_a_mistake() -> None:
    traits = Counter(animal.trait for animal in ANIMALS if not animal.right)
    assert set(traits) == BIG_WORDS
    assert min(traits.values()) >= 5


def test_names_and_summaries_are_their_own() -> None:
    for of in ("called", "summary"):
        counts = Counter((getattr(animal, of), animal.right) for animal in ANIMALS)
        assert [what for what, count in counts.items() if count > 1] == []


def test_they_come_in_as_a_plugin_does_without_a_fault() -> None:
    loaded = load(ZOO)
    assert loaded.faults == ()
    assert [backend.name for backend in loaded.of(Backend)] == [animal.called for animal in ANIMALS]


def test_nothing_installed_brings_them() -> None:
    assert ZOO.module not in {source.module for source in installed()}
    assert not {animal.called for animal in ANIMALS} & set(load_registry().backends)


def test_importing_them_loads_no_torch() -> None:
    script = "import sys, attnbench.selftest.zoo; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_asking_where_they_apply_loads_no_torch() -> None:
    script = (
        "import sys\n"
        "from attnbench.cases.identity import parse_case\n"
        "from attnbench.plugins.registry import load_registry\n"
        "from attnbench.selftest.zoo import ANIMALS\n"
        "from attnbench.selftest.zoo.animal import runs\n"
        "case = parse_case('attention/alibi/B2-H4-Hkv2-Lq5-Lk70-D8/causal+padding+bool')\n"
        "rule = load_registry().rule('alibi')\n"
        "asked = [runs(animal, case, rule) for animal in ANIMALS]\n"
        "sys.exit('torch' in sys.modules or not any(asked) or all(asked))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@animals
def test_right_ones_have_nothing_to_show(animal: Animal) -> None:
    assert not animal.right or animal.trait == "value"
    assert (animal.trait == "gradient") <= ("both" in animal.passes)


@pytest.mark.parametrize(
    ("name", "shows", "hides"),
    [
        ("wrong_window_one_wider", "Lq9-Lk9-D4/window:3", "Lq9-Lk9-D4/window:9"),
        ("wrong_causal_from_the_other_corner", "Lq5-Lk9-D4/causal", "Lq9-Lk9-D4/causal"),
        ("wrong_nan_in_empty_rows", "Lq9-Lk5-D4/causal:lower_right", "Lq9-Lk5-D4/causal"),
        ("wrong_padding_one_longer", "L9-D4/padding:5", "L9-D4/padding:9"),
        ("wrong_scale_omitted", "L9-D4", "L9-D1"),
        ("wrong_sigmoid", "L9-D4", "Lq9-Lk1-D4"),
        ("wrong_tail_of_keys_dropped", "Lq9-Lk17-D4", "Lq9-Lk32-D4"),
        ("wrong_tail_of_keys_dropped", "Lq9-Lk17-D4", "Lq9-Lk17-D4/causal"),
        ("wrong_blocks_not_rescaled", "Lq9-Lk40-D4", "Lq9-Lk40-D4/causal"),
    ],
)
def test_a_mistake_applies_where_it_can_show(name: str, shows: str, hides: str) -> None:
    rule = load_registry().rule("scaled_dot")
    supports = backend_of(named(name)).supports
    for text, can in ((shows, True), (hides, False)):
        case = parse_case(f"attention/scaled_dot/H2-{text}")
        assert runs(named(name), case, rule) is can
        assert supports(case, rule) == (None if can else "its mistake can't show in such a case")


def test_what_belongs_to_a_rule_applies_to_that_rule_alone() -> None:
    registry = load_registry()
    for name, own in (("wrong_sink_forgotten", "sinks"), ("wrong_general_transposed", "general")):
        case = {rule: parse_case(f"attention/{rule}/H2-L9-D4") for rule in registry.rules}
        applies = [rule for rule in registry.rules if runs(named(name), case[rule], registry.rule(rule))]
        assert applies == [own]
