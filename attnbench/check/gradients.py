"""Gradients: what they are of, the plain reference's in any dtype, and the unit of their errors."""

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
    """An output whose graph reaches nothing, or not all that it should; in words."""


def source_names(case: Case, rule: Rule) -> tuple[str, str, str]:
    """What the three inputs are called; the same name twice is the same tensor twice.

    ``q``, ``k``, ``v``. Of a layer ``x`` where all are one; ``x`` and ``context`` where keys and values are;
    else ``queries``, ``keys`` and ``values``.
    """
    if case.layer is None:
        return "q", "k", "v"
    if case.is_self_attention:
        return "x", "x", "x"
    _, keys, values = activation_shapes(case, rule)
    return ("x", "context", "context") if keys == values else ("queries", "keys", "values")


def leaves(setup: Setup, inputs: Sequence[Tensor]) -> dict[str, Tensor]:
    """What gradients are of, by name and in this order: inputs (each tensor once), parameters, projections.

    Raises:
        NoGradient: one of them asks for none, or isn't a leaf.
    """
    names = source_names(setup.case, setup.rule)
    found = dict(zip(names, inputs, strict=True))
    found |= {f"rule.{name}": x for name, x in setup.rule_parameters.items()}
    found |= setup.projections
    for name, x in found.items():
        if not (x.requires_grad and x.is_leaf):
            raise NoGradient(f"{name} is no leaf that requires a gradient")
    return found


def with_gradients(setup: Setup) -> Setup:
    """The same with leaves for parameters, copies that require gradients, and the rule bound to them."""
    own = {name: as_leaf(x) for name, x in setup.rule_parameters.items()}
    projections = {name: as_leaf(x) for name, x in setup.projections.items()}
    return Setup(setup.case, setup.rule, setup.rule.bind(setup.case, own), own, projections)


def as_leaf(x: Tensor) -> Tensor:
    """A copy that requires a gradient."""
    return x.detach().clone().requires_grad_()


def leaf_inputs(inputs: Triple) -> Triple:
    """Copies that require gradients; one tensor given twice stays one."""
    made = {id(x): as_leaf(x) for x in inputs}
    a, b, c = (made[id(x)] for x in inputs)
    return a, b, c


