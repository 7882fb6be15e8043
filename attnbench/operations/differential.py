"""Differential attention: the weights of one half of the heads less λ times those of the other.

Ye et al. 2024, Differential Transformer, eq. 1, as DiffLlama of transformers lays heads out: query head h of
the first half belongs to h + H/2. The norm that follows, and the four vectors that λ comes from, lie outside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from attnbench.operations.attention import draw_heads, heads_inputs, pair_flops, unread_elements
from attnbench.operations.gated_output import attended, softmax_growth
from attnbench.types.operation import Operation, Problem, TensorSpec, refuses_width
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    import numpy as np

    from attnbench.types.backend import Setup
    from attnbench.types.case import Case
    from attnbench.types.rule import Array

    Stream = Callable[[str], np.random.Generator]
    Named = Mapping[str, Any]


def _inputs(case: Case, rule: Rule) -> tuple[TensorSpec, ...]:
    """Return q, k, v of half as many heads, and λ. In v both halves of a pair of heads stand together."""
    q, k, _ = heads_inputs(case, rule)
    v = TensorSpec("v", (case.B, case.Hkv // 2, case.Lk, case.Dv), axes="bnje")
    return (q, k, v, TensorSpec("lam", (1,), axes="l"))


def _outputs(case: Case) -> tuple[TensorSpec, ...]:
    return (TensorSpec("out", (case.B, case.H // 2, case.Lq, case.Dv), axes="bmie"),)


def _draw(case: Case, rule: Rule, stream: Stream) -> Named:
    drawn = draw_heads(case, rule, stream)
    halves = drawn["v"][:, : case.Hkv // 2]
    return {**drawn, "v": halves, "lam": stream("lam").uniform(0.3, 0.8, 1)}


def _halves(problem: Problem) -> tuple[Array, Array]:
    """Return the weighted sums of both halves of the heads, each (B, H/2, Lq, Dv)."""
    case = problem.case
    pairs = case.Hkv // 2
    sums = attended(problem, problem.inputs["v"], lambda h: h // case.group % pairs)
    return sums[:, : case.H // 2], sums[:, case.H // 2 :]


def _solve(problem: Problem) -> dict[str, Array]:
    first, second = _halves(problem)
    return {"out": first - problem.inputs["lam"] * second}


def _trivial(problem: Problem) -> dict[str, dict[str, Array]]:
    import numpy as np

    first, second = _halves(problem)
    mean = np.repeat(problem.inputs["v"].mean(2, keepdims=True), problem.case.group, axis=1)
    return {
        "the first half of the heads alone": {"out": first},
        "the halves with λ = 1": {"out": first - second},
        "the mean of the values times 1 - λ": {
            "out": np.broadcast_to(mean * (1 - problem.inputs["lam"]), first.shape)
        },
    }


def _change(case: Case, rule: Rule, rng: np.random.Generator) -> tuple[Named, Named]:
    """Draw what attention allows but an order of heads, which belong together by their places."""
    from attnbench.inputs.symmetries import draw_change

    change = draw_change(case, rule, rng)
    return {letter: order for letter, order in change.orders.items() if letter not in "gh"}, change.factors


def _unread(case: Case, rule: Rule, queries: int, keys: int) -> int:
    every = unread_elements(case, rule, queries, keys)
    return every - (case.B * case.Lk - keys) * case.Dv * (case.Hkv - case.Hkv // 2)


def _check(case: Case) -> str | None:
    if width := refuses_width(case):
        return width
    if case.H % 2 or case.Hkv % 2:
        return f"differential takes heads in pairs: H = {case.H} and Hkv = {case.Hkv} must be even"
    return None


def _plain(setup: Setup) -> Callable[..., Any]:
    """Prepare the plain reference. It is imported here because it needs torch."""
    from attnbench.kit.reference import prepare

    attend = prepare(setup)

    def call(q: Any, k: Any, v: Any, lam: Any) -> Any:
        first, second = attend(q, k, v.repeat(1, 2, 1, 1)).chunk(2, dim=1)
        return first - lam * second

    return call


DIFFERENTIAL = Operation(
    name="differential",
    summary="weights of half of the heads less λ times those of the other: q, k, v, λ to (B, H/2, Lq, Dv)",
    inputs=_inputs,
    outputs=_outputs,
    flops=pair_flops,
    solve=_solve,
    draw=_draw,
    check=_check,
    reference=_plain,
    unread=_unread,
    baseline="differential_sdpa",
    trivial=_trivial,
    growth=softmax_growth,
    change=_change,
)
