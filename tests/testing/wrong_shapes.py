"""Backends that are right at common shapes: each has one path that is wrong, and a right one beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from attnbench import Backend, hookimpl
from attnbench.kit.dtypes import case_dtype
from attnbench.kit.masks import additive_mask


def attend(setup: Any, q: Any, k: Any, v: Any, scale: float | None = None) -> Any:
    case = setup.case
    mask = additive_mask(case, case_dtype(case), case.device)
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, scale=scale, enable_gqa=True
    )


def wrong_scale(setup: Any, q: Any, k: Any, v: Any) -> Any:
    """The scale of the next power of two, as a padded head has it."""
    D = setup.case.D
    return attend(setup, q, k, v, scale=128**-0.5 if D in (80, 96) else D**-0.5)


def third_group(setup: Any, q: Any, k: Any, v: Any) -> Any:
    """Its values are those of the second."""
    if setup.case.Hkv == 3:
        v = torch.cat((v[:, :2], v[:, 1:2]), 1)
    return attend(setup, q, k, v)


def last_key(setup: Any, q: Any, k: Any, v: Any) -> Any:
    """Lost where it stands alone in a block of 128, after three others or more."""
    case = setup.case
    if case.Lk > 257 and case.Lk % 128 == 1 and case.mask.is_none:
        k, v = k[:, :, :-1], v[:, :, :-1]
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    return attend(setup, q, k, v)


def causal_rows(setup: Any, q: Any, k: Any, v: Any) -> Any:
    """Rows past 2,048 see one key less."""
    out = attend(setup, q, k, v)
    if setup.case.mask.causal is not None:
        for i in range(2048, setup.case.Lq):
            # The group's heads share keys.
            one = q[:, :, i : i + 1], k[:, :, :i], v[:, :, :i]
            out[:, :, i : i + 1] = torch.nn.functional.scaled_dot_product_attention(*one, enable_gqa=True)
    return out


def rows(setup: Any, q: Any, k: Any, v: Any) -> Any:
    """Rows past 4,096 are never written."""
    out = attend(setup, q, k, v)
    out[:, :, 4096:] = 0
    return out


WRONG: tuple[Callable[..., Any], ...] = (wrong_scale, third_group, last_key, causal_rows, rows)


def supports(case: Any, rule: Any) -> str | None:
    return "has no explicit masks" if case.mask.explicit is not None else None


@hookimpl
def attnbench_backends() -> list[Backend]:
    return [
        Backend(
            function.__name__, "test data", lambda setup, f=function: lambda q, k, v: f(setup, q, k, v),
            supports, rules=("scaled_dot",), dtypes=("float32",),
        )
        for function in (attend, *WRONG)
    ]  # fmt: skip
