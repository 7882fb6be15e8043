"""Planted mistakes in batches: the verdict names part and sequence, the diagnosis the remedy."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import ModuleType

import packed
import paged
import pytest
import test_packed
import test_paged
import torch
from batch_judge import Judge

from attnbench.cases.ids import case_id
from attnbench.plugins.registry import load_wanted
from attnbench.plugins.sources import named
from attnbench.testing.diagnose import diagnose
from attnbench.testing.diagnosis_process import Diagnosed, Look

KEPT = "kept", "not repeated"
"""Kinds of faults of backends that are right where they are prepared anew."""
PACKED = {
    "last key of a decode": "keys_one_too_few",
    "upper left": "causal_from_the_other_corner",
    "heads tiled": "heads_modulo",
    "first key of the next": "key_behind_the_last",
    "equal sequences exchanged": "output_of_another_sequence",
    "empty rows": "out_of_rows_without_keys",
    "lse in base 2": "lse_in_base_2",
    "lse of empty rows": "lse_of_rows_without_keys",
    "largest score as lse": "lse_is_the_largest_score",
    "no gradient of a key": "no_gradient_of_k",
    "gradient of the neighbour": "gradient_of_v_of_another_sequence",
    "keeps outputs by address": KEPT,
    "keeps outputs by the first sequence": KEPT,
    "all over the first": "output_all_over_the_first",
    "keys by the lengths of queries": "keys_as_many_as_queries",
    "padding attended": "padding_to_16_has_weight",
    "empty rows see a key": "out_of_rows_without_keys",
    "ragged last block dropped": "tail_of_keys_dropped",
    "last head by the first group": "first_key_head_for_all",
    "halves averaged": "halves_averaged",
    "halves merged in base 2": "halves_merged_in_base_2",
    "lse of empty rows is 0": "lse_of_rows_without_keys",
    "lse without the scale": "lse_without_the_scale",
    "lse of the row before": "lse_of_the_previous_row",
    "lse of the other half": "lse_of_the_first_half",
    "window of one key too many": "window_one_wider",
    "sink counted in lse": "lse_with_the_sink",
    "NaN gradients of empty rows": "q_of_rows_without_keys",
    "gradients without queries not written": "k_of_rows_without_keys",
    "lengths of 8 bytes read as 4": "lengths_read_as_half_words",
}
PAGED = {
    "page order ignored": "pages_sorted",
    "last page whole": "last_page_whole",
    "table of the neighbour": "keys_of_the_previous_sequence",
    "length off by one": "keys_one_too_few",
    "keys of unused slots": "unused_slots",
    "first table kept": KEPT,
    "one page too many": "keys_one_too_many",
    "zero weight times NaN": "unused_slots",
    "finite mask": "out_of_rows_without_keys",
    "pages twice as large": "pages_twice_as_large",
    "values a page further": "values_of_the_next_page",
    "row of the table too short": "rows_of_the_table_one_shorter",
    "length of the last page of the neighbour": "last_page_as_long_as_that_of_the_next_sequence",
    "empty sequence reads its first entry": "out_of_rows_without_keys",
    "table kept by its address": KEPT,
    "first page twice": "first_page_twice",
    "pages counted from the end": "pages_from_the_end",
    "each page belongs to one sequence": "page_of_one_sequence",
    "first cache kept": KEPT,
    "slots of a page turned round": "values_of_a_page_in_reverse",
    "values converted as keys": "values_are_keys",
    "table ignored": "table_ignored",
    "offsets of pages overflow": "offsets_overflow",
    "scale of a cache that has none": "keys_or_values_scaled",
}
PLANTED = [
    *((packed, name, wanted) for name, wanted in PACKED.items()),
    *((paged, name, wanted) for name, wanted in PAGED.items()),
]


@pytest.fixture(scope="module")
def judges() -> Callable[[str], Judge]:
    """Open each case once."""
    torch.set_num_threads(1)
    registry = load_wanted([packed.__file__, paged.__file__])
    return cache(lambda case: Judge(registry, case))


def case_of(plugin: ModuleType, mistake: str) -> tuple[str, str]:
    """Return the case of a mistake, and what its verdict begins with."""
    if plugin is paged:
        return test_paged.CASE.format("float32", 8), f"sequence {paged.MISTAKES[mistake]}: the output 'out': "
    part, sequence = packed.MISTAKES[mistake]
    graded = part in ("q", "k", "v")
    case = test_packed.CASE.format("float32", "both" if graded else "forward", "/lse")
    what = f"the gradient of {part}" if graded else f"the output {part!r}"
    return packed.other_case(case, packed.OTHER_CASES.get(mistake, "")), f"sequence {sequence}: {what}: "


def diagnosed(judge: Judge, backend: str, plugin: ModuleType) -> Diagnosed:
    look = Look(case_id(judge.opened.case), judge.rule.source, ("normal",))
    return diagnose(look, backend, named(plugin.__file__ or ""))


def test_all_planted_mistakes_are_here_and_they_are_more_than_forty() -> None:
    assert (set(PACKED), set(PAGED)) == (set(packed.MISTAKES), set(paged.MISTAKES))
    assert len(PLANTED) > 40
    # Right ways that test_packed and test_paged find right.
    assert len(packed.RIGHT) + len(paged.RIGHT) > 12


@pytest.mark.slow
@pytest.mark.parametrize(("plugin", "mistake", "wanted"), PLANTED)
def test_a_mistake_is_refused_by_part_and_sequence_with_its_remedy(
    judges: Callable[[str], Judge], plugin: ModuleType, mistake: str, wanted: str | tuple[str, ...]
) -> None:
    case, words = case_of(plugin, mistake)
    backend = plugin.name_of(mistake)
    assert words in judges(case).problem(backend)
    found = diagnosed(judges(case), backend, plugin)
    assert found.do
    if isinstance(wanted, str):
        assert found.mistake == wanted
    else:
        assert (found.mistake, found.kind in wanted) == ("", True)


@pytest.mark.parametrize(("plugin", "backend"), [(packed, "one_by_one"), (paged, "copied_pages")])
def test_a_right_answer_has_no_mistake(
    judges: Callable[[str], Judge], plugin: ModuleType, backend: str
) -> None:
    case, _ = case_of(plugin, next(iter(plugin.MISTAKES)))
    found = diagnosed(judges(case), backend, plugin)
    assert (found.mistake, found.kind) == ("", "not repeated")
