"""Differences between the environments of two sides, and those that matter."""

from __future__ import annotations

from typing import Any

import pytest
from made_sides import beside, cell, side

from attnbench.compare.environment import check_alike, differences, one_sided
from attnbench.compare.stored import compare_sides
from attnbench.types.compared import Measured


def run(**facts: Any) -> Measured:
    return side(cell(), *beside(), environment={"cpu": "Made CPU", "torch": "2.6"} | facts)


@pytest.mark.parametrize(
    ("fact", "base", "new", "matters"),
    [
        ("cpu", "A", "B", True),
        ("cuda_devices", ["H100"], [], True),
        ("cpu_quota", 2, 4, True),
        ("governor", "performance", "powersave", True),
        ("torch", "2.6", "2.7", True),
        ("numpy", "2.0", "2.1", True),
        ("library numba", "0.67.0", "0.68.0", True),
        ("torch.threads", "1", "2", True),
        ("python", "3.11.7", "3.12.0", True),
        ("python", "3.11.7", "3.11.8", False),
        ("variable MKL_CBWR", "COMPATIBLE", "AVX2", True),
        ("variable TORCH_HOME", "~/a", "~/b", False),
        ("pandas", "2.2", "2.3", False),
        ("system", "Linux 6.1", "Linux 6.2", False),
        ("load_average", [0.1], [5.0], False),
        ("plugin mine", "mine 1.0", "mine 1.1", False),
        ("attnbench", "0.1.0", "0.2.0", False),
        ("something new", 1, 2, False),
        ("protocol allocator_pinned", True, False, True),
        ("protocol lockstep", True, False, True),
        ("protocol launches", 3, 1, True),
        ("protocol sample_s", 0.0004, 0.001, True),
        ("protocol some new dial", 1, 2, True),
        ("protocol budget_s", 0.05, 1.0, False),
        ("protocol repetitions", 9, 22, False),
        ("protocol delta", 0.02, 0.05, False),
        ("protocol baseline", "eager", "bmm", False),
    ],
)
def test_which_facts_and_dials_matter(fact: str, base: object, new: object, matters: bool) -> None:
    _, of_protocol, dial = fact.rpartition("protocol ")

    def told(value: object) -> list[Measured]:
        return [side(cell(), protocol={dial: value}) if of_protocol else run(**{fact: value})]

    (found,) = differences(told(base), told(new))
    assert (found.fact, found.matters) == (fact, matters)


def test_what_matters_comes_first() -> None:
    base, new = [run(system="a", cpu="A")], [run(system="b", cpu="B")]
    found = differences(base, new)
    assert [one.fact for one in found] == ["cpu", "system"]
    assert compare_sides(base, new, force=True).differences == found


def test_force_over_nothing_is_not_written_anywhere() -> None:
    assert not compare_sides([run()], [run(system="b")], force=True).forced


def test_a_side_whose_own_runs_differ_differs() -> None:
    (found,) = differences([run(cpu="A"), run(cpu="B")], [run(cpu="A"), run(cpu="B")])
    assert (found.base, found.new, found.matters) == ("A or B", "A or B", True)


def test_a_fact_that_one_side_does_not_tell_is_listed_and_warned_of() -> None:
    found = differences([run()], [run(numpy="2.0", system="x")])
    assert [(one.fact, one.base, one.matters) for one in found] == [
        ("numpy", "not stated", False),
        ("system", "not stated", False),
    ]
    assert one_sided(found) == ["only one side states numpy (not stated in base, 2.0 in new)"]
    check_alike(found)


def test_a_variable_that_one_side_has_not_set_matters() -> None:
    (found,) = differences([run()], [run(**{"variable OMP_DYNAMIC": "TRUE"})])
    assert (found.base, found.new, found.matters) == ("no value", "TRUE", True)


def test_an_untold_fact_hides_no_difference_among_those_that_tell() -> None:
    bare = side(cell(), environment={"torch": "2.6"})
    (found,) = differences([run(cpu="A"), bare], [run(cpu="B"), bare])
    assert found.matters


def test_tools_that_measure_otherwise_are_not_alike() -> None:
    other = side(cell(), origin="pytest-benchmark", protocol={"timer": "perf_counter"})
    (found,) = differences([run()], [other])
    assert (found.fact, found.base, found.new) == ("measured by", "attnbench", "pytest-benchmark")
    assert found.matters
    # Both tools on both sides: dials are held against those of the same tool.
    assert differences([run(), other], [run(), other]) == ()


def test_long_texts_are_cut_but_stay_apart() -> None:
    (found,) = differences(
        [run(**{"torch.build": "x" * 500 + "a"})], [run(**{"torch.build": "x" * 500 + "b"})]
    )
    assert len(found.base) < 80
    assert found.base != found.new
