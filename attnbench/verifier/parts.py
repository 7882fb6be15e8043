"""The parts of an answer, each output and each gradient: what is compared, and how large errors may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from attnbench.inputs.draw import EPS, Stored, widen, widen_inputs
from attnbench.types.case import Case, Dtype
from attnbench.types.problem import ProblemCase
from attnbench.types.rule import Rule
from attnbench.types.status import Check
from attnbench.verifier.errors import Errors, Scale, gap_of, longest_sum, rounding_unit, scale_of, together
from attnbench.verifier.gradients import few, gradient_scale, summed

if TYPE_CHECKING:
    from attnbench.types.operation import Operation, TensorSpec
    from attnbench.types.rule import Array


@dataclass(frozen=True)
class Drawn:
    """One draw, with its exact answer."""

    inputs: Mapping[str, Stored]
    """In the dtype of the case, before they are encoded."""
    expected: dict[str, Array]
    """The exact answer by parts, on the rows that are compared."""
    upstreams: Mapping[str, Stored] = field(default_factory=dict)
    """The gradients of outputs; none in a forward pass."""
    held: dict[str, Array] = field(default_factory=dict)
    """For each gradient its terms before they are subtracted."""
    plain_errors: dict[str, Errors] = field(default_factory=dict)
    """For each gradient the errors of the plain reference."""
    stored: Mapping[str, Stored] = field(default_factory=dict)
    """The inputs as an encoding holds them; none in cases without one."""
    scales: dict[str, Scale] = field(default_factory=dict, repr=False)
    """Those of inputs and parts that are known so far; of encoded inputs those of what they mean."""

    def scale(self, name: str, dtype: Dtype) -> Scale:
        """Return the scale of an input, or of an exact output, by its name."""
        if name not in self.scales:
            array = widen(self.inputs[name], dtype) if name in self.inputs else self.expected[name]
            self.scales[name] = scale_of([array])
        return self.scales[name]

    def exact_scale(self, name: str) -> Scale:
        """Return the scale of an exact part; a gradient has the name of an input."""
        key = f"exact {name}"
        if key not in self.scales:
            self.scales[key] = scale_of([self.expected[name]])
        return self.scales[key]


class Allowance(Protocol):
    """The rounding that a right part may have beside that of the plain reference."""

    def scales(self, draws: Sequence[Drawn], arithmetic: str) -> tuple[Scale, Scale]:
        """Return the scale of the exact part over draws, and of the numbers that it is made of."""

    def unit(self, largest_score: float, arithmetic: str) -> float:
        """Return the RMS error in gaps of the scale that is always allowed: one, if nothing else is said."""
        return 1.0

    def few(self, count: int) -> float:
        """Return the factor on the reference's RMS error where it is judged by so many numbers.

        It is 1 if nothing else is said: most outputs have numbers enough.
        """
        return 1.0


@dataclass(frozen=True)
class OwnScale(Allowance):
    """The limits of an output of an operation that solves its problem by itself.

    One gap, those in which right kernels differ as the operation says, and the reference's error.
    """

    name: str
    dtype: Dtype
    growth: Callable[[Drawn], tuple[float, float]]
    """How many gaps of float32, RMS and at most, right kernels are further off; of float64 in its cases."""

    def scales(self, draws: Sequence[Drawn], arithmetic: str) -> tuple[Scale, Scale]:
        """Return the scale of the exact output twice, larger by what right kernels add."""
        own = together([drawn.exact_scale(self.name) for drawn in draws])
        share = min(1.0, gap_of("float32", "") / gap_of(self.dtype, ""))
        rms, most = (1 + share * max(grown) for grown in zip(*map(self.growth, draws), strict=True))
        larger = Scale(own.rms * rms, own.largest * most, own.count)
        return larger, larger


@dataclass(frozen=True)
class Settled(Allowance):
    """The limits of an output of which all right answers are known (``Operation.settle``): no error."""

    def scales(self, draws: Sequence[Drawn], arithmetic: str) -> tuple[Scale, Scale]:
        """Return scales of 0, by which no rounding is allowed."""
        return Scale(0.0, 0.0), Scale(0.0, 0.0)


@dataclass(frozen=True)
class OwnGradient(OwnScale):
    """The limits of a gradient of such an operation: by what outputs differ, and by its own terms."""

    def few(self, count: int) -> float:
        """Return by how much the reference's errors may be too small by chance."""
        return few(count)


