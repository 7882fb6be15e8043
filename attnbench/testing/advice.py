"""What to do about a mistake: by a known mistake's name, by the family of inputs, by the failed check."""

from __future__ import annotations

from attnbench.types.checks import Check

_MASK = "attnbench.kit.masks makes the case's mask, and attnbench.masks.keep_rows tells which pairs it keeps"
_WINDOW = "a window of n keeps |p - j| < n, so n keys including the query's own"
_KEYS = "give the last keys, past the last whole block, a block of their own or a mask"
_QUERIES = "write the last rows too, past the last whole block"
_VECTORS = "need not be a multiple of a vector's length: handle the rest, or decline it"
_SHARED = (
    "key/value head h // (H // Hkv) serves query head h: repeat_interleave(case.group, dim=1) or enable_gqa"
)
_BY_HEAD = f"repeat heads, don't tile them: {_SHARED}"
_SUMMED = f"sum the gradients over the heads of a group; {_SHARED}"
_BATCH = "read the keys and values of each batch element"
_TRANSPOSE = "exchange heads and positions by transpose(1, 2), not by view or reshape"
_LAYOUT = "declare the layout that you use, for inputs and output: BHLD is (B, H, L, D), BLHD is (B, L, H, D)"
_CORNER = (
    "look at case.mask.causal: upper_left lets query i see keys up to i (torch's is_causal), lower_right "
    "lets the last query see the last key (flash-attn); query 0 stands at case.query_offset"
)
_DIAGONAL = "keep key j for query i where j <= i + case.query_offset"
_INVERTED = "True keeps a pair here and in torch's SDPA, but drops it in nn.MultiheadAttention: invert it"
_WIDE = "compute softmax and sums in float32 (attnbench.kit.dtypes.softmax_dtype), and round once at the end"
_BY_DTYPE = "in the case's dtype, or remove this dtype from dtypes"
_EMPTY = "set rows of queries that keep no key to 0 (masked_fill, after the softmax)"
_EMPTY_ROWS = f"the output of a query without keys is 0 here: {_EMPTY}, or decline such cases in supports()"
_NEGATIVE = f"use -inf, not a large negative number, and {_EMPTY}"
_MAXIMUM = "subtract each row's maximum before exp"
_MAP = "apply setup.scoring.dot.map_q and map_k (attnbench.kit.scores.map_queries) as they are"
_SINK = "the sink is one more logit in the softmax's denominator: setup.scoring.sink[h] as it is"
_BIAS = "add setup.scoring.bias(rows, columns) to the scores, or decline rules that have one"
_BACKWARD = "the softmax's backward is dS = P * (dP - rowsum(dP * P))"
_ANEW = "compute gradients anew in each backward pass, and keep nothing from an earlier one"
_CAP = "cap the scores (setup.scoring.dot.cap, attnbench.kit.scores.soft_cap), or decline the rule"


def _ignored(what: str, where: str) -> str:
    return f"apply the {what}, or decline {where} in supports(); {_MASK}"


