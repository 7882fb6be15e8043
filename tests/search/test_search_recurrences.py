"""The search over recurrences: steps, storages, lengths and gradients meet."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from attnbench import Backend
from attnbench.plugins.registry import Registry, load_wanted
from attnbench.search.covering import Covering
from attnbench.search.run import search
from attnbench.search.space import space_of
from attnbench.testing.judge import rules_in
from attnbench.types.batch import parse_batch
from attnbench.types.problem import problems_of

FOUR_AT_ONCE = '''
from attnbench import Backend, hookimpl
from attnbench.kit.recurrence import prepare

def forgets_the_tail(setup):
    """Drop the last steps where there are narrower values and steps beyond whole chunks of 16."""
    plain, case = prepare(setup), setup.case

    def call(*inputs):
        out, state = plain(*inputs)
        if case.Dv < case.D and case.Lq > 16 and case.Lq % 16:
            out[:, :, -(case.Lq % 16):] = 0
        return out, state

    return call

@hookimpl
def attnbench_backends():
    yield Backend(
        name="mine", summary="a test", prepare=forgets_the_tail, operations=("recurrent",),
        rules=("gated_delta",),
    )
'''


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_wanted([])


def test_steps_storages_and_gradients_meet(registry: Registry) -> None:
    backend = Backend(
        name="mine",
        summary="a test",
        prepare=lambda setup: lambda *inputs: inputs,
        operations=("recurrent",),
        rules=("gated", "gated_delta"),
        passes=("forward", "backward", "both"),
        storages=("dense", "packed", "pooled"),
    )
    rules = {name: rules_in(registry)[name] for name in ("gated", "gated_delta")}
    covering = Covering(space_of(backend, rules), Random(1))
    cases = []
    for _ in range(120):
        drawn = covering.draw()
        assert drawn is not None
        covering.count(drawn.row)
        cases.append(drawn.point.case)
    assert all(case.mask.is_none for case in cases)
    assert {case.storage for case in cases} == {"dense", "packed", "pooled"}
    assert {case.pass_ for case in cases if case.storage == "packed"} == {"forward", "both"}
    lengths = {steps for case in cases if case.batch for steps, _ in parse_batch(case.batch)}
    assert lengths >= {0, 1}
    assert {case.Lq % 16 for case in cases} >= {0, 1, 15}
    assert any(case.Dv < case.D and case.Hkv < case.H for case in cases)
    # A few numbers may cancel, and are their own scale.
    every = [(case, steps) for case in cases for one in problems_of(case) if (steps := case.B * one.Lq)]
    assert all(case.H * case.Dv * min(case.D, steps) >= 8 for case, steps in every)


@pytest.mark.slow
@pytest.mark.nightly
def test_a_fault_of_two_properties_is_found(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(FOUR_AT_ONCE)
    found = load_wanted([str(path)])
    searched = search("mine", found, seconds=60, seed=1)
    assert any("the output 'out'" in fault.outcome.problem for fault in searched.failures)


ONE_STEP = """
from attnbench import Backend, hookimpl
from attnbench.kit.recurrence import prepare

@hookimpl
def attnbench_backends():
    yield Backend(
        name="mine", summary="a test", prepare=prepare, operations=("recurrent",), rules=("gated",),
        supports=lambda case, rule: None if case.Lq == 1 and not case.batch else "takes one step",
    )
"""


def test_one_step_of_a_recurrence_shows_faults(tmp_path: Path) -> None:
    """It has one key, whose weight in attention would say nothing."""
    path = tmp_path / "mine.py"
    path.write_text(ONE_STEP)
    searched = search("mine", load_wanted([str(path)]), seconds=3, seed=1)
    assert searched.failures == ()
    assert 0 < searched.met <= searched.possible
