"""A plugin of backends as a first try may be: each is wrong in one way, or right."""

from __future__ import annotations

from typing import Any

from attnbench import Backend, hookimpl

KEPT: dict[Any, Any] = {}
LAST: list[Any] = []


def right(q: Any, k: Any, v: Any, scale: float | None = None, keep: Any = None) -> Any:
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if keep is not None:
        scores = scores.masked_fill(~keep, -float("inf"))
    return scores.softmax(-1) @ v


def keep_of(case: Any) -> Any:
    import numpy as np
    import torch

    from attnbench.masks import keep_rows

    keep = keep_rows(case, np.arange(case.Lq))
    return None if keep is None else torch.from_numpy(keep)


def _right(setup: Any) -> Any:
    return lambda q, k, v: right(q, k, v)


def _no_scale(setup: Any) -> Any:
    return lambda q, k, v: right(q, k, v, scale=1.0)


def _tiles_heads(setup: Any) -> Any:
    group = setup.case.group
    return lambda q, k, v: right(q, k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1))


def _other_corner(setup: Any) -> Any:
    import torch

    keep = torch.ones(setup.case.Lq, setup.case.Lk, dtype=torch.bool).tril()
    return lambda q, k, v: right(q, k, v, keep=keep)


def _nan_rows(setup: Any) -> Any:
    keep = keep_of(setup.case)
    return lambda q, k, v: right(q, k, v, keep=keep)


def _inverted(setup: Any) -> Any:
    keep = keep_of(setup.case)
    return lambda q, k, v: right(q, k, v, keep=~keep).nan_to_num(0)


def _over_queries(setup: Any) -> Any:
    return lambda q, k, v: (q @ k.mT * setup.case.D**-0.5).softmax(-2) @ v


def _viewed(setup: Any) -> Any:
    def call(q: Any, k: Any, v: Any) -> Any:
        out = right(q, k, v)
        return out.transpose(1, 2).reshape(out.shape)

    return call


def _keeps_answers(setup: Any) -> Any:
    def call(q: Any, k: Any, v: Any) -> Any:
        at = (q.data_ptr(), tuple(q.shape), float(q.sum()))
        if at not in KEPT:
            KEPT[at] = right(q, k, v)
        return KEPT[at].clone()

    return call


def _in_place(setup: Any) -> Any:
    return lambda q, k, v: right(q.mul_(setup.case.D**-0.5), k, v, scale=1.0)


def _other_layout(setup: Any) -> Any:
    """Without the scale, on inputs and output of (B, L, H, D)."""
    return lambda q, k, v: right(*(x.transpose(1, 2) for x in (q, k, v)), scale=1.0).transpose(1, 2)


def _by_last(setup: Any) -> Any:
    """Prepares into a global, so that the case that was prepared last serves all."""
    LAST[:] = [setup.case.D]
    return lambda q, k, v: right(q, k, v, scale=LAST[0] ** -0.5)


def _square_only(setup: Any) -> Any:
    if setup.case.Dv != setup.case.D:
        raise NotImplementedError("values of another width")
    return lambda q, k, v: right(q, k, v)


def _plain(case: Any, rule: Any) -> str | None:
    """Takes few cases, the same for all, so that they are judged together and soon."""
    if not case.mask.is_none:
        return "has no masks"
    if case.group > 1:
        return "shares no heads"
    return None if case.Lq == 17 and case.B == 2 else "is for two times 17 queries"


def _any(case: Any, rule: Any) -> str | None:
    return None


def _raising(case: Any, rule: Any) -> str | None:
    return _plain(case, rule) or f"shares {1 / (case.group - 1)} heads"


def _true(case: Any, rule: Any) -> Any:
    return _plain(case, rule) is not None or None


def _not_half(case: Any, rule: Any) -> str | None:
    return "has no kernel for bfloat16" if case.dtype == "bfloat16" else _plain(case, rule)


PARTS: dict[str, tuple[Any, Any]] = {
    "right_one": (_right, _plain),
    "no_scale": (_no_scale, _plain),
    "in_place": (_in_place, _plain),
    "keeps_answers": (_keeps_answers, _plain),
    "by_last": (_by_last, _plain),
    "square_only": (_square_only, _plain),
    "raising_supports": (_right, _raising),
    "true_supports": (_right, _true),
    # Of these answers are looked at, and not judged.
    "tiles_heads": (_tiles_heads, _any),
    "other_corner": (_other_corner, _any),
    "nan_rows": (_nan_rows, _any),
    "inverted": (_inverted, _any),
    "over_queries": (_over_queries, _any),
    "viewed": (_viewed, _any),
    "two_mistakes": (_no_scale, _any),
    "ignores_masks": (_right, _any),
}
JUDGED = (*list(PARTS)[:8], "no_half")


@hookimpl
def attnbench_backends() -> list[Backend]:
    made = [
        Backend(name, "a first try", prepare, supports, rules=("scaled_dot",), dtypes=("float32",))
        for name, (prepare, supports) in PARTS.items()
    ]
    half = Backend(
        "no_half", "a first try", _right, _not_half, rules=("scaled_dot",), dtypes=("float32", "bfloat16")
    )
    blhd = Backend("other_layout", "a first try", _other_layout, layout="BLHD", passes=("forward", "both"))
    return [*made, half, blhd]
