"""A word of masks that attnbench does not have comes in as one class: here a lead, which adds pairs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Self

import numpy as np
import pytest
from solved import BACKENDS, QUICK, RULES, refusal, solved

from attnbench.cases.ids import case_id, parse_case
from attnbench.cases.variant import variant_cases
from attnbench.cases.work import held_bytes
from attnbench.inputs.symmetries import draw_change
from attnbench.masks import Rows, keep_rows, kept_keys, kept_pairs, kept_ranges
from attnbench.search.space import space_of
from attnbench.trial.shrink import needed, steps
from attnbench.types.case import DTYPES, Case
from attnbench.types.errors import BadCase
from attnbench.types.mask import Mask, parse_mask
from attnbench.types.mask_base import MaskWord
from attnbench.types.mask_words import WORDS

MASK = "causal:lower_right+window:3+padding:9,6+lead:4"
CASE = f"attention/scaled_dot/B2-H4-Hkv2-Lq7-Lk9-D8/{MASK}/float64"


@dataclass(frozen=True)
class Lead(MaskWord):
    """Every query sees the first keys, whatever causal and window say."""

    keys: int

    word = "lead"
    part = "lead"
    noun = "lead"
    form = "range"
    lifts = ("causal", "window")
    axes = "ij"
    sorts = ("a short lead", "a lead of all keys")

    @classmethod
    def of_sort(cls, sort: str, B: int, Lk: int, random: Random) -> Self:
        return cls(Lk if sort == cls.sorts[1] else random.randint(1, min(4, Lk)))

    def text(self) -> str:
        return f"lead:{self.keys}"

    @classmethod
    def parse(cls, value: str | None, text: str) -> Self:
        return cls(int(value or 0))

    def refuses(self, case: Case) -> str | None:
        return f"a lead of {self.keys} keys is more than Lk = {case.Lk}" if self.keys > case.Lk else None

    def smaller(self, B: int, Lq: int, Lk: int, rng: np.random.Generator) -> Lead:
        return Lead(min(self.keys, Lk))

    def bounds(self, case: Case, rows: Rows) -> tuple[Rows, Rows]:
        return np.zeros((1, 1), np.intp), np.full((1, 1), self.keys)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(WORDS, Lead.word, Lead)
    yield
    # Ids with the word parse in this test alone.
    parse_case.cache_clear()


def by_hand(batch: int) -> np.ndarray:
    """Causal from the lower right and a window of 3, or one of the first 4; never after the padding."""
    i, j = np.arange(7)[:, None] + 2, np.arange(9)
    return (((j <= i) & (i - j < 3)) | (j < 4)) & (j < (9, 6)[batch])


def test_ids_and_messages_know_it() -> None:
    case = parse_case(CASE)
    assert case.mask == Mask("lower_right", 3, (9, 6), more=(Lead(4),))
    assert parse_case(case_id(case)) == case
    assert f"/{MASK}/" in case_id(case)
    with pytest.raises(BadCase, match="a lead of 10 keys is more than Lk = 9"):
        replace(case, mask=parse_mask("lead:10"))
    with pytest.raises(BadCase, match="has two parts for lead"):
        parse_mask("lead:3+lead:4")
    with pytest.raises(BadCase, match=r"there are none, .*, lead\."):
        parse_mask("xyzzy")


def test_it_adds_pairs_to_the_parts_that_it_lifts_alone() -> None:
    case, rows = parse_case(CASE), np.arange(7)
    kept = np.stack([by_hand(0), by_hand(1)])
    np.testing.assert_array_equal(keep_rows(case, rows)[:, 0], kept)
    assert kept_pairs(case) == 4 * kept.sum()
    np.testing.assert_array_equal(kept_keys(case)[:, 0], kept.any(1))
    low, high = kept_ranges(case, rows)
    outside = (np.arange(9) < low[..., None]) | (np.arange(9) >= high[..., None])
    assert outside.any()
    assert not (outside & kept).any()
    alone = replace(case, mask=parse_mask("lead:4"))
    assert keep_rows(alone, rows) is None, "it restricts nothing"


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("more", ["", "+bool", "+float:per_head"])
def test_every_backend_computes_it_or_declines(name: str, more: str) -> None:
    text = CASE.replace(MASK, MASK + more)
    rules = [
        rule
        for rule in RULES
        if refusal(BACKENDS[name], parse_case(text.replace("scaled_dot", rule))) is None
    ]
    for rule in rules[:3]:
        case = solved(text.replace("scaled_dot", rule))
        np.testing.assert_allclose(case.run(BACKENDS[name]).numpy(), case.expected, atol=1e-13)


def test_the_judge_and_the_sizes_of_a_case_ask_it() -> None:
    case, rule, rng = parse_case(CASE), RULES["scaled_dot"], np.random.default_rng(0)
    (variant,) = variant_cases(case, rule, DTYPES, rng, 1)
    assert [type(word) for word in variant.mask.words] == [type(word) for word in case.mask.words]
    assert draw_change(case, rule, rng).orders["i"].tolist() == list(range(7)), "queries have places"
    assert held_bytes(case, rule) == held_bytes(replace(case, mask=Mask()), rule), "no table is drawn"


def test_a_search_draws_it_and_makes_it_plainer() -> None:
    space = space_of(BACKENDS["eager"], {"scaled_dot": RULES["scaled_dot"]})
    assert space.properties["lead"] == ("", *Lead.sorts)
    random = Random(0)
    rows = [space.row(random, {"lead": "a short lead", "causal": "causal"}) for _ in range(20)]
    point = next(filter(None, (space.point(row, random) for row in rows if row is not None)))
    assert any(isinstance(word, Lead) for word in point.case.mask.words)
    without = [step for step in steps(point) if not any(isinstance(w, Lead) for w in step.case.mask.words)]
    assert without
    assert "a lead" in needed(point)


def test_a_mask_can_be_taken_apart() -> None:
    mask = parse_mask(f"{MASK}+float:per_head")
    assert [part.words[0].text() for part in mask.parts()] == [
        "causal:lower_right", "window:3", "padding:9,6", "float:per_head", "lead:4",
    ]  # fmt: skip
    for part in mask.parts():
        rest = mask.without(part)
        assert part.words[0] not in rest.words
        assert len(rest.words) == 4
        assert mask.without(rest) == part
    assert Mask().parts() == ()
