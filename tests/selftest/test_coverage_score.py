"""How often printed intervals hold what other launches find, on launches that are made up."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from pathlib import Path

import numpy as np
import pytest
from synthetic import TERMS, set_line

from attnbench.compare.comparison import compare
from attnbench.runner.run_file import StoredRun
from attnbench.selftest.findings import exit_code
from attnbench.selftest.score_coverage import expected_coverage, held, score_coverage
from attnbench.types.record import Manifest, Record

NAMES = ("eager", "one", "other")
MANIFEST = Manifest(1, "id", "", "0", [], ["case"], list(NAMES), [], None, {}, [], {})


def launch(number: int, bias: float = 0.0, *, spread: float = 0.01) -> StoredRun:
    """A run of nine sets whose ratios vary by ``spread``, and are off by ``bias`` as a whole."""
    rng = np.random.default_rng(100 + number)

    def factor(name: str, index: int) -> float:
        truth = {"eager": 1.0, "one": 1.3, "other": 0.8}[name]
        off = 0.0 if name == "eager" else bias
        return float(truth * exp(rng.normal(0.0, spread) + off))

    sets = tuple(set_line(i, factor, NAMES, samples=1) for i in range(9))
    records = tuple(_record(name, sets) for name in NAMES)
    return StoredRun(Path("run"), MANIFEST, (), sets, records, None, False, 0)


def _record(name: str, sets: Sequence[object]) -> Record:
    found = compare(sets, name, "eager")  # type: ignore[arg-type]
    assert found is not None
    assert found.interval is not None
    low, high = found.interval.low, found.interval.high
    return Record(
        "case", "scaled_dot", name, "ok",
        ratio=found.ratio, ratio_low=low, ratio_high=high, baseline="eager", sets=9,
    )  # fmt: skip


def test_every_interval_but_the_baselines_is_held_against_the_others() -> None:
    runs = [launch(i) for i in range(3)]
    found = held(runs)
    assert [(one.launch, one.backend) for one in found] == [
        (number, name) for number in range(3) for name in ("one", "other")
    ]
    first = found[0]
    others = compare([*runs[1].sets, *runs[2].sets], "one", "eager")
    assert others is not None
    assert first.pooled == pytest.approx(others.ratio)
    assert first.holds == (first.low <= first.pooled <= first.high)


def test_launches_that_do_not_differ_pass() -> None:
    scored = score_coverage([launch(i) for i in range(30)], TERMS)
    least, most = scored.findings
    assert (least.trials, least.first, most.first) == (60, True, False)
    assert least.estimate is not None
    assert least.estimate > 0.85
    assert least.outcome != "refuted"
    assert exit_code(scored.findings) == 0
    assert scored.notes[0] == "30 launches, each with processes of its own"
    assert "99.6 %" in scored.notes[1]


def test_launches_that_differ_more_than_their_intervals_say_are_refuted() -> None:
    rng = np.random.default_rng(1)
    scored = score_coverage([launch(i, float(rng.normal(0, 0.1))) for i in range(30)], TERMS)
    assert scored.findings[0].outcome == "refuted"
    assert exit_code(scored.findings) == 1


def test_intervals_that_are_too_wide_miss_the_aim_beyond() -> None:
    import msgspec

    def wide(run: StoredRun) -> StoredRun:
        records = tuple(
            msgspec.structs.replace(record, ratio_low=0.1, ratio_high=10.0) for record in run.records
        )
        return StoredRun(run.path, run.manifest, (), run.sets, records, None, False, 0)

    least, most = score_coverage([wide(launch(i)) for i in range(80)], TERMS).findings
    assert (least.estimate, least.outcome, most.outcome) == (1.0, "met", "refuted")
    assert exit_code([least, most]) == 0


@pytest.mark.parametrize("runs", [[], [launch(0)]])
def test_one_launch_or_none_is_nothing_to_go_by(runs: list[StoredRun]) -> None:
    scored = score_coverage(runs, TERMS)
    assert [one.trials for one in scored.findings] == [0, 0]
    assert exit_code(scored.findings) == 0


def test_what_launches_that_do_not_differ_give() -> None:
    """Against very many others it is the interval's confidence; against few less, since they vary too."""
    confidence, many = expected_coverage(9, 60)
    assert confidence == pytest.approx(1 - 2 * 1 / 512)
    assert many == pytest.approx(confidence, abs=0.006)
    _, few = expected_coverage(9, 3)
    assert few < many - 0.005
    assert expected_coverage(3, 5) == (0.0, 0.0)
