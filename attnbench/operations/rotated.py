"""Attention that norms queries and keys and turns them by their positions itself, as fused kernels do.

Qwen3 norms q and k of each head by their root mean square (Zhang and Sennrich 2019, Root Mean Square Layer
Normalization, eq. 4), then turns pairs of features (Su et al. 2021, RoFormer, eq. 34). The pairs are the
halves of a head, as in Llama: features d and d + D/2 turn by the angle p · 10000^(-2d/D).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnbench.kit.rotary import BASE, EPS
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
    """Return q and k before their norms, v, and the weights of both norms, one for each feature."""
    norms = (TensorSpec(f"norm_{of}", (case.D,), axes="d") for of in "qk")
    return (*heads_inputs(case, rule), *norms)


def _outputs(case: Case) -> tuple[TensorSpec, ...]:
    return (TensorSpec("out", (case.B, case.H, case.Lq, case.Dv), axes="bhie"),)


def _draw(case: Case, rule: Rule, stream: Stream) -> Named:
    """Draw rows of very different lengths, which the norms take away, and norms around 1."""
    import numpy as np

    drawn = dict(draw_heads(case, rule, stream))
    for name in "qk":
        lengths = np.exp(stream(f"lengths of {name}").standard_normal(drawn[name].shape[:3]))
        drawn[name] = drawn[name] * lengths[..., None]
        drawn[f"norm_{name}"] = 1 + 0.4 * stream(f"norm of {name}").standard_normal(case.D)
    return drawn


def normed(x: Array, weights: Array) -> Array:
    """Return rows divided by their root mean square, times weights."""
    import numpy as np

    return np.asarray(x / np.sqrt((x**2).mean(-1, keepdims=True) + EPS) * weights)


def turned(x: Array, positions: Array) -> Array:
    """Return rows (…, L, D) with their pairs of features turned by the angles of their positions (L,)."""
    import numpy as np

    half = x.shape[-1] // 2
    angles = positions[:, None] * np.power(x.dtype.type(BASE), -np.arange(half, dtype=x.dtype) / half)
    cos, sin = np.cos(angles), np.sin(angles)
    first, second = x[..., :half], x[..., half:]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def _solve(problem: Problem) -> dict[str, Array]:
    return {"out": _of(problem, turned)}


def _of(problem: Problem, turn: Callable[[Array, Array], Array]) -> Array:
    import numpy as np

    case = problem.case
    wide: type[np.floating[Any]] = np.longdouble if case.dtype == "float64" else np.float64
    given = {name: np.asarray(x, wide) for name, x in problem.inputs.items()}
    places = {"q": np.arange(case.Lq) + case.query_offset, "k": np.arange(case.Lk)}
    own = {
        name: turn(normed(given[name], given[f"norm_{name}"]), at.astype(wide)) for name, at in places.items()
    }
    return attended(replace(problem, inputs=given | own), given["v"], lambda h: h // case.group)


def _trivial(problem: Problem) -> dict[str, dict[str, Array]]:
    """Return the answers without one of both, and without the scores."""
    import numpy as np

    case = problem.case
    mean = np.repeat(problem.inputs["v"].mean(2, keepdims=True), case.group, axis=1)
    shape = (case.B, case.H, case.Lq, case.Dv)
    return {
        "without the turn": {"out": _of(problem, lambda x, positions: x)},
        "the mean of the values": {"out": np.broadcast_to(mean, shape)},
    }


def _change(case: Case, rule: Rule, rng: np.random.Generator) -> tuple[Named, Named]:
    """Draw orders of batch elements and heads, and signs of features of v; positions keep their order."""
    from attnbench.inputs.symmetries import draw_change

    change = draw_change(case, rule, rng)
    orders = {letter: order for letter, order in change.orders.items() if letter in "bgh"}
    return orders, {name: change.factors[name] for name in ("v", "out")}


def _check(case: Case) -> str | None:
    if width := refuses_width(case):
        return width
    return f"rotated turns pairs of features: D = {case.D} must be even" if case.D % 2 else None


def _plain(setup: Setup) -> Callable[..., Any]:
    """Prepare the plain reference. It is imported here because it needs torch."""
    from attnbench.kit.reference import prepare
    from attnbench.kit.rotary import norm_and_turn

    attend, change = prepare(setup), norm_and_turn(setup)

    def call(q: Any, k: Any, v: Any, norm_q: Any, norm_k: Any) -> Any:
        return attend(*change(q, k, norm_q, norm_k), v)

    return call


ROTATED = Operation(
    name="rotated",
    summary="attention of normed and rotated q and k: raw q, k, v and both norms to (B, H, Lq, Dv)",
    inputs=_inputs,
    outputs=_outputs,
    flops=pair_flops,
    solve=_solve,
    draw=_draw,
    check=_check,
    reference=_plain,
    unread=unread_elements,
    baseline="rotated_sdpa",
    trivial=_trivial,
    growth=softmax_growth,
    change=_change,
)
