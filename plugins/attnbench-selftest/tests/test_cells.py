"""Cells, their verdicts alone and among others, and families of them."""

from __future__ import annotations

from math import log

import pytest
from synthetic import alike, set_line, slower_by

from attnbench.compare.comparison import Comparison
from attnbench.compare.interval import Interval
from attnbench_selftest.rates import Count
from attnbench_selftest.cells import (
    Cell,
    alone,
    among,
    cells_of,
    count,
    families,
    peer_families,
    peer_rates,
)
from attnbench_selftest.cells import Peers
from attnbench_selftest.measure import Trial
from attnbench.types.verdict import VerdictRule, Word

NAMES = ("copy_0", "copy_1", "copy_2")
DELTA = 0.02


def cell(
    ratio: float,
    p_value: float,
    *,
    half: float = 0.01,
    cluster: str = "case",
    peers: dict[str, Word] | None = None,
) -> Cell:
    interval = Interval(ratio * (1 - half), ratio * (1 + half), 0.96)
    found = Comparison(ratio, interval, p_value, 9, 36, 0, False, (log(ratio),) * 9)
    return Cell(cluster, "copy_1", found, peers or {})


def test_a_cell_for_each_contender_and_trial() -> None:
    trials = [
        Trial(case, tuple(set_line(i, slower_by(0.1), NAMES, case) for i in range(9))) for case in ("a", "b")
    ]
    cells = cells_of(trials, NAMES[1:], NAMES[0])
    assert [(one.cluster, one.contender) for one in cells] == [
        ("a", "copy_1"),
        ("a", "copy_2"),
        ("b", "copy_1"),
        ("b", "copy_2"),
    ]
    assert all(one.comparison.ratio == pytest.approx(1.1, abs=0.005) for one in cells)
    assert cells_of(trials, ["missing"], NAMES[0]) == []
    assert cells_of(trials, NAMES[1:], "missing") == []


def test_peers_see_the_same_samples_as_the_comparison() -> None:
    sizes: list[tuple[int, int]] = []

    def decide(contender: object, baseline: object) -> Word:
        assert isinstance(contender, list)
        sizes.append((len(contender), len(contender[0])))
        return "same"

    trial = Trial("a", tuple(set_line(i, alike(), NAMES) for i in range(9)))
    peers = Peers([VerdictRule("rule", "a test", decide)])
    (whole,) = cells_of([trial], ["copy_1"], "copy_0", peers=peers)
    (short,) = cells_of([trial], ["copy_1"], "copy_0", peers=peers, part=0.25)
    assert whole.peers == short.peers == {"rule": "same"}
    assert sizes == [(9, 8), (9, 2)]
    assert (whole.comparison.pairs, short.comparison.pairs) == (72, 18)


def test_preempted_pairs_may_be_kept() -> None:
    import msgspec

    line = set_line(0, alike(), NAMES)
    (first, second) = line.blocks["copy_1"]
    preempted = msgspec.structs.replace(first, cpu_ns=[first.cpu_ns[0] // 2, *first.cpu_ns[1:]])
    line = msgspec.structs.replace(line, blocks=line.blocks | {"copy_1": [preempted, second]})
    trial = Trial("a", (line,))
    (without,) = cells_of([trial], ["copy_1"], "copy_0")
    (with_them,) = cells_of([trial], ["copy_1"], "copy_0", leave_out=False)
    assert (without.comparison.left_out, with_them.comparison.left_out) == (1, 0)
    assert (without.comparison.pairs, with_them.comparison.pairs) == (7, 8)


def test_a_difference_that_is_clear_alone_may_not_be_among_forty() -> None:
    found = cell(1.05, 2 / 2**9)
    assert (alone(found, DELTA), among(found, DELTA)) == ("slower", "unclear")
    surer = cell(1.05, 2 / 2**17)
    assert (alone(surer, DELTA), among(surer, DELTA)) == ("slower", "slower")
    assert (alone(cell(1 / 1.05, 2 / 2**17), DELTA), alone(cell(1.0, 0.5), DELTA)) == ("faster", "same")


def test_families_adjust_together_and_leave_out_the_rest() -> None:
    """Of the least p-value of nine sets four in forty are told, three are not; what is over is left out."""
    real, chance = cell(1.05, 2 / 2**9), cell(1.0, 0.9, half=0.1)
    for reals, told in ((4, 4), (3, 0)):
        (words,) = families([*[real] * reals, *[chance] * (40 - reals), real, real], DELTA, 40)
        assert words.count("slower") == told
    assert families([real] * 3, DELTA, 4) == []


def test_counts_are_by_cluster_in_order() -> None:
    cells = [cell(1.0, 1.0, cluster=name) for name in "aab"] + [cell(1.1, 1.0, cluster="b")]
    assert count(cells, lambda one: one.comparison.ratio > 1.05) == [Count(0, 2), Count(1, 2)]
    assert count([], lambda one: True) == []


def test_rates_of_peers_are_of_those_that_judged_every_cell() -> None:
    cells = [
        cell(1.0, 1.0, peers={"both": "slower", "one": "slower"}),
        cell(1.0, 1.0, peers={"both": "unclear"}),
    ]
    assert peer_rates(cells, "slower") == {"both": 0.5}
    assert peer_rates(cells, "faster") == {"both": 0.0}
    assert peer_rates([], "slower") == {}


def test_a_family_of_peers_has_an_alarm_if_any_of_its_cells_has() -> None:
    quiet, loud = cell(1.0, 1.0, peers={"rule": "unclear"}), cell(1.0, 1.0, peers={"rule": "slower"})
    assert peer_families([quiet, loud, quiet, quiet, loud], "slower", 2) == {"rule": 0.5}
    assert peer_families([quiet], "slower", 2) == {}
