"""Two sides in one run: each with its own code, next to each other in every set, one the other's baseline."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_parts import LESS_CHECKED

from attnbench.cases.ids import parse_case
from attnbench.plugins.registry import Registry, load_registry, two_sided
from attnbench.plugins.sources import installed
from attnbench.results.format import StoredRun
from attnbench.runner.forecast import RunPlan
from attnbench.runner.link import Interpreter
from attnbench.runner.options import Options
from attnbench.runner.plan import order_of_turns, plan_all
from attnbench.runner.run import Side, resume_run, start_run
from attnbench.types.compared import BASE, HEAD, baseline_of, parts_of, sided
from attnbench.types.errors import BadInput
from attnbench.types.extensions import Source

CASE = "attention/dot/B1-H2-Lq16-Lk16-D8/none/float32/cpu/forward"
MODULE = "kernel_on_two_sides"
KERNEL = """
import attnbench
from attnbench.types.backend import Backend

def prepare(setup):
    score = setup.scoring
    def call(q, k, v):
        for _ in range({times}):
            out = (q @ k.transpose(-1, -2)).softmax(-1) @ v
        return out + {wrong}
    return call

@attnbench.hookimpl
def attnbench_backends():
    yield Backend(name="mine", summary="mine", prepare=prepare, rules=("dot",))
"""


def kernel(folder: Path, *, times: int = 1, wrong: float = 0.0) -> str:
    folder.mkdir(parents=True)
    (folder / f"{MODULE}.py").write_text(KERNEL.format(times=times, wrong=wrong))
    return str(folder)


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The folder of the base side's kernel, from which this process lists what there is."""
    folder = kernel(tmp_path / "base")
    monkeypatch.syspath_prepend(folder)
    yield folder
    sys.modules.pop(MODULE, None)


def registry() -> Registry:
    return load_registry([*installed(), Source("mine", MODULE, "mine", "1")])


def run_two(
    base: str, head: str, out: Path, names: dict[str, tuple[str, ...]], **options: object
) -> StoredRun:
    both = two_sided(registry(), names)
    dials = Options(**({"budget_s": 0.01, "sets": 2, "without": LESS_CHECKED} | options))  # type: ignore[arg-type]
    plan = RunPlan((parse_case(CASE),), tuple(both.backends), both, dials)
    sides = {
        BASE: Side(Interpreter(variables={"PYTHONPATH": base}), {"commit": "1"}),
        HEAD: Side(Interpreter(variables={"PYTHONPATH": head})),
    }
    return start_run(plan, out, None, sides)


def test_each_side_runs_its_own_code(base: str, tmp_path: Path) -> None:
    """The head computes the same thing four times over, and says so in its ratio to the base."""
    head = kernel(tmp_path / "head", times=4)
    run = run_two(base, head, tmp_path / "out", {BASE: ("mine",), HEAD: ("mine",)}, sets=3)
    found = {record.backend: record for record in run.records}
    assert list(found) == ["mine@base", "mine@head"]
    assert all(record.status == "ok" for record in run.records), [r.reason for r in run.records]
    assert found["mine@base"].baseline == found["mine@head"].baseline == "mine@base"
    assert found["mine@base"].ratio == 1.0
    ratio = found["mine@head"].ratio
    assert ratio is not None
    assert ratio > 1.5
    assert run.manifest.sides == {BASE: {"commit": "1"}, HEAD: {}}


def test_what_is_wrong_on_one_side_is_wrong_there_alone(base: str, tmp_path: Path) -> None:
    head = kernel(tmp_path / "head", wrong=1e-2)
    names = {BASE: ("mine", "eager"), HEAD: ("mine", "eager")}
    run = run_two(base, head, tmp_path / "out", names, timed=False)
    statuses = {record.backend: record.status for record in run.records}
    assert statuses == {"eager@base": "ok", "eager@head": "ok", "mine@base": "ok", "mine@head": "mismatch"}


def test_what_one_side_does_not_have_is_no_contender(base: str) -> None:
    both = two_sided(registry(), {BASE: ("eager",), HEAD: ("mine", "eager")})
    assert list(both.backends) == ["eager@base", "eager@head", "mine@head"]
    assert [entry.side for entry in both.backends.values()] == [BASE, HEAD, HEAD]


def test_a_live_comparison_is_not_resumed(base: str, tmp_path: Path) -> None:
    head = kernel(tmp_path / "head")
    run = run_two(base, head, tmp_path / "out", {BASE: ("mine",), HEAD: ("mine",)}, timed=False)
    with pytest.raises(BadInput, match="whose sides are gone: compare anew"):
        resume_run(run.path, registry(), None)


def test_names() -> None:
    assert sided("eager", HEAD) == "eager@head"
    assert sided("eager", "") == "eager"
    assert parts_of("eager@head") == ("eager", "head")
    assert parts_of("eager") == ("eager", "")
    assert baseline_of("bmm@head", "eager") == baseline_of("bmm@base", "eager") == "bmm@base"
    assert baseline_of("bmm", "eager") == "eager"


BACKENDS = st.lists(st.sampled_from("abcdef"), min_size=1, unique=True)


@given(BACKENDS, st.integers(1, 12), st.integers(0, 2**32))
def test_sides_follow_each_other_in_every_round(backends: list[str], rounds: int, seed: int) -> None:
    samples = {sided(name, side): rounds for name in backends for side in (BASE, HEAD)}
    order = order_of_turns(samples, Random(seed))
    assert len(order) == len(samples) * rounds
    for first, second in zip(order[::2], order[1::2], strict=True):
        assert parts_of(first)[0] == parts_of(second)[0]
        assert parts_of(first)[1] != parts_of(second)[1]
    assert all(before != after for before, after in pairwise(order))


@given(BACKENDS, st.integers(1, 12), st.integers(0, 2**32))
def test_each_side_goes_first_as_often(backends: list[str], rounds: int, seed: int) -> None:
    """But for a lone pair, whose sides alternate."""
    samples = {sided(name, side): rounds for name in backends for side in (BASE, HEAD)}
    firsts = order_of_turns(samples, Random(seed))[::2]
    for name in backends:
        ahead = sum(first == sided(name, BASE) for first in firsts)
        behind = sum(first == sided(name, HEAD) for first in firsts)
        assert ahead + behind == rounds
        assert abs(ahead - behind) <= (1 if len(backends) > 1 else rounds)


def test_who_goes_first_is_drawn() -> None:
    samples = {"a@base": 1, "a@head": 1}
    assert {order_of_turns(samples, Random(seed))[0] for seed in range(20)} == {"a@base", "a@head"}


def test_both_sides_have_the_plan_of_the_base() -> None:
    """Of each backend its own: it is the two of a pair that are compared."""
    traces = {"a@base": [10_000], "a@head": [14_000], "b@base": [90_000], "b@head": [70_000]}
    plans = plan_all(traces, Options())
    assert plans["a@base"] == plans["a@head"]
    assert plans["b@base"] == plans["b@head"]
    assert plans["a@base"].calls > plans["b@base"].calls