@dataclass(frozen=True)
class WeightedMean(Allowance):
    """The limits of an output that is a weighted mean of values: see ``rounding_unit``.

    values: the name of the input that brings the values, or their source.
    """

    name: str
    values: str
    case: Case

    def scales(self, draws: Sequence[Drawn], arithmetic: str) -> tuple[Scale, Scale]:
        """Return the scales of the exact output and of the values."""
        dtype = self.case.dtype
        own, values = (
            together([drawn.scale(name, dtype) for drawn in draws]) for name in (self.name, self.values)
        )
        # An exp may give 0 below the smallest normal number: torch's fused kernels do on some processors.
        lost = np.finfo(np.float64 if dtype == "float64" else np.float32).smallest_normal
        least = float(lost) * self.case.Lk * values.largest / gap_of(dtype, "")
        return Scale(max(own.rms, least), max(own.largest, least), own.count), values

    def unit(self, largest_score: float, arithmetic: str) -> float:
        """Return the roundings in which right kernels differ."""
        return rounding_unit(self.case.dtype, longest_sum(self.case), largest_score, arithmetic)


@dataclass(frozen=True)
class LogSum(Allowance):
    """The limits of the logarithm of a sum of powers.

    A relative error of the sum is an error of the logarithm, so the scale is 1 at least. Rows without keys,
    which have -inf, do not count.
    """

    name: str
    dtype: Dtype
    case: Case

    def scales(self, draws: Sequence[Drawn], arithmetic: str) -> tuple[Scale, Scale]:
        """Return the scale of the exact logarithms, at least 1, and that of what a reference's errors may be.

        The bias and the maps of a rule are rounded to the dtype of the case.
        """
        found = [drawn.expected[self.name] for drawn in draws]
        own = scale_of([np.where(np.isneginf(each), 0, each) for each in found])
        least = Scale(max(1.0, own.rms), max(1.0, own.largest), own.count)
        coarser = max(EPS[self.case.dtype], EPS[self.dtype]) / EPS[self.dtype]
        return least, Scale(coarser * least.rms, coarser * least.largest, least.count)

    def unit(self, largest_score: float, arithmetic: str) -> float:
        """Return the roundings in which right kernels differ. A large score is in the scale already."""
        return rounding_unit(self.dtype, longest_sum(self.case), arithmetic=arithmetic)

    def few(self, count: int) -> float:
        """Return by how much the reference's errors may be too small by chance."""
        return few(count)


@dataclass(frozen=True)
class Subtracted(Allowance):
    """The limits of a gradient, whose terms are subtracted and may cancel: see ``gradient_scale``.

    The roundings of its sums are in its scale.
    """

    name: str
    case: Case

    def scales(self, draws: Sequence[Drawn], arithmetic: str) -> tuple[Scale, Scale]:
        """Return the scale of the gradient, or of its terms where these are larger, twice."""
        exact, held = ([getattr(drawn, kind)[self.name] for drawn in draws] for kind in ("expected", "held"))
        factor = summed(self.case, self.name, arithmetic)
        own = gradient_scale(exact, held, self.case.dtype, summed=factor)
        return own, own

    def few(self, count: int) -> float:
        """Return by how much the reference's errors may be too small by chance."""
        return few(count)


