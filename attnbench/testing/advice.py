"""What to do about a mistake, by its name among those of :mod:`attnbench.testing.mistakes`."""

from __future__ import annotations

_MASK = "attnbench.kit.masks makes the case's mask, and attnbench.masks.keep_rows says which pairs it keeps"
_KEYS = "give the last keys, past the last whole block, a block of their own or a mask"
_QUERIES = "write the last rows too, past the last whole block"
_SHARED = (
    "key/value head h // (H // Hkv) belongs to query head h: use repeat_interleave(case.group, dim=1), "
    "or enable_gqa"
)
_WIDE = "compute softmax and sums in float32 (attnbench.kit.dtypes.softmax_dtype) and round once, at the end"
_EMPTY = "set rows of queries that keep no key to 0 (masked_fill, after the softmax)"
_SINK = "the sink is one more logit in the softmax's denominator, setup.scoring.sink[h] as it is"
_BIAS = "add setup.scoring.bias(rows, columns) to the scores, or decline rules that have one"

ADVICE: dict[str, str] = {
    "scale_omitted": "multiply the products by setup.scoring.dot.scale",
    "scale_twice": "scale once: many kernels divide by √D themselves (give them scale=1.0, or don't scale q)",
    "scores_negated": "look at the signs: the softmax is of the scores, not of distances",
    "powers_of_2": "use exp, or multiply by log2(e) before exp2",
    "softmax_over_queries": "take the softmax over the last axis of (B, H, Lq, Lk), the keys: dim=-1",
    "no_maximum": "subtract each row's maximum before exp",
    "nan_for_large_logits": "exp overflowed: subtract each row's maximum before it",
    "logits_clamped": "don't clamp scores: subtract each row's maximum before exp instead",
    "maximum_of_the_first_block": "keep a running maximum over all blocks",
    "blocks_not_rescaled": "when a block brings a larger maximum, multiply earlier sums by exp(old - new)",
    "never_normalised": "divide by the sum of powers of each row",
    "causal_from_the_other_corner": (
        "look at case.mask.causal: upper_left lets query i see keys up to i (torch's is_causal), "
        "lower_right lets "
        "the last query see the last key (flash-attn); case.query_offset says where query 0 stands"
    ),
    "causal_one_key_more": "keep key j for query i where j <= i + case.query_offset",
    "causal_one_key_less": "keep key j for query i where j <= i + case.query_offset: its own key too",
    "causal_ignored": f"apply the causal mask, or decline it in supports(); {_MASK}",
    "window_ignored": f"apply the window, or decline case.mask.window in supports(); {_MASK}",
    "window_one_sided": "without causal a window looks both ways: |p - j| < window",
    "window_one_wider": "a window of n keeps |p - j| < n, so n keys with the query's own",
    "window_one_narrower": "a window of n keeps |p - j| < n, so n keys with the query's own",
    "padding_ignored": f"apply the padding, or decline case.mask.padding in supports(); {_MASK}",
    "explicit_mask_ignored": f"apply the mask, or decline case.mask.explicit in supports(); {_MASK}",
    "mask_ignored": f"apply the mask, or decline cases with one in supports(); {_MASK}",
    "mask_inverted": (
        "True keeps a pair here and in torch's SDPA; in nn.MultiheadAttention and elsewhere it drops "
        "it: invert it"
    ),
    "explicit_mask_transposed": "the mask is (B, 1, Lq, Lk): queries first",
    "mask_of_the_first_batch_element": "each batch element has a mask of its own",
    "mask_is_minus_10000": f"use -inf, not a large negative number, and {_EMPTY}",
    "mask_is_minus_30": f"use -inf, not a large negative number, and {_EMPTY}",
    "mask_is_minus_5": "use -inf for what is dropped, not a small negative number",
    "mask_after_softmax": "mask the scores with -inf before the softmax, not the weights after it",
    "masked_scores_are_0": "a dropped score is -inf: multiplying it by 0 leaves it a weight of e^0",
    "float_mask_added_twice": "add the float mask once: after the scale",
    "float_mask_before_scale": "add the float mask after the scale, as it is",
    "float_mask_drops_nothing": "a float mask has -inf too: don't replace it by 0",
    "nan_in_empty_rows": (
        f"a query that keeps no key has the output 0 here: {_EMPTY}, or decline such cases in supports()"
    ),
    "mean_in_empty_rows": (
        f"a query that keeps no key has the output 0 here: {_EMPTY}, or decline such cases in supports()"
    ),
    "mask_in_the_first_head_only": "the mask (B, 1, Lq, Lk) is for all heads: expand it",
    "heads_modulo": f"repeat heads, don't tile them: {_SHARED}",
    "groups_reversed": _SHARED,
    "first_key_head_for_all": _SHARED,
    "values_of_the_next_head": _SHARED,
    "heads_viewed_not_transposed": "exchange heads and positions by transpose(1, 2), not by view or reshape",
    "layouts_exchanged": (
        "exchange heads and positions by transpose(1, 2), and look at the layout that is declared: BHLD is "
        "(B, H, L, D), BLHD is (B, L, H, D), for inputs and output alike"
    ),
    "weights_transposed": "the output is weights @ v with weights (Lq, Lk)",
    "scores_ignored": "scores never reach the softmax",
    "keys_of_the_first_batch_element": "read the keys of each batch element",
    "values_of_the_first_batch_element": "read the values of each batch element",
    "tail_of_keys_dropped": _KEYS,
    "last_block_of_keys_dropped": _KEYS,
    "last_quarter_of_keys_dropped": _KEYS,
    "far_keys_dropped": "all keys that the mask keeps count, however far",
    "last_key_dropped": "the loop over keys ends one too early",
    "first_key_dropped": "the loop over keys starts one too late",
    "last_query_never_written": _QUERIES,
    "tail_of_queries_never_written": _QUERIES,
    "last_query_is_the_one_before": _QUERIES,
    "tail_of_values_dropped": (
        "case.Dv need not be a multiple of a vector's length: handle the rest, or decline it"
    ),
    "tail_of_features_dropped": (
        "case.D need not be a multiple of a vector's length: handle the rest, or decline it"
    ),
    "last_feature_dropped": "the loop over features ends one too early",
    "products_in_bfloat16": "multiply q and k in the case's dtype, or take this dtype out of dtypes",
    "products_of_10_bits": (
        "multiply q and k in the case's dtype: turn TF32 off, or take this dtype out of dtypes"
    ),
    "values_in_bfloat16": "keep v in the case's dtype, or take this dtype out of dtypes",
    "sums_in_float16": _WIDE,
    "softmax_in_float16": _WIDE,
    "weights_in_bfloat16": _WIDE,
    "denominator_in_half": _WIDE,
    "float32_inside": "compute in float64, or take 'float64' out of dtypes",
    "cap_forgotten": (
        "cap the scores (setup.scoring.dot.cap, attnbench.kit.scores.soft_cap), or decline the rule"
    ),
    "cap_before_scale": "cap after the scale: cap * tanh(scale * q·k / cap)",
    "cap_after_mask": "cap before the mask is added",
    "sink_forgotten": _SINK,
    "sink_of_other_heads": _SINK,
    "sink_divided_by_root": _SINK,
    "sink_added_to_values": "the sink's weight goes nowhere: it is in the denominator alone",
    "slopes_forgotten": _BIAS,
    "slopes_reversed": _BIAS,
    "slopes_negated": _BIAS,
    "distances_from_the_first_key": f"query 0 stands at case.query_offset; {_BIAS}",
    "general_without_matrix": "apply setup.scoring.dot.map_q and map_k (attnbench.kit.scores.map_queries)",
    "general_transposed": "apply setup.scoring.dot.map_q and map_k as they are",
    "cosine_of_keys_as_they_are": "apply setup.scoring.dot.map_k to the keys",
    "cosine_of_queries_as_they_are": "apply setup.scoring.dot.map_q to the queries",
    "keys_and_values_exchanged": "w_k makes the keys and w_v the values",
    "output_matrix_transposed": "a projection is x @ w.T, as torch.nn.functional.linear has it",
    "context_ignored": "keys and values come from the second and third input",
    "dq_without_scale": "the scale belongs to the gradients of q and k too",
    "softmax_without_row_sum": "the softmax's backward is dS = P * (dP - rowsum(dP * P))",
    "softmax_straight_through": "the softmax's backward is dS = P * (dP - rowsum(dP * P))",
    "softmax_unmasked_backward": "the backward pass drops the same pairs",
    "dk_of_other_groups": f"sum the gradients over the heads of a group; {_SHARED}",
    "dk_of_the_first_in_group": f"sum the gradients over the heads of a group; {_SHARED}",
    "gradient_adds_up": "make gradients anew in each backward pass: nothing may add up over calls",
    "gradient_of_the_first_call": (
        "make gradients anew in each backward pass: nothing may be kept from an earlier one"
    ),
    "upstream_taken_for_ones": "multiply by the gradient that comes from above",
}  # fmt: skip

