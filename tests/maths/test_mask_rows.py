from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from maths_tools import masks, small_case

import attnbench.masks as masks_module
from attnbench.cases.ids import parse_case
from attnbench.inputs.draw import store, widen
from attnbench.masks import KEPT_SHARE, added_rows, keep_rows, kept_pairs, kept_rows, key_lengths
from attnbench.types.case import DTYPES, Case
from attnbench.types.mask import Mask, mask_text
from attnbench.types.problem import problems_of


def by_hand(case: Case) -> np.ndarray:
    """The words of Mask's docstring, pair by pair; random parts from a mask of their own.

    (B, H, Lq, Lk) where heads differ, else (B, 1, Lq, Lk).
    """
    mask, offset = case.mask, 0 if case.mask.causal == "upper_left" else case.Lk - case.Lq
    lengths, alone = key_lengths(case), None
    if mask.explicit is not None:
        random = Mask(explicit=mask.explicit, per_head=mask.per_head)
        alone = keep_rows(replace(case, mask=random), np.arange(case.Lq))
    kept = np.ones((case.B, case.H if mask.per_head else 1, case.Lq, case.Lk), bool)
    for b, h, i, j in np.ndindex(kept.shape):
        position = i + offset
        kept[b, h, i, j] = not (
            (mask.causal is not None and j > position)
            or (mask.window is not None and abs(position - j) >= mask.window)
            or (lengths is not None and j >= lengths[b])
            or (alone is not None and not alone[b, h, i, j])
        )
    return kept


@st.composite
def masked_cases(draw: st.DrawFn) -> Case:
    B, Lk = draw(st.integers(1, 3)), draw(st.integers(1, 9))
    sizes = {"B": B, "Lq": draw(st.integers(1, 9)), "Lk": Lk, "seed": draw(st.integers(0, 2**40))}
    return small_case(**sizes, mask=draw(masks(B, Lk)))


@pytest.mark.parametrize(
    ("Lq", "Lk", "mask", "lines"),
    [
        (2, 5, Mask(causal="upper_left"), ["1 0 0 0 0", "1 1 0 0 0"]),
        (2, 5, Mask(causal="lower_right"), ["1 1 1 1 0", "1 1 1 1 1"]),
        (5, 2, Mask(causal="upper_left"), ["1 0", "1 1", "1 1", "1 1", "1 1"]),
        (5, 2, Mask(causal="lower_right"), ["0 0", "0 0", "0 0", "1 0", "1 1"]),
        (4, 4, Mask(window=2), ["1 1 0 0", "1 1 1 0", "0 1 1 1", "0 0 1 1"]),
        (4, 4, Mask(window=2, causal="upper_left"), ["1 0 0 0", "1 1 0 0", "0 1 1 0", "0 0 1 1"]),
        # Without causal the last query stands at the last key, as in decoding.
        (2, 5, Mask(window=2), ["0 0 1 1 1", "0 0 0 1 1"]),
    ],
)
def test_masks_as_they_are_drawn_in_the_docs(Lq: int, Lk: int, mask: Mask, lines: list[str]) -> None:
    keep = keep_rows(small_case(Lq=Lq, Lk=Lk, mask=mask), np.arange(Lq))
    assert [" ".join(str(int(x)) for x in row) for row in keep[0, 0]] == lines


def test_padding_keeps_the_first_keys_of_each_batch_element() -> None:
    keep = keep_rows(small_case(B=3, Lq=1, Lk=4, mask=Mask(padding=(4, 2, 0))), np.arange(1))
    assert keep[:, 0, 0].astype(int).tolist() == [[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]]


@pytest.mark.parametrize(
    "mask",
    [
        Mask(),
        Mask(window=7),
        Mask(causal="lower_right", window=9),
        Mask(padding=(7, 7)),
        Mask(causal="lower_right"),
    ],
)
def test_a_mask_that_keeps_every_pair_is_none(mask: Mask) -> None:
    assert keep_rows(small_case(Lq=1, Lk=7, mask=mask), np.arange(1)) is None


