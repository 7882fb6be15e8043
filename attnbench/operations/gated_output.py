"""Attention whose output is gated: each feature times the sigmoid of a gate, before the output projection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from attnbench.operations.attention import draw_heads, heads_inputs, pair_flops, unread_elements
from attnbench.types.arithmetic import EXP_ERROR, SUM_ERROR
from attnbench.types.operation import Operation, Problem, TensorSpec, refuses_width
from attnbench.types.rule import Rule, of_head

if TYPE_CHECKING:
    import numpy as np

    from attnbench.types.backend import Setup
    from attnbench.types.case import Case
    from attnbench.types.rule import Array

    Stream = Callable[[str], np.random.Generator]
    Named = Mapping[str, Any]

END = 12.0
"""A gate of so much lets all of an output pass, or nothing that float32 keeps of it."""


def _inputs(case: Case, rule: Rule) -> tuple[TensorSpec, ...]:
    gate = TensorSpec("gate", (case.B, case.H, case.Lq, case.Dv), axes="bhie")
    return (*heads_inputs(case, rule), gate)


def _outputs(case: Case) -> tuple[TensorSpec, ...]:
    return (TensorSpec("out", (case.B, case.H, case.Lq, case.Dv), axes="bhie"),)


def _draw(case: Case, rule: Rule, stream: Stream) -> dict[str, Any]:
    gate = stream("gate").standard_normal((case.B, case.H, case.Lq, case.Dv))
    return {**draw_heads(case, rule, stream), "gate": 1.5 * gate}


def _stress(case: Case, rule: Rule) -> dict[str, Callable[[Case, Rule, Stream], Named]]:
    return {"gate_ends": _draw_ends}


def _draw_ends(case: Case, rule: Rule, stream: Stream) -> Named:
    """Let each gate be open or shut."""
    drawn = _draw(case, rule, lambda word: stream(f"stress {word}"))
    drawn["gate"] = stream("ends").choice([-END, END], drawn["gate"].shape)
    return drawn


def softmax_growth(case: Case, rule: Rule, inputs: Named) -> tuple[float, float]:
    """Return in how many roundings right kernels differ: as in attention, another exp and order of sums."""
    roundings: float = EXP_ERROR + SUM_ERROR * max(case.Lk, case.D) ** 0.5 - 1
    return roundings, roundings


def attended(problem: Problem, v: Array, heads: Callable[[int], int]) -> Array:
    """Return the weighted sums of v by query head, (B, H, Lq, Dv), in float64 or wider.

    heads: the head of v that a query head reads.
    """
    import numpy as np

    from attnbench.oracle.solve import scores_of, softmax

    case, rule, own = problem.case, problem.rule, problem.rule_parameters
    wide: type[np.floating[Any]] = np.longdouble if case.dtype == "float64" else np.float64
    q, k = (np.asarray(problem.inputs[name], wide) for name in "qk")
    v = np.asarray(v, wide)
    out = np.zeros((case.B, case.H, case.Lq, case.Dv), wide)
    for b, h, at, scores in scores_of(case, rule, own, q, k, np.arange(case.Lq)):
        sink = None if rule.sink is None else rule.sink(of_head(case, rule, own, h))
        out[b, h, at] = softmax(scores, sink) @ v[b, heads(h)]
    return out


def _sums(problem: Problem) -> Array:
    return attended(problem, problem.inputs["v"], lambda h: h // problem.case.group)


def _opened(problem: Problem) -> Array:
    import numpy as np

    # Of the sums' dtype, so that float64 cases keep their digits.
    return np.asarray(1 / (1 + np.exp(-np.asarray(problem.inputs["gate"], np.longdouble))))


def _solve(problem: Problem) -> dict[str, Array]:
    return {"out": _sums(problem) * _opened(problem)}


def _trivial(problem: Problem) -> dict[str, dict[str, Array]]:
    import numpy as np

    case = problem.case
    mean = np.repeat(problem.inputs["v"].mean(2, keepdims=True), case.group, axis=1)
    return {
        "attention without the gate": {"out": _sums(problem)},
        "the gated mean of the values": {"out": mean * _opened(problem)},
    }


def _change(case: Case, rule: Rule, rng: np.random.Generator) -> tuple[Named, Named]:
    from attnbench.inputs.symmetries import draw_change

    change = draw_change(case, rule, rng)
    return change.orders, change.factors


def _unread(case: Case, rule: Rule, queries: int, keys: int) -> int:
    """Count the elements that no kept pair reads; gates of queries without keys are among them."""
    return unread_elements(case, rule, queries, keys) + (case.B * case.Lq - queries) * case.H * case.Dv


def _plain(setup: Setup) -> Callable[..., Any]:
    """Prepare the plain reference. It is imported here because it needs torch."""
    from attnbench.kit.reference import prepare

    attend = prepare(setup)
    return lambda q, k, v, gate: attend(q, k, v) * gate.sigmoid()


GATED_OUTPUT = Operation(
    name="gated_output",
    summary="attention whose output is multiplied by the sigmoid of a gate: q, k, v, gate to (B, H, Lq, Dv)",
    inputs=_inputs,
    outputs=_outputs,
    flops=pair_flops,
    solve=_solve,
    draw=_draw,
    check=refuses_width,
    reference=_plain,
    unread=_unread,
    baseline="gated_sdpa",
    stress=_stress,
    trivial=_trivial,
    growth=softmax_growth,
    change=_change,
)
