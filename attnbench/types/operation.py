"""Operations: what is computed around a scoring rule, from which inputs to which outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from attnbench.types.arithmetic import UNIT
from attnbench.types.errors import BadCase
from attnbench.types.size import Size
from attnbench.types.words import unknown_name

if TYPE_CHECKING:
    import numpy as np
    from numpy.random import Generator
    from numpy.typing import NDArray

    from attnbench.types.backend import Setup
    from attnbench.types.case import Case, Dtype
    from attnbench.types.rule import Array, Rule

    Arrays = Mapping[str, Array]
    Named = Mapping[str, Any]
    Draw = Callable[[Case, Rule, Callable[[str], Generator]], Named]

Shape = tuple[int, ...]
RuleKind = Literal["scores", "update", "rounding"]
"""What a rule says, and an operation asks of its rules."""
Kind = Literal["float", "float32", "int8", "uint8", "int32", "int64", "bool"]


@dataclass(frozen=True)
class TensorSpec:
    """A tensor that an operation reads or returns.

    name: in messages, and the key in what ``draw`` and ``solve`` return. kind: ``float`` stands for the dtype
    of the case; the others are the same in every case. memory: inputs with the same word here are one
    tensor; "" for a tensor of its own. scale: of a parameter, whose entries are drawn as standard normal
    numbers times this. axes: a letter for each axis, to name an element by: b batch elements, h query heads,
    g key/value heads, i queries, j keys, d features of q and k, e those of v and the output. ahead: of an
    input, that it is known before a call, so that a backend may prepare from it (lengths, tables).
    """

    name: str
    shape: Shape
    kind: Kind = "float"
    memory: str = ""
    scale: float = 1.0
    axes: str = ""
    ahead: bool = False

    @property
    def tensor(self) -> str:
        """The word of its memory: inputs with the same word are one tensor."""
        return self.memory or self.name

    @property
    def is_floating(self) -> bool:
        """True if it holds floating numbers, which may have gradients."""
        return self.kind in ("float", "float32")

    def dtype(self, case: Case) -> Dtype:
        """The dtype of a floating tensor in a case."""
        return "float32" if self.kind == "float32" else case.dtype

    def item_bytes(self, case: Case) -> int:
        """Bytes of one element."""
        return {"float": case.item_bytes, "float32": 4, "int32": 4, "int64": 8}.get(self.kind, 1)


@dataclass(frozen=True)
class Problem:
    """One draw to solve.

    rule_parameters: float64, by name, each (H, ...). parameters: float64, by the names that the operation
    declares. inputs: by name, float64 where the kind is ``float``, else as they were drawn. rows: the places
    of its R queries in the case, where it has some of them alone; inputs with the axis ``i`` have R places
    there, and so have answers. None for all.
    """

    case: Case
    rule: Rule
    rule_parameters: Arrays
    parameters: Arrays
    inputs: Named
    rows: NDArray[np.intp] | None = None

    @property
    def queries(self) -> NDArray[np.intp]:
        """The places of its R queries in the case."""
        import numpy as np

        return np.arange(self.case.Lq) if self.rows is None else self.rows


@dataclass(frozen=True)
class Heads:
    """The maps before and after attention, for an operation that computes attention between them.

    project: ``project(case, parameters, sources)`` returns queries (B, H, R, D), keys and values.
    finish: ``finish(case, rule, parameters, queries, attended)`` returns the output from (B, H, R, Dv).
    rows: the axis of the inputs and the output that counts queries.
    """

    project: Callable[[Case, Arrays, tuple[Array, Array, Array]], tuple[Array, Array, Array]]
    finish: Callable[[Case, Rule, Arrays, Array, Array], Array]
    rows: int


@dataclass(frozen=True)
class Operation:
    """A computation around a rule. Backends name the operations that they compute.

    name: the first word of a case's id. summary: what it computes, one line.
    inputs, parameters: ``inputs(case, rule)`` and ``parameters(case, rule)`` return the tensors that a call
        reads, in the order of its arguments, and those that ``Setup.projections`` holds.
    outputs: ``outputs(case)`` lists what a call returns: one tensor, or a tuple of several, in this order.
        Outputs are of the kind ``float`` or ``float32``.
    flops: ``flops(case, rule, pairs)`` counts the operations of a forward call; pairs are the kept (query,
        key) pairs over all heads.
    solve: ``solve(problem)`` returns the exact outputs by name, in float64, from the rule's reference.
    heads: in place of ``solve``, where the operation is attention between two maps: its inputs are the
        sources of queries, keys and values, its output is ``out``. All checks of attention then apply:
        stress inputs, symmetries, gradients, dropout, weights, trivial answers, sampled rows.
    draw: ``draw(case, rule, stream)`` returns the inputs by name before rounding; ``stream(word)`` is a
        generator of random numbers. None: standard normal numbers, for inputs of the kind ``float``.
    check: returns the reason why a case can't have this operation, or None.
    reference: ``reference(setup)`` returns a plain torch function of the inputs, in the case's dtype, whose
        error sets the limit. None: :data:`attnbench.verifier.errors.ASSUMED_RMS` stands for that error.
    unread: ``unread(case, rule, queries, keys)`` counts the elements of inputs that no kept pair reads, where
        so many queries and keys are kept over all batch elements.
    returns: the names of further outputs, which ``outputs`` lists where ``case.returns`` asks for them.
    updates: whether its rules are updates of a state, and not scores. rounds: whether its rules say how codes
        are rounded: it writes keys and values as the encoding of the case holds them.
    lengths: the lengths of a sequence in a batch of unlike ones: ``("q", "k")`` for queries and keys, one
        name where each step has both; () where it has no batches.
    baseline: the backend that ratios of its cases refer to where nobody names one; "" for the storage's.
    encoded: the names of the inputs that an encoding may hold, as k and v.
    sizes: whole numbers that it needs besides those of attention; ``case.size(name)`` gives them.
    graded: the names of the outputs that gradients come from; () for no passes with gradients, with ``heads``
        for the first output.

    Without ``heads`` weights are not dropped, and gradients are those of ``reference``, computed in float64,
    which ``graded`` promises to be differentiable. What else is known of such an operation makes its check
    stronger:

    stress: ``stress(case, rule)`` gives kinds of inputs that show mistakes which ordinary ones hide, by name,
        each drawn as by ``draw``. advice: ``advice(kind)`` says what to do where such a kind shows a failure
        that ordinary inputs don't show, or None.
    trivial: ``trivial(problem)`` gives answers that need no computation, by what they are in words, each with
        all outputs. A case in which one of them passes is refused. Zeros are always among them.
    growth: ``growth(case, rule, inputs)`` says how many roundings of float32, RMS and at most, the outputs of
        right kernels may have besides one of their dtype, relative to the size of outputs.
    gradient_growth: ``gradient_growth(case, rule, inputs, gradients)`` says how many more the gradients of
        inputs may have, by name and as ``growth`` does, from inputs and exact gradients in float64.
    change: ``change(case, rule, rng)`` draws a change of the inputs whose effect on the outputs is known
        without new rounding: the orders and the factors of :class:`attnbench.inputs.symmetries.Change`.
        Inputs of timed calls are refreshed by it; None: by new draws, each solved anew.
    measured: for an answer that is a choice, of which several are right: ``measured(problem, answer)``
        returns the numbers by which the outputs (as int64 or float64) are judged, by their names and in their
        shapes, and what is wrong with the choice in words, or "". ``solve`` and ``trivial`` give such numbers
        too, and outputs may then be integers.
    by_row: whether each query's outputs depend on no other query. ``solve``, ``trivial`` and ``measured``
        must then take a problem with some rows alone (:attr:`Problem.rows`), and large cases are checked on
        a sample of rows.
    settle: ``settle(problem, answer)`` gives that right answer which is nearest to a given one, where several
        are right, as codes at the middle between two steps. Nothing else may then differ from it: NaN equals
        NaN, and no error of rounding is allowed. answer: as ``inputs`` of a problem. None: there is one right
        answer, up to rounding.
    """

    name: str
    summary: str
    inputs: Callable[[Case, Rule], tuple[TensorSpec, ...]]
    outputs: Callable[[Case], tuple[TensorSpec, ...]]
    flops: Callable[[Case, Rule, int], float]
    solve: Callable[[Problem], Arrays] | None = None
    heads: Heads | None = None
    parameters: Callable[[Case, Rule], tuple[TensorSpec, ...]] = lambda case, rule: ()
    draw: Draw | None = None
    check: Callable[[Case], str | None] = lambda case: None
    reference: Callable[[Setup], Callable[..., Any]] | None = None
    unread: Callable[[Case, Rule, int, int], int] = lambda case, rule, queries, keys: 0
    returns: tuple[str, ...] = ()
    updates: bool = False
    rounds: bool = False
    lengths: tuple[str, ...] = ()
    baseline: str = ""
    encoded: tuple[str, ...] = ()
    sizes: tuple[Size, ...] = ()
    graded: tuple[str, ...] = ()
    stress: Callable[[Case, Rule], Mapping[str, Draw]] = lambda case, rule: {}
    advice: Callable[[str], str | None] = lambda kind: None
    trivial: Callable[[Problem], Mapping[str, Arrays]] = lambda problem: {}
    growth: Callable[[Case, Rule, Named], tuple[float, float]] = lambda case, rule, inputs: (0.0, 0.0)
    gradient_growth: Callable[[Case, Rule, Named, Named], Mapping[str, tuple[float, float]]] = (
        lambda case, rule, inputs, gradients: {}
    )
    change: Callable[[Case, Rule, Generator], tuple[Named, Named]] | None = None
    measured: Callable[[Problem, Named], tuple[Arrays, str]] | None = None
    by_row: bool = False
    settle: Callable[[Problem, Named], Arrays] | None = None

    @property
    def kind(self) -> RuleKind:
        """What its rules say."""
        return "update" if self.updates else "rounding" if self.rounds else "scores"

    def refuses(self, case: Case) -> str | None:
        """Return the reason why a case can't have this operation, or None."""
        if self.heads is None and not self.graded and case.pass_ != "forward":
            return f"{self.name} has no gradients: only the forward pass is checked"
        if self.heads is None and case.dropout:
            return f"{self.name} can't drop weights: only attention can be checked with dropout"
        for name in case.returns:
            if name not in self.returns:
                gives = f"it can return {' and '.join(self.returns)}" if self.returns else "it has none"
                return f"{self.name} has no further output {name!r}; {gives}"
        if case.batch and not self.lengths:
            have = " and ".join(name for name, one in known_operations().items() if one.lengths)
            return f"{self.name} has no batches of unlike lengths: {have} can have them"
        if case.layout != "own" and case.operation != "attention":
            return f"{self.name} has no q, k and v: only attention has a layout"
        return self.check(case)


