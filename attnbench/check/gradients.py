"""Gradients: the tensors they belong to, those of the plain reference in any dtype, and the unit of
errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnbench.check.errors import Scale, scale_of
from attnbench.check.reference import prepare
from attnbench.inputs.draw import EPS
from attnbench.kit.dtypes import case_dtype
from attnbench.types.backend import Setup
from attnbench.types.case import Case, Dtype, activation_shapes, projection_shapes, rule_parameter_shapes
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call
    from attnbench.types.rule import Array

    Triple = tuple[Tensor, Tensor, Tensor]


class NoGradient(RuntimeError):  # noqa: N818
    """The graph of an output reaches nothing, or not all that it should; the text says which."""


def source_names(case: Case, rule: Rule) -> tuple[str, str, str]:
    """Return the names of the three inputs; the same name twice means the same tensor twice.

    ``q``, ``k``, ``v``; in a layer ``x`` for one source, ``x`` and ``context`` where keys and values share
    one, else ``queries``, ``keys`` and ``values``.
    """
    if case.layer is None:
        return "q", "k", "v"
    if case.is_self_attention:
        return "x", "x", "x"
    _, keys, values = activation_shapes(case, rule)
    return ("x", "context", "context") if keys == values else ("queries", "keys", "values")


def leaves(setup: Setup, inputs: Sequence[Tensor]) -> dict[str, Tensor]:
    """Return the tensors that get gradients, by name: inputs (each tensor once), parameters, projections.

    Raises:
        NoGradient: one of them requires no gradient, or is not a leaf.
    """
    names = source_names(setup.case, setup.rule)
    found = dict(zip(names, inputs, strict=True))
    found |= {f"rule.{name}": x for name, x in setup.rule_parameters.items()}
    found |= setup.projections
    for name, x in found.items():
        if not (x.requires_grad and x.is_leaf):
            raise NoGradient(f"{name} is not a leaf that requires a gradient")
    return found


def with_gradients(setup: Setup) -> Setup:
    """Copy a setup with leaves that require gradients as parameters, and the rule bound to them."""
    own = {name: as_leaf(x) for name, x in setup.rule_parameters.items()}
    projections = {name: as_leaf(x) for name, x in setup.projections.items()}
    return Setup(setup.case, setup.rule, setup.rule.bind(setup.case, own), own, projections)


def as_leaf(x: Tensor) -> Tensor:
    """Copy a tensor; the copy requires a gradient."""
    return x.detach().clone().requires_grad_()


def leaf_inputs(inputs: Triple) -> Triple:
    """Copy three inputs as leaves that require gradients; a tensor given twice stays one."""
    made = {id(x): as_leaf(x) for x in inputs}
    a, b, c = (made[id(x)] for x in inputs)
    return a, b, c


@dataclass(frozen=True)
class Both:
    """A forward pass and its backward pass as one call: ``(a, b, c)`` to the output and the gradients.

    names: of the results, ``out`` first. upstream: the gradient of the output, in its layout; it may be
    overwritten in place at any time.
    """

    call: Call
    setup: Setup
    upstream: Tensor
    names: tuple[str, ...]
    parameters: tuple[Tensor, ...] = field(repr=False)

    def __call__(self, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        """Return the output and all gradients of inputs that require them.

        Raises:
            NoGradient: a gradient is missing.
        """
        out = self.call(a, b, c)
        sources = distinct(a, b, c)
        return (out.detach(), *_gradients(out, (*sources, *self.parameters), self.upstream, self.names[1:]))

    def renew(self, *triples: Triple) -> None:
        """Do nothing: nothing is kept from one call to the next."""


@dataclass(frozen=True)
class Backward:
    """A backward pass alone as a call: ``(a, b, c)`` to the gradients of an output that was computed before.

    ``renew`` computes the forward pass, which is not timed; every call uses its graph again. names, upstream:
    as in :class:`Both`, without ``out``. After inputs change in place, call ``renew`` before the next call.
    Otherwise torch raises where the forward pass kept an input itself, and old or mixed gradients come back
    where it kept copies.
    """

    call: Call
    setup: Setup
    upstream: Tensor
    names: tuple[str, ...]
    parameters: tuple[Tensor, ...] = field(repr=False)
    outputs: dict[int, tuple[Tensor, tuple[Tensor, ...]]] = field(default_factory=dict, repr=False)

    def __call__(self, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        """Return all gradients.

        Raises:
            NoGradient: a gradient is missing.
            KeyError: ``renew`` was not called with these inputs.
        """
        out, wanted = self.outputs[id(a)]
        return _gradients(out, wanted, self.upstream, self.names, keep=True)

    def renew(self, *triples: Triple) -> None:
        """Drop all graphs and make new ones for these inputs: several where inputs rotate."""
        self.outputs.clear()
        for a, b, c in triples:
            wanted = (*distinct(a, b, c), *self.parameters)
            self.outputs[id(a)] = self.call(a, b, c), wanted


def passed(call: Call, setup: Setup, upstream: Tensor) -> Both | Backward:
    """Return the pass of a case with gradients as a function of its three inputs.

    Call ``renew`` with all inputs that will be used, before the first call and whenever they change. Grad
    mode must be on, also in calls.

    call: what the backend prepared for ``setup``. upstream: the gradient of the output, of its shape and
    layout.
    """
    case = setup.case
    parameters = (*setup.rule_parameters.values(), *setup.projections.values())
    names = gradient_names(case, setup.rule)
    if case.pass_ == "both":
        return Both(call, setup, upstream, ("out", *names), parameters)
    assert case.pass_ == "backward", "a forward pass has no gradients"
    return Backward(call, setup, upstream, names, parameters)


def gradient_names(case: Case, rule: Rule) -> tuple[str, ...]:
    """Return the names of :func:`leaves`, in the same order."""
    own = (f"rule.{name}" for name in rule_parameter_shapes(case, rule))
    return (*dict.fromkeys(source_names(case, rule)), *own, *projection_shapes(case, rule))


def plain_gradients(
    setup: Setup, inputs: Triple, upstream: Tensor, *, held: bool = False
) -> dict[str, Tensor]:
    """Return the plain reference's gradients by name, in the setup's dtype; arguments are not changed.

    In float64 (:func:`recast`) they are the exact gradients; :func:`plain_errors` gives the errors that
    others are measured by.

    held: treat the softmax's denominators as constants. Their part is subtracted in the backward pass and may
    leave nothing: for one key, or the bias of keys, gradients are exactly 0, and only the rounding of the two
    terms remains. Limits therefore count in units of either, whichever is larger.
    """
    import torch

    with torch.inference_mode(False), torch.enable_grad():
        own, sources = with_gradients(setup), leaf_inputs(inputs)
        wanted = leaves(own, sources)
        out = prepare(own, held)(*sources)
        found = _gradients(out, tuple(wanted.values()), upstream.clone(), tuple(wanted))
    return dict(zip(wanted, found, strict=True))


def plain_errors(setup: Setup, inputs: Triple, upstream: Tensor) -> dict[str, Tensor]:
    """Return the errors of the plain reference's gradients in the dtype of the case, by element, in float64.

    No wider dtype exists for a float64 case. Its errors are those in float32, on numbers rounded to it, times
    the ratio of the gaps between numbers.
    """
    case = setup.case
    narrow: Dtype = "float32" if case.dtype == "float64" else case.dtype
    narrowed, sources = recast(setup, inputs, narrow)
    wide, wide_sources = recast(narrowed, sources, "float64")
    upstream = upstream.to(case_dtype(narrowed.case))
    got = plain_gradients(narrowed, sources, upstream)
    exact = plain_gradients(wide, wide_sources, upstream.double())
    ratio = EPS[case.dtype] / EPS[narrow]
    return {name: (got[name].double() - exact[name]) * ratio for name in exact}


def recast(setup: Setup, inputs: Triple, dtype: Dtype) -> tuple[Setup, Triple]:
    """Convert a case and its numbers to another dtype; a tensor given twice stays one."""
    case = replace(setup.case, dtype=dtype)
    to = case_dtype(case)
    own = {name: x.detach().to(to) for name, x in setup.rule_parameters.items()}
    projections = {name: x.detach().to(to) for name, x in setup.projections.items()}
    made = {id(x): x.detach().to(to) for x in inputs}
    a, b, c = (made[id(x)] for x in inputs)
    return Setup(case, setup.rule, setup.rule.bind(case, own), own, projections), (a, b, c)


def distinct(a: Any, b: Any, c: Any) -> tuple[Any, ...]:
    """Return each of three tensors once, in order."""
    if b is c:
        return (a,) if a is b else (a, b)
    return a, b, c


def _gradients(
    out: Tensor, wanted: tuple[Tensor, ...], upstream: Tensor, names: tuple[str, ...], keep: bool = False
) -> tuple[Tensor, ...]:
    from torch.autograd import grad

    if not out.requires_grad:
        raise NoGradient("the output has no graph: no gradient reaches anything")
    found: tuple[Any, ...] = grad(out, wanted, upstream, retain_graph=keep, allow_unused=True)
    for x in found:
        if x is None:
            raise NoGradient(f"no gradient reaches {', '.join(_missing(names, found))}")
    return found


def _missing(names: tuple[str, ...], found: tuple[Any, ...]) -> list[str]:
    return [name for name, x in zip(names, found, strict=True) if x is None]


BEFORE = 0.5
"""The share of the terms before subtraction that counts. A larger one widens the limits of ordinary
gradients (at 1, in bfloat16, from 2.6 % of dq to 4.2 %); a quarter refused one of 3000 right gradients."""

VANISHED = 4.0
"""The share that counts where the subtraction leaves nothing: rounding adds up over D features."""

FEW = 8.0
"""A root mean square over n numbers, such as sinks of two heads, may be sqrt(1 + FEW / n) times too small."""


SUMMED = 2.0
"""The factor on both for a bias, whose gradient is a sum over all rows of the batch, in any order. Without
it two of 574 right gradients of the suite ``edges`` reached 1.1 and 1.6 of the limits."""


def gradient_scale(
    exact: Sequence[Array], held: Sequence[Array], dtype: Dtype, *, summed: bool = False
) -> Scale:
    """Return the scale of the gradients of one tensor over all draws, for
    :func:`attnbench.check.errors.verdict`.

    It serves as the scale of the output and as that of the values. exact: by :func:`plain_gradients` in
    float64. held: the same with ``held``. summed: whether the tensor is a bias.
    """
    own, before = scale_of(exact), scale_of(held)
    share = VANISHED if own.rms <= EPS[dtype] * before.rms else BEFORE
    few = float(np.sqrt(1 + FEW / sum(array.size for array in exact)))
    few *= SUMMED if summed else 1.0
    return Scale(
        rms=few * max(own.rms, share * before.rms), largest=few * max(own.largest, share * before.largest)
    )