@given(masked_cases())
def test_rows_are_what_the_words_say(case: Case) -> None:
    keep, expected = keep_rows(case, np.arange(case.Lq)), by_hand(case)
    if keep is None:
        assert expected.all()
    else:
        assert keep.shape[1:] == expected.shape[1:]
        np.testing.assert_array_equal(np.broadcast_to(keep, expected.shape), expected)


@given(masked_cases())
def test_pairs_and_rows_are_counted_one_by_one_in_chunks_too(case: Case) -> None:
    pairs = by_hand(case)
    for at_once in (masks_module._ROWS_AT_ONCE, 2 * case.B * case.Lk):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(masks_module, "_ROWS_AT_ONCE", at_once)
            by_head = np.broadcast_to(pairs, (case.B, case.H, case.Lq, case.Lk))
            by_group = by_head.reshape(case.B, case.Hkv, -1, case.Lk)
            assert kept_pairs(case) == by_head.sum()
            queries, keys = by_head.any(axis=3).sum() // case.H, by_group.any(axis=2).sum() // case.Hkv
            assert kept_rows(case) == (queries, keys)


@given(masked_cases(), st.data())
def test_a_row_is_the_same_whichever_others_are_asked_for(case: Case, data: st.DataObject) -> None:
    rows = np.array(data.draw(st.lists(st.integers(0, case.Lq - 1), min_size=1)))
    for make in (keep_rows, added_rows):
        every, some = make(case, np.arange(case.Lq)), make(case, rows)
        if some is not None:
            assert every is not None
            np.testing.assert_array_equal(some, every[:, :, rows])
        else:
            assert every is None or np.all(every[:, :, rows] == 1)


COARSER = {"float64": "float32", "float32": "float16", "float16": "bfloat16", "bfloat16": "float16"}


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_added_is_exact_in_the_dtype_of_the_case_and_in_no_other(dtype: str) -> None:
    case = small_case(Lq=64, Lk=64, mask=Mask(explicit="float"), dtype=dtype)
    added = added_rows(case, np.arange(64))
    np.testing.assert_array_equal(widen(store(added, dtype), dtype), added)
    assert len(np.unique(added)) > 500
    # bfloat16 has fewer bits than float16, and so none to lose there but below its smallest numbers.
    if dtype != "bfloat16":
        other = COARSER[dtype]
        finite = added[np.isfinite(added)]
        assert np.mean(widen(store(finite, other), other) == finite) < 0.2
    assert np.abs(added[np.isfinite(added)]).max() <= 4


def test_a_case_that_is_computed_in_float64_keeps_the_numbers_of_its_mask() -> None:
    case = small_case(Lq=64, Lk=64, mask=Mask(explicit="float", causal="upper_left"), dtype="bfloat16")
    wide = replace(case, dtype="float64", mask=case.mask.as_in("bfloat16"))
    rows = np.arange(64)
    np.testing.assert_array_equal(added_rows(wide, rows), added_rows(case, rows))
    assert not np.array_equal(added_rows(replace(case, dtype="float64"), rows), added_rows(case, rows))
    assert (wide.mask.explicit, mask_text(wide.mask)) == ("float", "causal+float")


def test_drawn_lengths_differ_by_sizes_and_seed_alone() -> None:
    def shares(**sizes: int) -> list[float]:
        case = small_case(**({"B": 4, "Lq": 8, "Lk": 1000} | sizes), mask=Mask(padding="seeded"))
        return [length / case.Lk for length in key_lengths(case)]

    assert shares() == shares(H=6, Hkv=3, D=16)
    longest = {int(np.argmax(shares(Lk=Lk))) for Lk in range(1000, 1040)}
    assert longest == {0, 1, 2, 3}
    for other in ({"Lq": 9}, {"Lk": 2000}, {"seed": 1}):
        assert not np.allclose(shares(), shares(**other), atol=0.01)


