"""The mistakes of attnbench's conformance kit as mutants: each with the cases in which it shows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from attnbench.testing.mistakes import VALUES
from attnbench.testing.mistakes.gradients import GRADIENTS
from attnbench.testing.mistakes.inputs import BLOCK, FIRST_TRIES, VECTOR, WEIGHS
from attnbench.testing.mistakes.masks import added_mask, whole_blocks
from attnbench.testing.mistakes.parts import Form, Mistake
from attnbench.testing.mistakes.scores import BLOCKS
from attnbench.types.case import PASSES, Case, Dtype
from attnbench.types.rule import Rule
from attnbench_selftest.mutants.mutant import BOTH, Applies, Mutant
from attnbench_selftest.mutants.where import (
    batches_matter,
    bias_added,
    both,
    drops,
    empty_rows,
    features_left,
    has_float_mask,
    keeps_a_key,
    keeps_beyond,
    keeps_more_than,
    kept,
    kept_counts,
    last_row_kept,
    later_batches,
    many_key_heads,
    no_sink,
    other_mask,
    projects_out,
    scaled,
    scores_matter,
    several_features,
    several_heads,
    shared_in_groups,
    unbounded,
    with_backward,
)

SINGLE: tuple[Dtype, ...] = ("float32",)
WIDE: tuple[Dtype, ...] = ("float32", "float64")
HALF: tuple[Dtype, ...] = ("bfloat16", "float16")


def _axes_differ(case: Case, rule: Rule) -> bool:
    """Some key serves several queries, or some query has a choice."""
    return bool((kept(case).sum(-2) > 1).any()) or scores_matter(case, rule)


def _many_of_both(case: Case, rule: Rule) -> bool:
    return case.H > 1 and case.Lq > 1 and keeps_a_key(case, rule)


def _rows_kept(case: Case, first: int) -> bool:
    return bool((kept_counts(case)[:, first:] > 0).any())


def _moved(case: Case, rule: Rule) -> bool:
    """Query 0 stands elsewhere than at key 0, and some query sees keys on both sides."""
    return case.query_offset != 0 and case.mask.causal is None and min(case.Lq, case.Lk) > 1


def _products_matter(case: Case, rule: Rule) -> bool:
    """Not where vectors of one feature become 1 or -1 whatever they are rounded to."""
    return scores_matter(case, rule) and not (rule.name == "cosine" and case.D == 1)


def _square_matrix(case: Case, rule: Rule) -> bool:
    return case.layer is not None and case.layer.E == case.H * case.Dv > 1 and not rule.concatenates


def _wide_model(case: Case, rule: Rule) -> bool:
    return case.layer is not None and case.layer.E > 1 and case.Hkv == case.H


def _other_source(case: Case, rule: Rule) -> bool:
    return case.Lq == case.Lk and not case.is_self_attention


def _other_width(case: Case, rule: Rule) -> bool:
    return case.layer is not None and case.layer.E != case.D


SHOWS: dict[str, Applies] = {
    "scale_twice": scaled,
    "scale_omitted": scaled,
    "scores_negated": scores_matter,
    "powers_of_2": scores_matter,
    "softmax_over_queries": _axes_differ,
    "no_maximum": unbounded,
    "never_normalised": scores_matter,
    "accumulator_of_16_not_rescaled": both(keeps_beyond(BLOCK), keeps_more_than(24)),
    "mask_is_minus_10000": empty_rows,
    "mask_after_softmax": drops,
    "masked_scores_are_0": drops,
    "float_mask_before_scale": both(has_float_mask, scaled),
    "nan_in_empty_rows": empty_rows,
    "mean_in_empty_rows": empty_rows,
    "mask_in_the_first_head_only": both(
        several_heads, other_mask(partial(added_mask, left_out=("causal", "window", "padding", "explicit")))
    ),
    "heads_modulo": both(shared_in_groups, keeps_a_key),
    "first_key_head_for_all": many_key_heads,
    "heads_viewed_not_transposed": _many_of_both,
    "keys_of_the_first_batch_element": batches_matter,
    "values_of_the_first_batch_element": later_batches,
    "last_query_never_written": last_row_kept,
    "tail_of_queries_never_written": lambda case, rule: _rows_kept(case, whole_blocks(case.Lq, BLOCK)),
    "tail_of_values_dropped": lambda case, rule: features_left(case.Dv, VECTOR) and keeps_a_key(case, rule),
    "tail_of_features_dropped": (
        lambda case, rule: features_left(case.D, VECTOR) and scores_matter(case, rule)
    ),
    "last_feature_dropped": scores_matter,
    "constants_ignored": lambda case, rule: bool(case.constants) and scores_matter(case, rule),
    "cap_forgotten": scores_matter,
    "cap_before_scale": both(scores_matter, several_features),
    "sink_forgotten": scores_matter,
    "sink_of_other_heads": both(scores_matter, several_heads),
    "sink_divided_by_root": both(scores_matter, several_features),
    "slopes_reversed": both(scores_matter, several_heads),
    "slopes_negated": scores_matter,
    "slopes_forgotten": scores_matter,
    "distances_from_the_first_key": both(scores_matter, _moved),
    "buckets_forgotten": scores_matter,
    # The nearest eight distances before a query have the same buckets with one side and with two.
    "buckets_of_other_sides": keeps_more_than(12),
    "general_transposed": both(scores_matter, several_features),
    "general_without_matrix": scores_matter,
    "cosine_of_keys_as_they_are": scores_matter,
    "cosine_of_queries_as_they_are": scores_matter,
    "additive_without_bias": scores_matter,
    "joined_without_bias": scores_matter,
    "bias_of_queries_forgotten": both(bias_added, scores_matter),
    "bias_of_values_forgotten": both(bias_added, keeps_a_key),
    "bias_of_the_output_forgotten": both(bias_added, projects_out),
    "bias_of_the_output_by_head": both(bias_added, projects_out, several_heads),
    "output_matrix_transposed": both(_square_matrix, projects_out, keeps_a_key),
    "keys_and_values_exchanged": both(lambda case, rule: case.Dv == case.D, keeps_a_key),
    "queries_and_keys_exchanged": both(_wide_model, scores_matter),
    "context_ignored": both(_other_source, keeps_a_key),
    "scale_of_the_model_width": both(scaled, _other_width),
    "products_in_bfloat16": _products_matter,
    "products_of_10_bits": _products_matter,
    "values_in_bfloat16": keeps_a_key,
    "sums_in_float16": keeps_a_key,
    "softmax_in_float16": scores_matter,
    "weights_in_bfloat16": scores_matter,
    "float32_inside": keeps_a_key,
    "dq_without_scale": scaled,
    "dk_of_other_groups": shared_in_groups,
    "dk_of_the_first_in_group": lambda case, rule: case.Hkv < case.H,
    "softmax_without_row_sum": no_sink,
    "softmax_unmasked_backward": drops,
    "upstream_taken_for_ones": keeps_a_key,
}
"""By name; a mistake in the mask alone shows where the mask weighs keys otherwise."""

DTYPES_OF: dict[str, tuple[Dtype, ...]] = {
    "products_in_bfloat16": WIDE,
    "products_of_10_bits": SINGLE,
    "values_in_bfloat16": WIDE,
    "sums_in_float16": WIDE,
    "softmax_in_float16": WIDE,
    "weights_in_bfloat16": WIDE,
    "float32_inside": ("float64",),
}
"""The dtypes in which a mistake of precision shows."""

LAYER_ONLY = (
    *(name for name in SHOWS if name.startswith("bias_of_")),
    "output_matrix_transposed", "keys_and_values_exchanged", "queries_and_keys_exchanged",
    "context_ignored", "scale_of_the_model_width",
)  # fmt: skip


def _mutant(mistake: Mistake) -> Mutant:
    applies = SHOWS.get(mistake.name)
    if applies is None:
        assert isinstance(mistake.made, Form)
        applies = other_mask(mistake.made.mask)
    if mistake.rules:
        applies = both(lambda case, rule: rule.name in mistake.rules, applies)
    mutant = Mutant(
        name=mistake.name,
        summary=mistake.summary,
        prepare=mistake.prepare,
        applies=applies,
        operations=("multihead",) if mistake.name in LAYER_ONLY else BOTH,
        masks_by_head=mistake.name == "mask_of_the_first_head",
    )
    if mistake.name in DTYPES_OF:
        mutant = replace(mutant, dtypes=DTYPES_OF[mistake.name])
    if mistake in GRADIENTS:
        applies = both(with_backward, applies)
        mutant = replace(mutant, trait="gradient", passes=PASSES, applies=applies)
    return mutant


MUTANTS: tuple[Mutant, ...] = tuple(
    _mutant(mistake)
    for mistake in (*VALUES, *GRADIENTS)
    if mistake not in (*FIRST_TRIES, *BLOCKS[1:], *WEIGHS)
)