BY_FAMILY: dict[str, str] = {
    "deep_change": (
        "Ordinary numbers come out right, and wrong where two elements inside v or k have changed in "
        "the same memory: "
        "this is what comes out when an answer (or packed keys) of earlier inputs is kept: compute it "
        "anew in each call"
    ),
    "strided": (
        "Inputs that are views with strides of their own come out wrong: read them by their strides, "
        "call .contiguous() "
        "in the call, or declare needs_contiguous=True"
    ),
    "graded": (
        "Inputs that require gradients come out wrong: don't decide by requires_grad, or decline pass "
        "'both' in supports()"
    ),
    "loud": (
        "Scores up to ±1000 come out wrong: subtract each row's maximum before exp, and use -inf for "
        "what is dropped"
    ),
    "one_key": (
        "Rows in which one key has all the weight come out wrong: look at the row's maximum and at the "
        "first and last keys"
    ),
    "quiet": (
        "Values on unlikely keys come out wrong: look at the scale, and at weights that are dropped or "
        "rounded"
    ),
    "dropout": (
        "Drop each weight by itself, anew in every call, after the softmax, and divide the others by 1 "
        "- p"
    ),
    "weights": (
        "The weights that are given must be those that the output is made of, and 0 where the mask "
        "drops a pair"
    ),
}  # fmt: skip
"""What to do where only a family of inputs shows it, and no known mistake gives the same."""