@dataclass(frozen=True)
class Part:
    """One output or one gradient of a case, and how it is judged. Parts differ in nothing else."""

    name: str
    """In answers, files and words."""
    axes: str
    """A letter for each axis, to name an element by and to undo a change of order; "" for unnamed axes."""
    words: str
    """Go before a fault."""
    limits: Allowance
    dtype: Dtype
    """Of its numbers, whose rounding is allowed."""
    problem: int | None = None
    """The number of its problem; None in a case with one."""
    check: Check = "values"
    """The check that a wrong value fails."""
    stressed: bool = True
    """True if it is compared on stress inputs; on ordinary ones, however they are passed, it always is."""
    sampled: bool = False
    """True if only some places of the axis ``i`` are compared in large cases."""
    rounded: bool = False
    """True if its limits in a coarser arithmetic follow from the exact answer to rounded inputs."""
    power: int = 1
    """1 if it grows with the factors of its tensor, -1 for a gradient."""
    leads: bool = False
    """True if its numbers stand for the whole answer."""
    mistake: Callable[[Array, Array], str] | None = None
    """Names a known mistake by wrong numbers and the exact ones, with its remedy; "" where it knows none."""


def of_problem(part: Part, case: Case) -> Part:
    """Return a part with the number of its problem, and named with its sequence in words."""
    if not isinstance(case, ProblemCase):
        return part
    words = part.words or f"the output {part.name!r}: "
    return replace(part, problem=case.number, words=f"sequence {case.number}: {words}")


def output_parts(case: Case, rule: Rule, operation: Operation) -> tuple[Part, ...]:
    """Return the outputs of an operation of which nothing is known but what it declares."""
    outputs, growth = operation.outputs(case), partial(_growth, operation, case, rule)
    several = len(outputs) > 1
    return tuple(
        Part(
            name=spec.name,
            axes=spec.axes,
            words=f"the output {spec.name!r}: " if several else "",
            limits=Settled() if operation.settle else OwnScale(spec.name, spec.dtype(case), growth),
            dtype=spec.dtype(case),
            sampled=operation.by_row and "i" in spec.axes,
            leads=place == 0,
        )
        for place, spec in enumerate(outputs)
    )


def _growth(operation: Operation, case: Case, rule: Rule, drawn: Drawn) -> tuple[float, float]:
    return operation.growth(case, rule, drawn.inputs)


def _growth_of(name: str, operation: Operation, case: Case, rule: Rule, drawn: Drawn) -> tuple[float, float]:
    """Return the roundings of the gradient of an input: those of outputs, and its own."""
    given = widen_inputs(case, rule, drawn.inputs)
    rms, most = _growth(operation, case, rule, drawn)
    more = operation.gradient_growth(case, rule, given, drawn.expected).get(name, (0.0, 0.0))
    return rms + more[0], most + more[1]


def _own_gradient(spec: TensorSpec, case: Case, rule: Rule, operation: Operation) -> Part:
    growth = partial(_growth_of, spec.name, operation, case, rule)
    return Part(
        name=spec.name,
        axes=spec.axes,
        words=f"the gradient of {spec.name}: ",
        limits=OwnGradient(spec.name, spec.dtype(case), growth),
        dtype=spec.dtype(case),
        check="gradients",
        stressed=False,
        power=-1,
    )


def gradient_parts(case: Case, rule: Rule, operation: Operation) -> tuple[Part, ...]:
    """Return the gradients of a case: of its input tensors, each once, and of all parameters."""
    inputs = {spec.tensor: spec for spec in reversed(operation.inputs(case, rule)) if spec.is_floating}
    if operation.heads is None:
        return tuple(_own_gradient(spec, case, rule, operation) for spec in inputs.values())
    axes = {name: spec.axes for name, spec in inputs.items()}
    own = dict.fromkeys((f"rule.{parameter.name}" for parameter in rule.parameters(case)), "")
    projections = dict.fromkeys((spec.name for spec in operation.parameters(case, rule)), "")
    made = partial(Part, check="gradients", stressed=False, power=-1)
    return tuple(
        made(name, letters, f"the gradient of {name}: ", Subtracted(name, case), case.dtype)
        for name, letters in (axes | own | projections).items()
    )
