"""A plugin for encoded keys and values: a right kernel of its own, and planted mistakes.

What codes and scales mean is written here once more, from the table in docs/serving.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from attnbench import Backend, hookimpl

if TYPE_CHECKING:
    from torch import Tensor

    Tensors = dict[str, Tensor]


def exchanged(t: Tensors) -> Tensors:
    return t | {"k_scale": t["v_scale"], "v_scale": t["k_scale"]}


def scales(change: Callable[[Tensor], Tensor]) -> Callable[[Tensors], Tensors]:
    return lambda t: t | {name: change(x) for name, x in t.items() if name.endswith("_scale")}


def one(name: str, change: Callable[[Tensor], Tensor]) -> Callable[[Tensors], Tensors]:
    return lambda t: t | {name: change(t[name])}


SCALED: dict[str, Callable[[Tensors], Tensors]] = {
    "scales ignored": scales(lambda s: s * 0 + 1),
    "scale of k ignored": one("k_scale", lambda s: s * 0 + 1),
    "scale of v ignored": one("v_scale", lambda s: s * 0 + 1),
    "scales squared": scales(lambda s: s * s),
    "scales inverted": scales(lambda s: 1 / s),
    "scales of k and v exchanged": exchanged,
    "v read as k": lambda t: t | {"v": t["k"], "v_scale": t["k_scale"]},
    "codes one too small": one("v", lambda x: x - 1),
}
BY_AXIS: dict[str, tuple[str, int]] = {"batch element": ("b", 0), "head": ("g", 1)}
"""What has scales of its own, its letter, and its axis in the scales of ``head``."""


def rolled(axis: int) -> Callable[[Tensors], Tensors]:
    return scales(lambda s: s.roll(1, axis))


MISTAKES: dict[str, dict[str, Callable[[Tensors], Tensors]]] = {
    "int8:head": SCALED
    | {f"scale of the next {what}": rolled(axis) for what, (_, axis) in BY_AXIS.items()}
    | {
        "first scale for all heads": scales(lambda s: s[:, :1].expand_as(s)),
        "codes without sign": one("k", lambda x: x.int() % 256),
    },
}
"""By the word of an encoding: the tensors that a wrong kernel takes for those that it got."""


def attend(setup: Any, wrong: Callable[[Tensors], Tensors], *, remembers: bool = False) -> Any:
    case, kept = setup.case, []

    def call(q: Tensor, k: Tensor, v: Tensor, k_scale: Tensor, v_scale: Tensor) -> Tensor:
        got = wrong({"k": k, "v": v, "k_scale": k_scale, "v_scale": v_scale})
        if remembers:
            kept[:] = kept or [got["k_scale"].clone(), got["v_scale"].clone()]
            got |= {"k_scale": kept[0], "v_scale": kept[1]}
        keys, values = (got[x].float() * got[f"{x}_scale"][..., None, None].float() for x in "kv")
        keys, values = (x.repeat_interleave(case.group, 1) for x in (keys, values))
        scores = q.float() @ keys.mT * case.D**-0.5
        return (scores.softmax(-1) @ values).to(q.dtype)

    return call


def backend(name: str, encoding: str, wrong: Callable[[Tensors], Tensors], **how: Any) -> Backend:
    return Backend(
        name=name.replace(" ", "_").replace(":", "_"),
        summary=name,
        prepare=lambda setup: attend(setup, wrong, **how),
        rules=("scaled_dot",),
        encodings=(encoding.partition(":")[0],),
    )


@hookimpl
def attnbench_backends() -> Iterator[Backend]:
    for encoding, mistakes in MISTAKES.items():
        yield backend(f"{encoding} right", encoding, lambda t: t)
        yield backend(f"{encoding} scales of the first call", encoding, lambda t: t, remembers=True)
        for name, wrong in mistakes.items():
            yield backend(f"{encoding} {name}", encoding, wrong)