@pytest.mark.parametrize("explicit", ["bool", "float"])
def test_rows_without_keys_are_the_first_the_last_in_between_or_anywhere(explicit: str) -> None:
    starts = set()
    for seed in range(20):
        case = small_case(B=1, H=1, Hkv=1, Lq=64, Lk=40, mask=Mask(explicit=explicit), seed=seed)
        (rows,) = np.nonzero(~keep_rows(case, np.arange(64))[0, 0].any(-1))
        assert len(rows) == 4
        starts.add(int(rows[0]) if rows[-1] - rows[0] == 3 else -1)
    assert starts >= {0, 60, -1}
    assert len(starts) > 5


@pytest.mark.parametrize("explicit", ["bool", "float"])
def test_explicit_masks_keep_most_pairs_and_empty_a_few_rows(explicit: str) -> None:
    case = small_case(B=2, Lq=200, Lk=300, mask=Mask(explicit=explicit))
    keep = keep_rows(case, np.arange(200))
    empty = ~keep.any(axis=-1)[:, 0]
    assert empty.sum(axis=1).tolist() == [12, 12]
    assert not np.array_equal(empty[0], empty[1])
    assert keep[0, 0, ~empty[0]].mean() == pytest.approx(KEPT_SHARE, abs=0.01)
    assert not np.array_equal(keep[0], keep[1])
    few = keep_rows(small_case(Lq=3, Lk=40, mask=Mask(explicit=explicit)), np.arange(3))
    assert few.any(axis=-1).all()


def test_heads_have_masks_of_their_own_only_where_the_word_says_so() -> None:
    case = small_case(B=2, H=4, Hkv=2, Lq=40, Lk=60, mask=Mask(explicit="bool", per_head=True))
    keep = keep_rows(case, np.arange(40))
    masks = keep.reshape(8, -1)
    assert len(np.unique(masks, axis=0)) == 8
    # The masks of two heads agree by chance alone, and each leaves other queries without a key.
    assert np.mean(masks[0] == masks[1]) == pytest.approx(KEPT_SHARE**2 + (1 - KEPT_SHARE) ** 2, abs=0.1)
    assert len({tuple(np.flatnonzero(rows)) for rows in ~keep.any(-1).reshape(8, -1)}) > 4


def test_random_masks_follow_seed_and_lengths_and_nothing_else() -> None:
    rows, mask = np.arange(9), Mask(explicit="bool", padding="seeded")
    case = small_case(Lq=9, mask=mask, seed=3)
    same = small_case("dot", Lq=9, mask=mask, seed=3, dtype="bfloat16", H=2, device="cuda", threads=2)
    np.testing.assert_array_equal(keep_rows(case, rows), keep_rows(same, rows))
    other = keep_rows(small_case(Lq=9, mask=mask, seed=4), rows)
    assert not np.array_equal(keep_rows(case, rows), other)


def test_the_bits_do_not_change() -> None:
    case = small_case(B=2, Lq=40, Lk=50, mask=Mask(explicit="float", padding="seeded", causal="lower_right"))
    added = added_rows(case, np.arange(40))
    assert hashlib.sha256(added.tobytes()).hexdigest()[:16] == "c1fa94c8d265734f"
    assert key_lengths(case) == (40, 25)


def test_counting_a_long_case_holds_no_square() -> None:
    L = 1 << 20
    case = small_case(B=1, H=1, Hkv=1, Lq=L, Lk=L, mask=Mask(causal="upper_left"))
    assert kept_pairs(case) == L * (L + 1) // 2


@pytest.mark.parametrize("mask", ["bool", "float:per_head", "causal:lower_right"])
def test_sequences_without_queries_or_keys_keep_nothing(mask: str) -> None:
    batch = parse_case(f"attention/scaled_dot/q3_q2s0_q0s4-H4-Hkv2-D4/{mask}/packed")
    for problem in problems_of(batch)[1:]:
        assert (kept_pairs(problem), kept_rows(problem)) == (0, (0, 0))