ADVICE: dict[str, str] = {
    "scale_omitted": "multiply the products by setup.scoring.dot.scale",
    "scale_twice": "scale once: many kernels divide by √D themselves (give them scale=1.0, or don't scale q)",
    "scores_negated": "look at the signs: the softmax is of the scores, not of distances",
    "powers_of_2": "use exp, or multiply by log2(e) before exp2",
    "softmax_over_queries": "take the softmax over the last axis of (B, H, Lq, Lk), the keys: dim=-1",
    "no_maximum": _MAXIMUM,
    "nan_for_large_logits": f"exp overflowed: {_MAXIMUM}",
    "logits_clamped": f"don't clamp scores: {_MAXIMUM} instead",
    "maximum_of_the_first_block": "keep a running maximum over all blocks",
    "blocks_not_rescaled": "when a block brings a larger maximum, multiply earlier sums by exp(old - new)",
    "never_normalised": "divide by the sum of powers of each row",
    "causal_from_the_other_corner": _CORNER,
    "causal_one_key_more": _DIAGONAL,
    "causal_one_key_less": f"{_DIAGONAL}: its own key too",
    "causal_ignored": _ignored("causal mask", "it"),
    "window_ignored": _ignored("window", "case.mask.window"),
    "window_one_sided": "without causal a window looks both ways: |p - j| < window",
    "window_one_wider": _WINDOW,
    "window_one_narrower": _WINDOW,
    "padding_ignored": _ignored("padding", "case.mask.padding"),
    "explicit_mask_ignored": _ignored("mask", "case.mask.explicit"),
    "mask_ignored": _ignored("mask", "cases with one"),
    "mask_inverted": _INVERTED,
    "explicit_mask_transposed": "the mask is (B, 1, Lq, Lk): queries first",
    "mask_of_the_first_batch_element": "each batch element has a mask of its own",
    "mask_is_minus_10000": _NEGATIVE,
    "mask_is_minus_30": _NEGATIVE,
    "mask_is_minus_5": "use -inf for dropped pairs, not a small negative number",
    "mask_after_softmax": "mask the scores with -inf before the softmax, not the weights after it",
    "masked_scores_are_0": "a dropped score is -inf: a score of 0 still has the weight e^0",
    "float_mask_added_twice": "add the float mask once: after the scale",
    "float_mask_before_scale": "add the float mask after the scale, as it is",
    "float_mask_drops_nothing": "a float mask contains -inf too: don't replace it by 0",
    "nan_in_empty_rows": _EMPTY_ROWS,
    "mean_in_empty_rows": _EMPTY_ROWS,
    "mask_in_the_first_head_only": "the mask (B, 1, Lq, Lk) is for all heads: expand it",
    "heads_modulo": _BY_HEAD,
    "groups_reversed": _SHARED,
    "first_key_head_for_all": _SHARED,
    "values_of_the_next_head": _SHARED,
    "heads_viewed_not_transposed": _TRANSPOSE,
    "layouts_exchanged": f"{_TRANSPOSE}, and {_LAYOUT}",
    "weights_transposed": "the output is weights @ v with weights (Lq, Lk)",
    "scores_ignored": "scores never reach the softmax",
    "keys_of_the_first_batch_element": _BATCH,
    "values_of_the_first_batch_element": _BATCH,
    "tail_of_keys_dropped": _KEYS,
    "last_block_of_keys_dropped": _KEYS,
    "last_quarter_of_keys_dropped": _KEYS,
    "far_keys_dropped": "all keys that the mask keeps count, however far",
    "last_key_dropped": "the loop over keys ends one too early",
    "first_key_dropped": "the loop over keys starts one too late",
    "last_query_never_written": _QUERIES,
    "tail_of_queries_never_written": _QUERIES,
    "last_query_is_the_one_before": _QUERIES,
    "tail_of_values_dropped": f"case.Dv {_VECTORS}",
    "tail_of_features_dropped": f"case.D {_VECTORS}",
    "last_feature_dropped": "the loop over features ends one too early",
    "products_in_bfloat16": f"multiply q and k {_BY_DTYPE}",
    "products_of_10_bits": f"turn TF32 off: multiply q and k {_BY_DTYPE}",
    "values_in_bfloat16": f"keep v {_BY_DTYPE}",
    "sums_in_float16": _WIDE,
    "softmax_in_float16": _WIDE,
    "weights_in_bfloat16": _WIDE,
    "denominator_in_half": _WIDE,
    "float32_inside": "compute in float64, or remove 'float64' from dtypes",
    "cap_forgotten": _CAP,
    "cap_before_scale": "cap after the scale: cap * tanh(scale * q·k / cap)",
    "cap_after_mask": "cap before adding the mask",
    "sink_forgotten": _SINK,
    "sink_of_other_heads": _SINK,
    "sink_divided_by_root": _SINK,
    "sink_added_to_values": "the sink stands in the denominator only: it adds nothing to the values",
    "slopes_forgotten": _BIAS,
    "slopes_reversed": _BIAS,
    "slopes_negated": _BIAS,
    "distances_from_the_first_key": f"query 0 stands at case.query_offset; {_BIAS}",
    "general_without_matrix": _MAP,
    "general_transposed": _MAP,
    "cosine_of_keys_as_they_are": "apply setup.scoring.dot.map_k to the keys",
    "cosine_of_queries_as_they_are": "apply setup.scoring.dot.map_q to the queries",
    "keys_and_values_exchanged": "w_k makes the keys and w_v the values",
    "output_matrix_transposed": "a projection is x @ w.T, as in torch.nn.functional.linear",
    "context_ignored": "keys and values come from the second and third input",
    "dq_without_scale": "the scale belongs to the gradients of q and k too",
    "softmax_without_row_sum": _BACKWARD,
    "softmax_straight_through": _BACKWARD,
    "softmax_unmasked_backward": "the backward pass drops the same pairs",
    "dk_of_other_groups": _SUMMED,
    "dk_of_the_first_in_group": _SUMMED,
    "gradient_adds_up": _ANEW,
    "gradient_of_the_first_call": _ANEW,
    "upstream_taken_for_ones": "multiply by the gradient of the output",
}
"""By the name of a mistake in :mod:`attnbench.testing.mistakes`."""

