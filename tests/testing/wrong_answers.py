"""Backends whose answers are diagnosed: each makes one mistake, on any case."""

from __future__ import annotations

from typing import Any

from wrong_first_tries import _by_last, _no_scale, _right, right

from attnbench import Backend, hookimpl


def keep_of(case: Any) -> Any:
    import numpy as np
    import torch

    from attnbench.masks import keep_rows

    keep = keep_rows(case, np.arange(case.Lq))
    return None if keep is None else torch.from_numpy(keep)


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


def _other_layout(setup: Any) -> Any:
    """Without the scale, on inputs and output of (B, L, H, D)."""
    return lambda q, k, v: right(*(x.transpose(1, 2) for x in (q, k, v)), scale=1.0).transpose(1, 2)


def _odd_row(setup: Any) -> Any:
    def call(q: Any, k: Any, v: Any) -> Any:
        out = right(q, k, v)
        out[:, :, 3] *= 1.7
        return out

    return call


def _odd_gradient(setup: Any) -> Any:
    return lambda q, k, v: right(q, k, v.detach() + 1.7 * (v - v.detach()))


def _no_gradient_scale(setup: Any) -> Any:
    def call(q: Any, k: Any, v: Any) -> Any:
        root = setup.case.D**0.5
        return right(q.detach() + root * (q - q.detach()), k, v)

    return call


def _float_16(setup: Any) -> Any:
    return lambda q, k, v: (q @ k.mT * setup.case.D**-0.5).half().softmax(-1).float() @ v


PREPARES = {
    "right_one": _right,
    "no_scale": _no_scale,
    "two_mistakes": _no_scale,
    "ignores_masks": _right,
    "by_last": _by_last,
    "tiles_heads": _tiles_heads,
    "other_corner": _other_corner,
    "nan_rows": _nan_rows,
    "inverted": _inverted,
    "over_queries": _over_queries,
    "viewed": _viewed,
    "odd_row": _odd_row,
    "odd_gradient": _odd_gradient,
    "no_gradient_scale": _no_gradient_scale,
    "float_16": _float_16,
    "other_layout": _other_layout,
}


@hookimpl
def attnbench_backends() -> list[Backend]:
    return [
        Backend(
            name, "a first try", prepare, rules=("scaled_dot",), passes=("forward", "both"),
            layout="BLHD" if name == "other_layout" else "BHLD",
        )
        for name, prepare in PREPARES.items()
    ]  # fmt: skip
