"""The condition of a fault: said only if it is true over all cases of a check."""

from __future__ import annotations

from attnbench.testing.conditions import condition

HEADS, PLAIN = "attention/dot/H4-Hkv2-L9-D8", "attention/dot/H4-L9-D8"
LONG, SMALL = "attention/dot/H4-L129-D8", "attention/dot/H1-L65-D1"


def test_one_property_that_all_failing_cases_have_and_no_right_one() -> None:
    assert "with fewer key/value heads than query heads (case.Hkv != case.H)" in condition([HEADS], [PLAIN])
    assert "case.dtype == 'bfloat16'" in condition([PLAIN + "/bfloat16"], [PLAIN])
    packed = "recurrent/delta/q9-H4-D8/none/float32/packed"
    assert "the storage pooled (case.storage == 'pooled')" in condition([packed[:-6] + "pooled"], [packed])
    assert condition([HEADS, PLAIN], ["attention/dot/H4-L9-D8/causal"]) == ""
    assert condition([HEADS], []) == ""


def test_several_are_told_together_only_if_the_case_was_made_small() -> None:
    both, one, other = (f"{PLAIN}/{mask}" for mask in ("causal+window:3", "causal", "window:3"))
    assert condition([both], [one, other, PLAIN]) == ""
    told = condition([both], [one, other, PLAIN], small=both)
    assert told.startswith(
        "It fails in all cases with a causal mask (case.mask.causal is not None) and a window"
    )


def test_a_size_is_told_if_no_right_case_is_as_large() -> None:
    least = {"Lq = Lk": 65}
    assert condition([LONG], [PLAIN], small=SMALL, least=least) == (
        "It fails in all cases with Lk > 64, or Lq > 64, and is right in all others. Look at the "
        "boundary of blocks at 64."
    )
    told = condition([LONG], [PLAIN, "attention/dot/H4-Lq9-Lk129-D8"], small=SMALL, least=least)
    assert told.startswith("It fails in all cases with Lq > 64, and")
    assert condition([LONG], [PLAIN, LONG.replace("H4", "H2")], small=SMALL, least=least) == ""


def test_what_a_small_case_lacks_is_not_needed() -> None:
    """All failing cases have a mask; the one that was made small has none, so masks do not matter."""
    assert condition([f"{PLAIN}/causal"], [PLAIN], small=PLAIN) == ""


def test_cases_that_fail_otherwise_are_not_called_right() -> None:
    assert condition([HEADS], [PLAIN], right=False).endswith("(case.Hkv != case.H), and so in no other.")
