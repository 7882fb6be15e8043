"""Advice about a failure: by the inputs that show it, and by the failed check."""

from __future__ import annotations

from attnbench.types.status import Check

RAISES_NOTHING = (
    "supports() is called with any case: return None, or the reason as a string, and raise nothing."
)

BY_FAMILY: dict[str, str] = {
    "near_duplicate": (
        "The output is right on ordinary inputs, but wrong after two elements of v or k changed in the same "
        "memory. It comes from kept answers or packed keys of earlier inputs: compute it anew in each call."
    ),
    "strided": (
        "Views with strides of their own give a wrong output: read inputs by their strides, call "
        ".contiguous() in the call, or declare needs_contiguous=True."
    ),
    "sliced": (
        "Inputs that are slices of one tensor give a wrong output: read them by their strides and from their "
        "own addresses, call .contiguous() in the call, or declare needs_contiguous=True."
    ),
    "transposed": (
        "Keys whose features don't lie together give a wrong output: read the stride of the last axis, raise "
        "an exception, call .contiguous() in the call, or declare needs_contiguous=True."
    ),
    "two_graphs": (
        "The second backward pass of a graph is wrong, after another call: keep what backward needs in the "
        "graph (ctx.save_for_backward), not in a global, and change none of it."
    ),
    "graded": (
        "Inputs that require gradients give a wrong output: don't decide by requires_grad, or decline pass "
        "'both' in supports()."
    ),
    "dropped": (
        "NaN or infinity in dropped keys and values reaches the output: skip them or set them to 0, or don't "
        "declare ignores_dropped."
    ),
    "large_logits": (
        "Scores up to ±1000 give a wrong output: subtract each row's maximum before exp, clamp no scores, "
        "and use -inf for dropped pairs."
    ),
    "one_hot": (
        "Rows in which one key has all the weight are wrong: look at the row's maximum and at the first and "
        "last keys."
    ),
    "unlikely_values": (
        "Values of unlikely keys are wrong: look at the scale, and for dropped or rounded weights."
    ),
    "even": "Weights lose bits: keep them in float16 or float32, not in bfloat16.",
    "light_keys": (
        "Many light keys are lost beside a heavy one: keep the accumulator and the running sum in float32, "
        "and round once at the end."
    ),
    "small_values": (
        "Small values are lost: read subnormal numbers too where scales are float16, and keep scales in "
        "float32 that are in float32."
    ),
    "dropout": "Drop each weight by itself, anew in every call, after the softmax; scale others by 1/(1-p).",
    "weights": "Return the weights that make the output, with 0 where the mask drops a pair.",
}
"""by the stress input that alone shows a failure, where no known mistake gives the same output."""

WEIGH = (
    "Dropped keys have weight: a query's output changes with the values of keys that its mask drops. Give "
    "them -inf for a score, not a finite number; attnbench.masks.keep_rows gives the pairs that a mask keeps."
)
COARSE = (
    "Compute all parts, the softmax too, in the case's dtype or a finer one, or decline this dtype in "
    "supports(). If it is meant, declare the arithmetic as computes_in."
)
NOT_REPEATED = (
    "In a process of its own it is right on such inputs: look for values that it keeps from one call to the "
    "next, and for memory that it reads before writing it."
)
KEPT = (
    "Called anew it is right in {calls} of {calls} equal calls, and wrong after other inputs: it keeps "
    "something from one call to the next. Compute it anew in each call."
)
SOMETIMES = (
    "It is wrong in {wrong} of {calls} equal calls: look for what it keeps from one call to the next, for "
    "memory that it reads before writing it, and for threads that write the same memory."
)
IN_SMALLER = "The case itself is too large to be compared: this is so in {case}."
ALL_NAN = (
    "Every number of its output is NaN: look for 0/0 and inf - inf, as in a row without keys, and for memory "
    "that it never writes."
)
ALL_ZERO = "Every number of its output is 0: it may write another tensor than it returns, or nothing at all."
EMPTY_ROWS = (
    "Only rows without keys are wrong, as in a sequence without keys or with fewer keys than causal queries: "
    "their output is 0 and their lse -inf, whatever a running maximum of -inf or a sum of 0 makes of them."
)
EMPTY_GRADIENTS = (
    "Only gradients of sequences with rows without keys, or without queries, are wrong: nothing flows "
    "through such rows, so give 0 there, and mask before the softmax, since 0 · NaN is NaN."
)
UNUSED = (
    "The output changes with what lies in slots without a key, which may be NaN: read seqused_k[b] keys of "
    "sequence b, or clear the others; a weight of 0 times NaN is NaN."
)

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
    "leaks": "Free what a call allocates: look for lists and caches that get an entry in every call.",
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
