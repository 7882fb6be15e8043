"""The checks that a backend can fail: the words that stand as ``failed_check`` in records."""

from __future__ import annotations

from typing import Literal, get_args

Check = Literal[
    "",
    "values", "not_finite", "gradients", "dropout", "weights", "timed_values",
    "output_form", "aliasing", "inputs_changed", "bounds", "state", "activity", "leaks",
    "clock", "hidden_work", "kept_answers", "limit",
    "supports", "requires", "graph", "rule_forms", "reference", "trivial_answer",
]  # fmt: skip
"""The name of a check, or "" where none failed or a file does not say which."""

CHECKS: dict[Check, str] = {
    "values": "The output equals the exact answer within the tolerance of its dtype.",
    "not_finite": "NaN and infinity stand only where the exact answer has them.",
    "gradients": "Each gradient equals the exact gradient within the tolerance of its dtype.",
    "dropout": "Outputs of many calls have the mean and the spread that the dropout probability gives.",
    "weights": "The attention weights equal the exact weights, and are 0 where the mask drops a pair.",
    "timed_values": "The outputs of timed calls equal the exact answers.",
    "output_form": "The output is a dense torch.Tensor of the shape, dtype and device of the case.",
    "aliasing": "The output shares no memory with inputs, parameters or earlier outputs.",
    "inputs_changed": "A call leaves its inputs as they are.",
    "bounds": "A call writes nothing before or behind its inputs.",
    "state": "A call leaves the switches of torch and of the process as they are.",
    "activity": "A call ends its threads and processes, and uses no more threads than the case has.",
    "leaks": "The memory of the process does not grow with every call.",
    "clock": "The clock of the worker agrees with the clocks of the other processes.",
    "hidden_work": "Other threads do no work for a call while it is timed.",
    "kept_answers": "A call takes as long on repeated inputs as on new inputs.",
    "limit": "A call is not faster than the machine allows.",
    "supports": "supports() and available() return None or a reason in words, and raise nothing.",
    "requires": "Every module that the backend imports is installed.",
    "graph": "In a case with gradients the output is connected to its inputs.",
    "rule_forms": "The torch form and the NumPy form of the rule agree.",
    "reference": "The plain reference computes the case.",
    "trivial_answer": "The case refuses answers that need no attention, such as zeros.",
}
"""What a passed check proves, one sentence each."""

assert set(CHECKS) == set(get_args(Check)) - {""}
