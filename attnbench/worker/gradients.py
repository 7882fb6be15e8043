"""Gradients: the tensors they belong to, and those of the plain reference in any dtype."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from attnbench.inputs.draw import EPS
from attnbench.kit.dtypes import case_dtype
from attnbench.kit.reference import prepare
from attnbench.types.backend import Setup
from attnbench.types.case import Case, Dtype, projection_shapes, rule_parameter_shapes
from attnbench.types.operation import operation_of
from attnbench.types.problem import (
    call_inputs,
    call_outputs,
    graded_outputs,
    held_outputs,
    upstreams_of,
)
from attnbench.types.rule import Rule
from attnbench.types.storage import DENSE, Storage, storage_of

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call

    Inputs = tuple[Tensor, ...]
    Several = Sequence[Sequence[Tensor]]
    """For each of several passes, the gradients of the outputs."""


class NoGradient(RuntimeError):  # noqa: N818
    """The graph of an output does not reach every tensor that needs a gradient; the text names them."""


def source_names(case: Case, rule: Rule, storage: Storage | None = None) -> tuple[str, ...]:
    """Return the names of the inputs that have gradients; the same name twice means the same tensor twice.

    ``q``, ``k``, ``v``; in a layer ``x`` for one source, ``x`` and ``context`` where keys and values share
    one, else ``queries``, ``keys`` and ``values``. storage: None for that of the case.
    """
    return tuple(spec.tensor for spec in call_inputs(case, rule, storage) if spec.is_floating)


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


def rebound(setup: Setup, change: Callable[[Tensor], Tensor], case: Case | None = None) -> Setup:
    """Copy a setup with each parameter changed and the rule bound to them. case: None for the same."""
    case = case or setup.case
    own = {name: change(x) for name, x in setup.rule_parameters.items()}
    projections = {name: change(x) for name, x in setup.projections.items()}
    return Setup(case, setup.rule, setup.rule.bind(case, own), own, projections)


def with_gradients(setup: Setup) -> Setup:
    """Copy a setup with leaves that require gradients as parameters, and the rule bound to them."""
    return rebound(setup, as_leaf)


def as_leaf(x: Tensor) -> Tensor:
    """Copy a tensor; the copy requires a gradient."""
    return x.detach().clone().requires_grad_()


def leaf_inputs(inputs: Sequence[Tensor]) -> Inputs:
    """Copy inputs as leaves that require gradients; a tensor given twice stays one."""
    made = {id(x): as_leaf(x) for x in inputs}
    return tuple(made[id(x)] for x in inputs)


@dataclass(frozen=True)
class GradientPass:
    """The pass ``both`` or ``backward`` of a case as a call: its inputs to what ``names`` lists.

    ``both`` computes the output, then the gradients. ``backward`` computes the gradients of an output that
    ``renew`` computed, which is not timed; every call uses its graph again. Call ``renew`` with all inputs
    that will be used, before the first call and whenever they change in place. Otherwise torch raises where
    the forward pass kept an input itself, and old or mixed gradients come back where it kept copies.

    names: of the results, in ``both`` with the outputs first. upstreams: the gradients of outputs, in their
    layout; they may be overwritten in place at any time. sources: the places of the inputs that get
    gradients, each tensor once. reached: the places of the outputs that gradients come from; None where the
    call returns one tensor. outputs: by the id of the first input.
    """

    call: Call
    setup: Setup
    upstreams: tuple[Tensor, ...]
    names: tuple[str, ...]
    parameters: tuple[Tensor, ...] = field(repr=False)
    sources: tuple[int, ...] = (0, 1, 2)
    reached: tuple[int, ...] | None = None
    outputs: dict[int, tuple[Any, tuple[Tensor, ...]]] = field(default_factory=dict, repr=False)

    @property
    def both(self) -> bool:
        """True for ``both``, False for ``backward``."""
        return self.setup.case.pass_ == "both"

    @property
    def upstream(self) -> Tensor:
        """The gradient of the only output that has one."""
        return self.upstreams[0]

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the results.

        Raises:
            NoGradient: a gradient is missing.
            KeyError: ``backward`` without ``renew`` for these inputs.
        """
        if not self.both:
            out, wanted = self.outputs[id(inputs[0])]
            return _gradients(self._reached(out), wanted, self.upstreams, self.names, keep=True)
        out, wanted = self._forward(*inputs)
        outputs = (out,) if self.reached is None else out
        found = _gradients(self._reached(out), wanted, self.upstreams, self.names[len(outputs) :])
        return (*(each.detach() for each in outputs), *found)

    def second(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the results of the second backward pass of a graph, in ``both``.

        Meanwhile a call on other numbers has made a graph, and used it.

        Raises:
            NoGradient: as in a call.
        """
        assert self.both, "a backward pass uses its graph in every call"
        # The gradients of q and k are the same where all signs change, so numbers must change too.
        halves = {id(x): as_leaf(-0.5 * x.detach()) for x in inputs if x.is_floating_point()}
        out, wanted = self._forward(*inputs)
        other, its = self._forward(*(halves.get(id(x), x) for x in inputs))
        outputs = (out,) if self.reached is None else out
        names = self.names[len(outputs) :]
        _gradients(self._reached(out), wanted, self.upstreams, names, keep=True)
        _gradients(self._reached(other), its, self.upstreams, names)
        found = _gradients(self._reached(out), wanted, self.upstreams, names)
        return (*(each.detach() for each in outputs), *found)

    def renew(self, *each: Sequence[Tensor]) -> None:
        """Drop all graphs; for ``backward`` make new ones for these inputs, several where inputs rotate."""
        self.outputs.clear()
        if not self.both:
            for inputs in each:
                self.outputs[id(inputs[0])] = self._forward(*inputs)

    def _forward(self, *inputs: Tensor) -> tuple[Any, tuple[Tensor, ...]]:
        whole = len(self.sources) == len(inputs)
        own = inputs if whole else tuple(inputs[place] for place in self.sources)
        return self.call(*inputs), (*own, *self.parameters)

    def _reached(self, out: Any) -> tuple[Tensor, ...]:
        if self.reached is not None and not isinstance(out, tuple):
            raise TypeError(f"the call gives a {type(out).__name__}; a tuple of its outputs is asked for")
        return (out,) if self.reached is None else tuple(out[place] for place in self.reached)


def passed(call: Call, setup: Setup, *upstreams: Tensor, storage: Storage | None = None) -> GradientPass:
    """Return the pass of a case with gradients as a function of its inputs.

    Grad mode must be on, also in calls.

    call: the function that the backend prepared for ``setup``. upstreams: the gradients of the output as the
    storage holds it, of its shape and layout. storage: None for that of the case.
    """
    case = setup.case
    assert case.pass_ != "forward", "a forward pass has no gradients"
    names = gradient_names(case, setup.rule, storage)
    outputs = call_outputs(case, storage)
    if case.pass_ == "both":
        names = (*(spec.name for spec in outputs), *names)
    reached = _graded_places(case, storage) if len(outputs) > 1 else None
    inputs = call_inputs(case, setup.rule, storage)
    first = {spec.tensor: place for place, spec in reversed([*enumerate(inputs)]) if spec.is_floating}
    sources = tuple(sorted(first.values()))
    return GradientPass(call, setup, upstreams, names, setup.parameters, sources, reached)


def _graded_places(case: Case, storage: Storage | None) -> tuple[int, ...]:
    """Return the places of the tensors of a call's result that gradients come from."""
    graded = {spec.name for spec in graded_outputs(case)}
    held = held_outputs(case, storage or storage_of(case))
    from_there = [specs[0].name in graded for specs, stored in held for _ in stored]
    return tuple(place for place, is_graded in enumerate(from_there) if is_graded)


def gradient_names(case: Case, rule: Rule, storage: Storage | None = None) -> tuple[str, ...]:
    """Return the names of :func:`leaves`, in the same order."""
    own = (f"rule.{name}" for name in rule_parameter_shapes(case, rule))
    return (*dict.fromkeys(source_names(case, rule, storage)), *own, *projection_shapes(case, rule))


def plain_gradients(
    setup: Setup, inputs: Sequence[Tensor], *upstreams: Tensor, held: bool = False
) -> dict[str, Tensor]:
    """Return the plain reference's gradients by name, in the setup's dtype; arguments are not changed.

    In float64 (:func:`recast`) they are the exact gradients; :func:`plain_errors` gives the errors that
    others are measured by.

    upstreams: the gradients of the outputs that have one. held: in attention, treat the softmax's
    denominators as constants. Their part is subtracted in the backward pass and may leave nothing: for one
    key, or the bias of keys, gradients are exactly 0, and only the rounding of the two terms remains. Limits
    therefore count in units of either, whichever is larger.
    """
    return _of_upstreams(setup, inputs, [upstreams], held)[0]


def _of_upstreams(
    setup: Setup, inputs: Sequence[Tensor], several: Several, held: bool = False
) -> list[dict[str, Tensor]]:
    """Return gradients for each of several passes; after the first only those of tensors with few numbers."""
    import torch

    with torch.inference_mode(False), torch.enable_grad():
        own, sources = with_gradients(setup), leaf_inputs(inputs)
        wanted = leaves(own, sources)
        operation = operation_of(setup.case)
        plain = operation.reference if operation.heads is None else None
        answer: Any = prepare(own, held)(*sources) if plain is None else plain(own)(*sources)
        outputs = (
            tuple(answer[place] for place in _graded_places(setup.case, DENSE))
            if isinstance(answer, tuple)
            else (answer,)
        )
        found = []
        for left, upstreams in zip(reversed(range(len(several))), several, strict=True):
            given = tuple(x.clone() for x in upstreams)
            made = _gradients(outputs, tuple(wanted.values()), given, tuple(wanted), keep=left > 0)
            found.append(dict(zip(wanted, made, strict=True)))
            wanted = {name: x for name, x in wanted.items() if x.numel() < ENOUGH}
    return found


ENOUGH, MOST_UPSTREAMS = 32, 8
"""Errors of tensors with fewer than ``ENOUGH`` numbers are measured for ``MOST_UPSTREAMS`` at most."""


def plain_errors(setup: Setup, inputs: Sequence[Tensor], *upstreams: Tensor) -> dict[str, Tensor]:
    """Return the errors of the plain reference's gradients in the dtype of the case, by element, in float64.

    The root mean square of few errors may be small by chance, and would refuse right gradients. A tensor of
    few numbers, such as the sinks of two heads, therefore has an axis more in front: its errors for the same
    upstream with random signs. Each sign gives other roundings of the same size.

    No wider dtype exists for a float64 case. Its errors are those in float32, on numbers rounded to it, times
    the ratio of the gaps between numbers.
    """
    import torch

    case = setup.case
    narrow: Dtype = "float32" if case.dtype == "float64" else case.dtype
    narrowed, sources = recast(setup, inputs, narrow)
    wide, wide_sources = recast(narrowed, sources, "float64")
    # Inputs of attention are larger, those of other operations may be numbers of a step.
    counted = setup.parameters if operation_of(case).heads is not None else tuple(inputs)
    fewest = min((x.numel() for x in counted if x.numel()), default=ENOUGH)
    count = min(MOST_UPSTREAMS, math.ceil(ENOUGH / fewest))
    random = torch.Generator().manual_seed(0)
    several: list[list[Tensor]] = [[] for _ in range(count)]
    for spec, x in zip(upstreams_of(narrowed.case), upstreams, strict=True):
        to = getattr(torch, spec.dtype(narrowed.case))
        signs = torch.randint(2, (count - 1, *x.shape), generator=random).to(x) * 2 - 1
        for own, signed in zip(several, (x, *(x * signs)), strict=True):
            own.append(signed.to(to))
    got = _of_upstreams(narrowed, sources, several)
    exact = _of_upstreams(wide, wide_sources, [[x.double() for x in own] for own in several])
    ratio = EPS[case.dtype] / EPS[narrow]
    errors: dict[str, list[Tensor]] = {}
    for narrow_ones, wide_ones in zip(got, exact, strict=True):
        for name, x in wide_ones.items():
            errors.setdefault(name, []).append((narrow_ones[name].double() - x) * ratio)
    return {name: torch.stack(each) if len(each) > 1 else each[0] for name, each in errors.items()}


def recast(setup: Setup, inputs: Sequence[Tensor], dtype: Dtype) -> tuple[Setup, Inputs]:
    """Convert a case and its numbers to another dtype; a tensor given twice stays one."""
    import torch

    case = replace(setup.case, dtype=dtype)
    if EPS[dtype] < EPS[setup.case.dtype]:
        # The numbers of its mask are no others than before.
        case = replace(case, mask=setup.case.mask.as_in(setup.case.dtype))
    to = case_dtype(case)
    specs = operation_of(case).inputs(case, setup.rule)
    made = {
        id(x): x.detach().to(getattr(torch, spec.dtype(case))) for spec, x in zip(specs, inputs, strict=True)
    }
    return rebound(setup, lambda x: x.detach().to(to), case), tuple(made[id(x)] for x in inputs)


def _gradients(
    outputs: tuple[Tensor, ...],
    wanted: tuple[Tensor, ...],
    upstreams: tuple[Tensor, ...],
    names: tuple[str, ...],
    keep: bool = False,
) -> tuple[Tensor, ...]:
    from torch.autograd import grad

    for out in outputs:
        if not out.requires_grad:
            raise NoGradient("the output has no graph: no gradient reaches anything")
    found: tuple[Any, ...] = grad(outputs, wanted, upstreams, retain_graph=keep, allow_unused=True)
    # No output depends on a tensor without numbers, as the steps of an empty sequence.
    found = tuple(x if own.numel() else own.detach() for own, x in zip(wanted, found, strict=True))
    for x in found:
        if x is None:
            raise NoGradient(f"no gradient reaches {', '.join(_missing(names, found))}")
    return found


def _missing(names: tuple[str, ...], found: tuple[Any, ...]) -> list[str]:
    return [name for name, x in zip(names, found, strict=True) if x is None]
