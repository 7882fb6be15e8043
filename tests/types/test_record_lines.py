"""Lines of a run file: written and read back they are the same, whatever they hold."""

from __future__ import annotations

import json
import math
from typing import get_args

import msgspec
import pytest

from attnbench.types import record as r
from attnbench.types.record import Accuracy
from attnbench.types.status import MEANING, STATUSES, Status

EXACT = Accuracy(*[1e-308] * 6, 1, 1, 1)


def test_lines_come_back_as_they_were_each_on_one_line() -> None:
    block = r.Block(0, [0], 1, [9], [8], [0], [0], [10], mode="cold", host_ns=[2**63 - 1])
    failure = r.Failure("crashed", "line\nbreak, ünïcode, \u2028")
    record = r.Record(
        "c", "r", "b", "mismatch", accuracy=Accuracy(*[1e-308] * 6, 1, 1, 1), failed_check="values"
    )
    scale = r.MachineScale({1024: [1]}, 8, [2], [0.5])
    line = r.SetLine("c", 0, [1], ["b"], {"b": [1]}, {"b": [block]}, [], {"b": failure}, scale)
    for each in (record, line, r.EndLine("now", 1.5, {"check": 0.1}, [0.25])):
        text = msgspec.json.encode(each)
        assert b"\n" not in text
        assert msgspec.json.decode(text, type=r.Line) == each


def test_kinds_tell_lines_apart() -> None:
    kinds = {cls.__struct_config__.tag: cls for cls in get_args(r.Line)}
    assert list(kinds) == ["manifest", "case", "set", "record", "end"]
    assert {cls.__struct_config__.tag_field for cls in kinds.values()} == {"kind"}
    end = r.EndLine("2026-01-01", 1.5, {"check": 0.5}, [0.25, 1, 2])
    assert json.loads(msgspec.json.encode(end)) == {
        "kind": "end", "finished": "2026-01-01", "wall_s": 1.5, "phases_s": {"check": 0.5},
        "load_average": [0.25, 1, 2],
    }  # fmt: skip


def test_a_block_of_the_cpu_says_nothing_of_devices() -> None:
    block = r.Block(0, [0], 1, [9], [8], [0], [0], [10])
    assert list(json.loads(msgspec.json.encode(block))) == [
        "stretch", "turns", "calls", "wall_ns", "cpu_ns", "switches", "faults", "asked_ns",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        b'{"kind":"end","finished":"x","wall_s":1.5}',
        b'{"kind":"record","case":"c","rule":"r","backend":"b","status":"fine"}',
        b'{"kind":"rekord","case":"c"}',
        b'{"case":"c","rule":"r","backend":"b","status":"ok"}',
        b'{"kind":"end","finished":"x","wall_s":"1.5","phases_s":{}}',
        b'{"kind":"end","finished":"x","wall_s":1.5,"phases_s":{}',
    ],
    ids=["missing", "status", "kind", "no kind", "type", "torn"],
)
def test_what_is_no_line_is_refused(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(text, type=r.Line)


def test_a_field_that_a_later_version_adds_is_left_out() -> None:
    text = b'{"kind":"end","finished":"x","wall_s":1,"phases_s":{},"more":[1,2]}'
    assert msgspec.json.decode(text, type=r.Line) == r.EndLine("x", 1.0, {})


def test_each_status_word_of_files_has_one_meaning() -> None:
    assert get_args(Status) == STATUSES
    assert [status for status in STATUSES if MEANING[status].timed] == ["ok", "inaccurate", "suspect"]
    assert [status for status in STATUSES if MEANING[status].declined] == ["unsupported", "unavailable"]


@pytest.mark.parametrize(
    ("error", "reference", "budget"),
    [(3e-7, 1.5e-7, 2.0), (0.0, 1e-7, 0.0), (0.0, 0.0, 0.0), (1e-9, 0.0, math.inf)],
)
def test_the_error_budget_is_a_ratio_even_where_the_reference_is_exact(
    error: float, reference: float, budget: float
) -> None:
    rms = Accuracy(error, 9.0, reference, 3.0, 1.0, 1.0, 1, 1, 1)
    largest = Accuracy(9.0, error, 3.0, reference, 1.0, 1.0, 1, 1, 1)
    assert (rms.error_budget, rms.max_error_budget) == (pytest.approx(budget), 3)
    assert (largest.error_budget, largest.max_error_budget) == (3, pytest.approx(budget))
