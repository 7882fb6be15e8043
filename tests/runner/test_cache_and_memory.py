"""Through a whole run: inputs that rotate, and memory that a backend is known to need."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_parts import PLAIN, by_backend, declared, run_of

from attnbench.plugins.registry import load_registry

MIB = 1024**2
ROTATING = "attention/dot/B1-H4-Lq64-Lk64-D64/none/float32/cpu/forward/rotating"


def test_a_rotating_case_is_checked_timed_and_recorded_as_such(odd_plugins: None, tmp_path: Path) -> None:
    names = ("eager", "can_not_be_forked", "remember_when_timed")
    # A thousand calls in a stretch: more than warming up makes, so that copies are met again.
    dials = {"sets": 2, "turn_s": 0.02, "budget_s": 0.5}
    stored = run_of(tmp_path, (ROTATING,), names, registry=load_registry(), **dials)
    assert [planned.case for planned in stored.cases] == [ROTATING]
    records = by_backend(stored, ROTATING)
    for name in names[:2]:
        assert records[name].status == "ok", records[name].reason
        assert records[name].verified_calls >= 2 * 2
        assert records[name].timed_calls > 0
    # It remembers by address: new values in the same pool are wrong for it.
    assert records["remember_when_timed"].status == "mismatch"


@pytest.mark.parametrize("forkable", [True, False])
def test_peak_memory_of_a_run_is_what_a_backend_is_known_to_need(
    odd_plugins: None, tmp_path: Path, forkable: bool
) -> None:
    """64 MiB, within 3 %; beside it one that needs next to nothing for so small a case."""
    registry = declared(load_registry(), "take_64_mib", forkable=forkable)
    records = by_backend(run_of(tmp_path, (PLAIN,), ("eager", "take_64_mib"), registry=registry))
    known, little = records["take_64_mib"], records["eager"]
    assert (known.status, little.status) == ("ok", "ok"), known.reason
    assert known.peak_extra_bytes == pytest.approx(64 * MIB, rel=0.03)
    assert little.peak_extra_bytes is not None
    assert little.peak_extra_bytes < 2 * MIB