BY_WORDS: tuple[tuple[str, str], ...] = (
    ("not a torch.Tensor", "Return one torch.Tensor, the output."),
    ("has shape", "Return (B, H, Lq, Dv), or (B, Lq, H, Dv) with layout='BLHD'; a layer returns (B, Lq, E)."),
    ("has dtype", "Return the output in the case's dtype: .to(q.dtype) at the end."),
    ("shares memory", "Return memory of its own: allocate the output in each call, or clone it."),
    (
        "changed its",
        "Leave the inputs as they are: no operation in place (add_, masked_fill_, out=) on q, k, v.",
    ),
    ("wrote to its", "Leave the inputs as they are, all the time: others may read them meanwhile."),
    ("wrote outside", "Write within the output alone: look at the bounds of the last block."),
    ("threads", "Use the threads that the case has: case.threads, set before and for good in preparation."),
    ("thread running", "End what the call starts before it returns, or make it in preparation."),
    ("process", "Start processes in preparation, if at all, and end them."),
    ("random numbers", "Draw no random numbers in a case without dropout."),
    (
        "the call changed",
        "Leave settings of the process as they are: set them in preparation or with a context manager.",
    ),
    (
        "the call set",
        "Leave settings of the process as they are: set them in preparation or with a context manager.",
    ),
    (
        "the call removed",
        "Leave settings of the process as they are: set them in preparation or with a context manager.",
    ),
    ("no gradient reaches", "Keep the graph: no .detach(), .data, NumPy or out= between inputs and output."),
)  # fmt: skip
"""What to do about what a worker has said in words, by a phrase of it; the first that is found counts."""


def by_words(reason: str) -> str:
    """What to do about a reason in words; "" where that says it all."""
    return next((do for phrase, do in BY_WORDS if phrase in reason), "")
