"""Two sides in one run: each with its own code, next to each other in every set, one the other's baseline."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from run_parts import LESS_CHECKED

from attnbench.cases.ids import parse_case
from attnbench.plugins.registry import Registry, load_registry, two_sided
from attnbench.plugins.sources import installed
from attnbench.results.format import StoredRun
from attnbench.runner.forecast import RunPlan
from attnbench.runner.link import Interpreter
from attnbench.runner.options import Options
from attnbench.runner.run import Side, resume_run, start_run
from attnbench.types.compared import BASE, HEAD
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
        return out
    return call

def wrong(setup):
    return lambda q, k, v: prepare(setup)(q, k, v) + {wrong}

@attnbench.hookimpl
def attnbench_backends():
    yield Backend(name="mine", summary="mine", prepare=prepare, rules=("dot",))
    yield Backend(name="other", summary="mine", prepare=wrong, rules=("dot",))
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
    """The head computes the same thing four times over, and has one wrong backend."""
    head = kernel(tmp_path / "head", times=4, wrong=1e-2)
    names = {BASE: ("mine", "other"), HEAD: ("mine", "other")}
    run = run_two(base, head, tmp_path / "out", names, sets=3)
    found = {record.backend: record for record in run.records}
    assert {name: record.status for name, record in found.items()} == {
        "mine@base": "ok", "mine@head": "ok", "other@base": "ok", "other@head": "mismatch",
    }  # fmt: skip
    assert found["mine@base"].baseline == found["mine@head"].baseline == "mine@base"
    assert found["mine@base"].ratio == 1.0
    ratio = found["mine@head"].ratio
    assert ratio is not None
    assert ratio > 1.5
    assert run.manifest.sides == {BASE: {"commit": "1"}, HEAD: {}}
    with pytest.raises(BadInput, match="which can't be resumed: compare again"):
        resume_run(run.path, registry(), None)
