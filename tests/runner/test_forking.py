"""What may be forked once it's prepared: nothing that holds a device or threads."""

from __future__ import annotations

from dataclasses import replace

from run_parts import PLAIN

from attnbench.cases.ids import parse_case
from attnbench.plugins.registry import load_registry
from attnbench.stats.protocol import can_be_forked


def test_neither_a_device_nor_threads_nor_what_says_no_is_forked_when_prepared() -> None:
    case = parse_case(PLAIN)
    eager = load_registry().backends["eager"].record
    assert can_be_forked(eager, case)
    assert not can_be_forked(eager, replace(case, device="cuda"))
    assert not can_be_forked(eager, replace(case, threads=2))
    assert not can_be_forked(replace(eager, forkable=False), case)
