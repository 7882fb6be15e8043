"""Who keeps answers for as long as all inputs stay the same is never wrong, and is found by its time."""

from __future__ import annotations

from pathlib import Path

from run_parts import by_backend, run_of, six_turns

from attnbench.stats.doubts import FEWEST

CASE = "attention/dot/B1-H4-Lq256-Lk256-D64/none/float32/cpu/forward"


def test_who_gives_its_last_answer_again_is_suspect_and_others_are_not(
    odd_plugins: None, tmp_path: Path
) -> None:
    names = ("eager", "honest1", "keeps_its_answer")
    stored = run_of(tmp_path, (CASE,), names, **six_turns(FEWEST // 2))
    records = by_backend(stored, CASE)
    found = records["keeps_its_answer"]
    assert found.status == "suspect", found.reason
    assert "on inputs written anew take" in found.reason
    for name in ("eager", "honest1"):
        assert "on inputs written anew" not in records[name].reason
