"""Attention on given heads: from q, k, v to the weighted sums of v."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attnbench.types.case import Case
from attnbench.types.operation import Heads, Kind, Operation, TensorSpec, refuses_width
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    from numpy.random import Generator

    from attnbench.types.backend import Call, Setup
    from attnbench.types.rule import Array


def heads_inputs(case: Case, rule: Rule) -> tuple[TensorSpec, ...]:
    """Return q, k and v. With a rule that pairs keys with queries k has the length Lq, an axis of its own."""
    keys, letter = (case.Lq, "p") if rule.pairs_keys else (case.Lk, "j")
    return (
        TensorSpec("q", (case.B, case.H, case.Lq, case.D), axes="bhid"),
        TensorSpec("k", (case.B, case.Hkv, keys, case.D), axes=f"bg{letter}d"),
        TensorSpec("v", (case.B, case.Hkv, case.Lk, case.Dv), axes="bgje"),
    )


def _outputs(case: Case) -> tuple[TensorSpec, ...]:
    """Return the output, and the log-sum-exp of each row's scores where it is asked for.

    It is in float32 also where the case is in half precision. A sink is not in it. Rows without keys have
    -inf.
    """
    out = TensorSpec("out", (case.B, case.H, case.Lq, case.Dv), axes="bhie")
    if "lse" not in case.returns:
        return (out,)
    kind: Kind = "float" if case.dtype == "float64" else "float32"
    return (out, TensorSpec("lse", (case.B, case.H, case.Lq), kind, axes="bhi"))


def draw_heads(case: Case, rule: Rule, stream: Callable[[str], Generator]) -> dict[str, Any]:
    """Draw q and k as standard normal numbers. Each value depends in part on its key.

    So outputs stay away from the mean of all values however many keys there are. In each head v has a mean of
    its own.
    """
    import numpy as np

    q, k, v = (
        stream(word).standard_normal(spec.shape)
        for word, spec in zip("abc", heads_inputs(case, rule), strict=True)
    )
    if not rule.pairs_keys:
        # In place: with a long cache each copy takes as long as a draw.
        v += k if case.Dv == case.D else k[..., np.arange(case.Dv) % case.D]
        v /= np.sqrt(2)
    v += head_means(case.Hkv)[:, None, None]
    return {"q": q, "k": k, "v": v}


def head_means(Hkv: int) -> Array:
    """Return the mean of v in each key/value head: even steps from -1/2 to 1/2; 0 for one head."""
    import numpy as np

    return np.linspace(-0.5, 0.5, Hkv) if Hkv > 1 else np.zeros(1)


def pair_flops(case: Case, rule: Rule, pairs: int) -> float:
    """Count the operations of the scores and of the sums of values, for ``pairs`` kept (query, key) pairs."""
    scores = 2 * case.D if rule.score_flops is None else rule.score_flops(case)
    return pairs * (scores + 2 * case.Dv)


def unread_elements(case: Case, rule: Rule, kept_queries: int, kept_keys: int) -> int:
    """Count the elements of q, k and v that no kept pair reads, over all batch elements."""
    queries, keys = case.B * case.Lq - kept_queries, case.B * case.Lk - kept_keys
    # A rule that pairs each query with a key reads that key with the query, and of Lk keys only values.
    by_key = queries if rule.pairs_keys else keys
    return queries * case.H * case.D + (by_key * case.D + keys * case.Dv) * case.Hkv


def plain(setup: Setup) -> Call:
    """Prepare the plain reference. It is imported here because it needs torch."""
    from attnbench.kit.reference import prepare

    return prepare(setup)


ATTENTION = Operation(
    name="attention",
    summary="attention over heads: q, k, v to (B, H, Lq, Dv)",
    inputs=heads_inputs,
    outputs=_outputs,
    flops=pair_flops,
    heads=Heads(
        project=lambda case, parameters, sources: sources,
        finish=lambda case, rule, parameters, queries, attended: attended,
        rows=2,
    ),
    draw=draw_heads,
    check=refuses_width,
    reference=plain,
    unread=unread_elements,
    returns=("lse",),
    lengths=("q", "k"),
    encoded=("k", "v"),
)