_BUILT_IN = "attnbench.operations"
# Ids and messages name operations; each process learns the names that its plugins bring.
_known: dict[str, Operation] = {}


def make_known(operations: Iterable[Operation]) -> None:
    """Let cases in this process use these operations."""
    _known.update((operation.name, operation) for operation in operations)


def known_operations() -> Mapping[str, Operation]:
    """Return the operations that cases in this process can use, by name."""
    if not _known:
        make_known(import_module(_BUILT_IN).attnbench_operations())
    return _known


def operation_named(name: str) -> Operation:
    """Return the operation of that name.

    Raises:
        BadCase: no plugin loaded in this process brings it.
    """
    known = known_operations()
    if name not in known:
        raise BadCase(unknown_name("operation", name, tuple(known)))
    return known[name]


def operation_of(case: Case) -> Operation:
    """Return the operation of a case."""
    return operation_named(case.operation)


def finest_dtype(case: Case) -> Dtype:
    """Return the finest dtype of its outputs: float32 of a state beside half precision."""
    return min((spec.dtype(case) for spec in operation_of(case).outputs(case)), key=UNIT.__getitem__)


def refuses_width(case: Case) -> str | None:
    """Return why an operation over given heads can't have a model width, or None."""
    return None if case.layer is None else f"{case.operation} has no model width E: that belongs to multihead"
