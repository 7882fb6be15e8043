"""A record names the kind of time it has: batch and cold are different answers."""

from __future__ import annotations

from typing import get_args

from attnbench.stats.doubts import MODE_NOTES, mode_notes
from attnbench.types.record import Block, DeviceMode, SetLine


def line(*modes: DeviceMode) -> SetLine:
    blocks = [Block(0, [0], 1, [9], [9], [0], [0], [], mode=mode) for mode in modes]
    return SetLine("case", 0, [0], ["x"], {}, {"x": blocks}, ["x"], {})


def test_every_kind_of_sample_has_a_note_that_names_it() -> None:
    for mode in get_args(DeviceMode):
        notes = mode_notes([line(mode, mode), line(mode)], "x")
        assert notes == ([MODE_NOTES[mode]] if mode else [])
    assert MODE_NOTES["batch"].startswith("batch: ")
    assert MODE_NOTES["cold"].startswith("cold: ")


def test_kinds_that_differ_between_sets_are_both_named() -> None:
    assert mode_notes([line("batch"), line("launches")], "x") == [MODE_NOTES["batch"], MODE_NOTES["launches"]]
    assert mode_notes([line("batch")], "other") == []
    assert mode_notes([line("")], "x") == []