BY_FAMILY: dict[str, str] = {
    "deep_change": (
        "The output is right on ordinary inputs, but wrong after two elements of v or k changed in the same "
        "memory. It comes from kept answers or packed keys of earlier inputs: compute it anew in each call"
    ),
    "strided": (
        "Views with strides of their own give a wrong output: read inputs by their strides, call "
        ".contiguous() in the call, or declare needs_contiguous=True"
    ),
    "graded": (
        "Inputs that require gradients give a wrong output: don't decide by requires_grad, or decline pass "
        "'both' in supports()"
    ),
    "loud": f"Scores up to ±1000 give a wrong output: {_MAXIMUM}, and use -inf for dropped pairs",
    "one_key": (
        "Rows in which one key has all the weight are wrong: look at the row's maximum and at the first and "
        "last keys"
    ),
    "quiet": "Values of unlikely keys are wrong: look at the scale, and for dropped or rounded weights",
    "dropout": "Drop each weight by itself, anew in every call, after the softmax; scale others by 1/(1-p)",
    "weights": "Return the weights that make the output, with 0 where the mask drops a pair",
}
"""By the family of inputs that alone shows a failure, where no known mistake gives the same output."""

BY_CHECK: dict[Check, str] = {
    "output_form": (
        "Return one torch.Tensor in the case's dtype: (B, H, Lq, Dv), or (B, Lq, H, Dv) with layout='BLHD'; "
        "a layer returns (B, Lq, E)."
    ),
    "aliasing": "Allocate the output in each call, or clone it.",
    "inputs_changed": (
        "Leave the inputs as they are: no operation in place (add_, masked_fill_, out=) on q, k, v."
    ),
    "bounds": "Write only inside the output: look at the bounds of the last block.",
    "state": (
        "Set switches in preparation or with a context manager, and draw random numbers only in cases with "
        "dropout."
    ),
    "activity": (
        "Use case.threads threads. Start threads and processes in preparation, and end what a call starts "
        "before it returns."
    ),
    "graph": "Keep the graph: no .detach(), .data, NumPy or out= between inputs and output.",
    "requires": (
        "Install this module and declare it, as requires=('name',): the backend is then unavailable, not "
        "wrong, where it is not installed."
    ),
    "rule_forms": (
        "its torch form and its NumPy form differ. Let the result of bind compute the scores of reference "
        "(scale, signs, parameters, positions)."
    ),
}
"""By the failed check, where its name says what to do."""
