"""Two commits measured against each other, from the repository to the verdicts."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_project import Install, Project

from attnbench.cases.ids import parse_case
from attnbench.cases.select import Selection
from attnbench.compare.paired import compared_live
from attnbench.live.measure import measure_live, measured_backends
from attnbench.live.sides import two_sides
from attnbench.plugins.registry import Registry, load_registry
from attnbench.plugins.sources import installed
from attnbench.runner.options import CHECKS, Options
from attnbench.types.compared import Compared
from attnbench.types.errors import BadInput

CASE = "attention/dot/B1-H2-Lq16-Lk16-D8/none/float32/cpu/forward"
KERNEL = """
from attnbench import Backend, hookimpl

def attend(setup):
    return lambda q, k, v: (q @ k.transpose(-1, -2)).softmax(-1) @ v

def slow(setup):
    call = attend(setup)
    return lambda q, k, v: [call(q, k, v) for _ in range({times})][-1]

def off(setup):
    call = attend(setup)
    return lambda q, k, v: call(q, k, v) * {factor}

@hookimpl
def attnbench_backends():
    for name, prepare in (("slow", slow), ("off", off)):
        yield Backend(name=name, summary=name, prepare=prepare, rules=("dot",))
{more}
"""
NEW = '    yield Backend(name="new", summary="new", prepare=attend, rules=("dot",))'


def source(times: int = 1, factor: float = 1.0, more: str = "") -> str:
    return KERNEL.format(times=times, factor=factor, more=more)


def registry() -> Registry:
    return load_registry(installed())


def compared(project: Project, ref: str, head: str, out: Path, named: tuple[str, ...] = ()) -> Compared:
    there = registry()
    options = Options(budget_s=0.02, sets=9, without=CHECKS)
    with two_sides(ref, head, None, None, there, project.repo) as sides:
        selection = Selection((parse_case(CASE),))
        run = measure_live(sides, selection, named, there, options, out, None)
    return compared_live(run)


@pytest.mark.slow
def test_what_the_users_tree_does_not_have_is_told(project: Install, tmp_path: Path) -> None:
    there = project("mini_p")
    there.commit(mini_p=source())
    there.commit(mini_p=source(more=NEW))
    there.write(mini_p=source())
    found = compared(there, "HEAD~", "HEAD", tmp_path / "out", ("off",))
    assert [cell.backend for cell in found.cells] == ["off"]
    assert found.warnings == (
        "backend 'new' of the head side is not measured: the user's tree doesn't have it",
    )


@pytest.mark.slow
def test_what_a_commit_changed_is_told_and_the_tree_is_left_alone(project: Install, tmp_path: Path) -> None:
    there = project("mini_m")
    there.commit(mini_m=source())
    there.commit(mini_m=source(times=5, factor=1.5, more=NEW))
    in_the_tree = source(times=99, more=NEW)
    there.write(mini_m=in_the_tree)
    found = compared(there, "HEAD~", "HEAD", tmp_path / "out")
    cells = {cell.backend: cell for cell in found.cells}
    assert set(cells) == {"slow", "off", "new"}
    assert cells["slow"].verdict == "slower"
    assert cells["slow"].ratio is not None
    assert 2 < cells["slow"].ratio < 20
    assert cells["off"].verdict == "mismatch"
    assert (cells["off"].base_status, cells["off"].new_status) == ("ok", "mismatch")
    assert (cells["new"].verdict, cells["new"].reason) == ("none", "only in new")
    assert found.base.startswith("HEAD~ (")
    assert found.new.startswith("HEAD (")
    assert found.differences == found.warnings == ()
    assert (there.repo / "mini_m.py").read_text() == in_the_tree


def test_backends_whose_code_is_the_same_are_measured_where_they_are_named(project: Install) -> None:
    there = project("mini_n")
    there.commit(mini_n=source())
    known = registry()
    with two_sides("HEAD", ".", None, None, known, there.repo) as sides:
        assert measured_backends(sides, known, ()) == ("slow", "off")
        assert measured_backends(sides, known, ("eager",)) == ("eager",)
        with pytest.raises(BadInput, match="no backend 'eagr'; did you mean 'eager'"):
            measured_backends(sides, known, ("eagr",))


def test_where_no_code_can_differ_there_is_nothing_to_measure(project: Install) -> None:
    there = project("mini_o")
    there.commit(mini_o="def nothing(): ...")
    known = registry()
    with (
        two_sides("HEAD", ".", None, None, known, there.repo) as sides,
        pytest.raises(BadInput, match="no backend's code can differ between the two sides"),
    ):
        measured_backends(sides, known, ())