@dataclass(frozen=True)
class Both:
    """A forward pass and its backward, as one call: ``(a, b, c)`` to the output and the gradients.

    names: of what is returned, ``out`` first. upstream: the gradient of the output, in its layout; it may be
    written anew in place at any time.
    """

    call: Call
    setup: Setup
    upstream: Tensor
    names: tuple[str, ...]
    parameters: tuple[Tensor, ...] = field(repr=False)

    def __call__(self, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        """The output and all gradients, of tensors that require them.

        Raises:
            NoGradient: one of them is missing.
        """
        out = self.call(a, b, c)
        sources = distinct(a, b, c)
        return (out.detach(), *_gradients(out, (*sources, *self.parameters), self.upstream, self.names[1:]))

    def renew(self, *triples: Triple) -> None:
        """Nothing is kept from one call to the next."""


@dataclass(frozen=True)
class Backward:
    """A backward pass alone, as a call: ``(a, b, c)`` to the gradients of an output computed before.

    The forward is made by ``renew``, which isn't timed; its graph is kept and gone through in every call.
    names, upstream: as of :class:`Both`, without ``out``. Where inputs are changed in place they are renewed
    before the next call: without that torch refuses where the forward kept an input itself, and gradients of
    old inputs, or of a mixture, come back where it kept copies.
    """

    call: Call
    setup: Setup
    upstream: Tensor
    names: tuple[str, ...]
    parameters: tuple[Tensor, ...] = field(repr=False)
    outputs: dict[int, tuple[Tensor, tuple[Tensor, ...]]] = field(default_factory=dict, repr=False)

    def __call__(self, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        """All gradients.

        Raises:
            NoGradient: one of them is missing.
            KeyError: no forward was made of these inputs.
        """
        out, wanted = self.outputs[id(a)]
        return _gradients(out, wanted, self.upstream, self.names, keep=True)

    def renew(self, *triples: Triple) -> None:
        """Forget all forwards, and make them of these inputs: several where inputs rotate."""
        self.outputs.clear()
        for a, b, c in triples:
            wanted = (*distinct(a, b, c), *self.parameters)
            self.outputs[id(a)] = self.call(a, b, c), wanted


def passed(call: Call, setup: Setup, upstream: Tensor) -> Both | Backward:
    """The pass of a case that has gradients, as a function of the three inputs.

    ``renew`` it with all inputs that it will be called with, before the first call and after each change of
    theirs; grad mode is on, in calls too.

    call: what the backend prepared for ``setup``. upstream: the gradient of the output, which is as it.
    """
    case = setup.case
    parameters = (*setup.rule_parameters.values(), *setup.projections.values())
    names = gradient_names(case, setup.rule)
    if case.pass_ == "both":
        return Both(call, setup, upstream, ("out", *names), parameters)
    assert case.pass_ == "backward", "a forward pass has no gradients"
    return Backward(call, setup, upstream, names, parameters)


def gradient_names(case: Case, rule: Rule) -> tuple[str, ...]:
    """The names of :func:`leaves`, in its order."""
    own = (f"rule.{name}" for name in rule_parameter_shapes(case, rule))
    return (*dict.fromkeys(source_names(case, rule)), *own, *projection_shapes(case, rule))


def plain_gradients(
    setup: Setup, inputs: Triple, upstream: Tensor, *, held: bool = False
) -> dict[str, Tensor]:
    """The plain reference's gradients by name, in the setup's dtype; nothing that is given is changed.

    In float64 (:func:`recast`) they are what others are held against; :func:`plain_errors` is what errors
    are measured by.

    held: with the softmax's denominators held fixed. What these give is subtracted on the way back, and may
    leave nothing: of one key, or of the bias of keys, gradients are exactly 0 and what is computed is the
    rounding of the two terms. So the limits of a gradient's errors count in units of either, whichever is
    larger.
    """
    import torch

    with torch.inference_mode(False), torch.enable_grad():
        own, sources = with_gradients(setup), leaf_inputs(inputs)
        wanted = leaves(own, sources)
        out = prepare(own, held)(*sources)
        found = _gradients(out, tuple(wanted.values()), upstream.clone(), tuple(wanted))
    return dict(zip(wanted, found, strict=True))


def plain_errors(setup: Setup, inputs: Triple, upstream: Tensor) -> dict[str, Tensor]:
    """By how much the plain reference's gradients in the case's dtype are off, by element, in float64.

    In a float64 case nothing wider is there to tell: its errors are those in float32, on numbers rounded to
    it, times the ratio of the gaps between numbers.
    """
    case = setup.case
    narrow: Dtype = "float32" if case.dtype == "float64" else case.dtype
    given, sources = recast(setup, inputs, narrow)
    wide, wide_sources = recast(given, sources, "float64")
    upstream = upstream.to(case_dtype(given.case))
    got = plain_gradients(given, sources, upstream)
    exact = plain_gradients(wide, wide_sources, upstream.double())
    ratio = EPS[case.dtype] / EPS[narrow]
    return {name: (got[name].double() - exact[name]) * ratio for name in exact}


def recast(setup: Setup, inputs: Triple, dtype: Dtype) -> tuple[Setup, Triple]:
    """The same case and numbers in another dtype; one tensor given twice stays one."""
    case = replace(setup.case, dtype=dtype)
    to = case_dtype(case)
    own = {name: x.detach().to(to) for name, x in setup.rule_parameters.items()}
    projections = {name: x.detach().to(to) for name, x in setup.projections.items()}
    made = {id(x): x.detach().to(to) for x in inputs}
    a, b, c = (made[id(x)] for x in inputs)
    return Setup(case, setup.rule, setup.rule.bind(case, own), own, projections), (a, b, c)


def distinct(a: Any, b: Any, c: Any) -> tuple[Any, ...]:
    """Each of three tensors once, in order."""
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
"""The share of what is there before D is subtracted that counts. More widens limits of ordinary gradients
(in bfloat16 at 1 from 2.6 % of dq to 4.2 %), a quarter refused one of 3000."""

VANISHED = 4.0
"""How much of it counts where nothing of the gradient is left: rounding adds up over D features."""

FEW = 8.0
"""A root mean square over n numbers, as of a sink for each of two heads, may well be sqrt(1 + FEW / n) times
too small."""


SUMMED = 2.0
"""How much more of both counts for a bias, whose gradient is a sum over all rows of the batch, in any order:
of 574 right ones over the suite ``edges`` two used 1.1 and 1.6 of the limits without it."""


def gradient_scale(
    exact: Sequence[Array], held: Sequence[Array], dtype: Dtype, *, summed: bool = False
) -> Scale:
    """The scale of one part's gradients over all draws, for :func:`attnbench.check.errors.verdict`.

    summed: whether it is that of a bias.
    It serves as that of the output and as that of the values. exact: the gradients by
    :func:`attnbench.check.gradients.plain_gradients` in float64; held: the same with its denominators held.
    """
    own, before = scale_of(exact), scale_of(held)
    share = VANISHED if own.rms <= EPS[dtype] * before.rms else BEFORE
    few = float(np.sqrt(1 + FEW / sum(array.size for array in exact)))
    few *= SUMMED if summed else 1.0
    return Scale(
        rms=few * max(own.rms, share * before.rms), largest=few * max(own.largest, share * before.largest)
    )
