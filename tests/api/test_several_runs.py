"""Runs read together: each keeps the verdicts that it has alone."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from run_files import write_records

import attnbench
from attnbench.types.errors import BadFile
from attnbench.types.record import Record

CASE = "attention/dot/B1-H2-Lq8-Lk8-D4/none/float32/cpu/forward"
SLOWER = Record(
    CASE, "dot", "slow", "ok", median_ms=2.0, ratio=1.5, ratio_low=1.4, ratio_high=1.6, p_value=0.0039,
    baseline="eager", delta=0.02, sets=9,
)  # fmt: skip
EAGER = Record(CASE, "dot", "eager", "ok", median_ms=1.3, ratio=1.0, baseline="eager", delta=0.02, sets=9)
CHANCE = [
    msgspec.structs.replace(SLOWER, backend=f"other{n}", ratio=1.0, ratio_low=0.9, p_value=0.9)
    for n in range(60)
]


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    return [
        write_records(tmp_path / "a.jsonl", EAGER, SLOWER),
        write_records(tmp_path / "b.jsonl", EAGER, SLOWER, *CHANCE),
    ]


def test_each_file_is_a_family_of_its_own(two: list[Path]) -> None:
    both = attnbench.load(two)
    assert [len(records) for records in both.by_file] == [2, 62]
    assert both.records == both.by_file[0] + both.by_file[1]
    alone = [one for path in two for one in attnbench.load(path).judged]
    assert both.judged == alone
    verdicts = [one.verdict for one in both.judged if one.record.backend == "slow"]
    # What one run tells, the other can't among 61 comparisons.
    assert verdicts == ["slower", "unclear"]


def test_of_several_files_that_with_an_id_that_cannot_be_read_is_named(two: list[Path]) -> None:
    text = re.sub(r',"digest":"\w{16}"}', "}", two[1].read_text())
    two[1].write_text(text.replace("attention/dot", "attenton/dot"))
    with pytest.raises(BadFile, match=r"b\.jsonl': case 'attenton/dot.*no operation 'attenton'"):
        attnbench.load(two)


def test_so_are_they_in_the_frame(two: list[Path]) -> None:
    frame = attnbench.load(two).frame
    slow = frame[frame["backend"] == "slow"]
    assert slow["p_value"].tolist() == [0.0039, 0.0039]
    assert slow["p_adjusted"].tolist() == pytest.approx([0.0039, 0.0039 * 61])
    assert slow["verdict"].tolist() == ["slower", "unclear"]
    assert frame[frame["backend"] == "eager"]["verdict"].tolist() == ["baseline"] * 2
