"""Rules: the maths from queries and keys to attention weights, or the update of a state in a recurrence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from attnbench.types.operation import RuleKind, operation_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from attnbench.types.case import Case

    Array = NDArray[np.floating[Any]]


Law = Literal["flip_features", "scale_features", "permute_queries"]
"""Transforms that keep the weights under any mask. flip_features: flip the sign of the same features of q
and k. scale_features: multiply features of q by powers of two, and divide those of k by them.
permute_queries: permute queries with their rows (rules that ignore positions). Scores must keep their
bits."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a rule, one for each query head.

    shape: for one head; the whole parameter is (H, *shape). draw: ``draw(rng, H, shape)`` gives float64
    values of shape (H, *shape) that keep scores of unit-variance q and k in a range where softmax is neither
    saturated nor flat.
    """

    name: str
    shape: tuple[int, ...]
    draw: Callable[[np.random.Generator, int, tuple[int, ...]], Array]


@dataclass(frozen=True)
class Constant:
    """A number of a rule that a case may choose, as ``c`` in the id ``attention/softcap@c=50/…``.

    meaning: one line. least, most: the range. A check refuses a case to which the answers at both ends, and
    at the default, do not all look wrong; so let one end have the effect of no such part (a very high cap).
    default: the value where a case chooses none, or ``default(case)``; None for a constant with the name of a
    :class:`Parameter`, which is drawn for each head. A chosen value then replaces all that is drawn.
    example: a value for tests of backends, whose effect shows in half precision.
    """

    name: str
    meaning: str
    least: float
    most: float
    default: float | Callable[[Case], float] | None
    example: float

    def __str__(self) -> str:
        """The constant in words."""
        default = f", default {self.default:g}" if isinstance(self.default, int | float) else ""
        return f"{self.name} ({self.least:g} to {self.most:g}{default}): {self.meaning}"

    def default_of(self, case: Case) -> float | None:
        """Return the value where the case chooses none."""
        return self.default(case) if callable(self.default) else self.default


@dataclass(frozen=True)
class DotForm:
    """Scores written as ``cap(scale * map_q(q) @ map_k(k)ᵀ)``, so that dot-product kernels can run them.

    map_q, map_k: (B, H, Lq, D) and (B, H or Hkv, Lk, D) to the same shapes; None for no change.
        ``map_q`` always sees all H query heads.
    scale: multiplies the dot product (1 for none).
    cap: scores are ``cap * tanh(scores / cap)`` where it isn't None, before any bias.
    """

    scale: float = 1.0
    map_q: Callable[[Tensor], Tensor] | None = None
    map_k: Callable[[Tensor], Tensor] | None = None
    cap: float | None = None


@dataclass(frozen=True)
class Scoring:
    """A rule bound to a case and its parameters, in torch: what a backend computes with.

    weights = softmax(scores + bias + mask) over the keys, with one more logit for a sink, whose weight is
    dropped.

    dot: the scores as a dot product; None where the rule has no such form. scores: ``scores(q, k, cols)``
    gives (B, H, rows, cols) for q (B, H, rows, D) and the keys k (B, H, cols, D) of the columns ``cols``,
    already repeated to H heads. For a rule that pairs keys with queries k is (B, H, rows, D). Bias and mask
    are not included. None where ``dot`` suffices; :func:`attnbench.kit.scores.scores_of` gives the function
    for either. bias: ``bias(rows, cols)`` gives (H, rows, cols) to add to the scores. It depends on positions
    and parameters alone, so it can be prepared. sink: (H,) logits, or None.
    """

    dot: DotForm | None = None
    scores: Callable[[Tensor, Tensor, slice], Tensor] | None = None
    bias: Callable[[slice, slice], Tensor] | None = None
    sink: Tensor | None = None


@dataclass(frozen=True)
class Update:
    """The change that a step of a recurrence makes to the state S (D, Dv) of a head, before a query reads it.

    S is multiplied by e^g first, if it decays. Then k (v - Sᵀk)ᵀ · beta is added if the update corrects what
    the state has for the key, else k vᵀ.

    decays: with ``fixed`` there is one g for each head, with ``head`` one for each head and step, with
    ``channel`` one for each feature of the key too. With ``element`` g is dt times a rate: each element of a
    head's state has a rate, and each feature of v a dt in each step, which multiplies v too. "" for none.
    removes: whether b (Sᵀa)ᵀ is added too, of the state before it decays, with vectors a and b of each step.
    """

    decays: Literal["", "fixed", "head", "channel", "element"] = ""
    corrects: bool = False
    removes: bool = False


_KINDS: dict[RuleKind, str] = {
    "scores": "a scoring rule",
    "update": "the update of a recurrence",
    "rounding": "a way to round codes",
}


def _no_scores(q: Array, k: Array, parameters: Mapping[str, Array], positions: Array) -> Array:
    raise TypeError("this rule scores no pairs of queries and keys")


def _no_scoring(case: Case, parameters: Mapping[str, Tensor]) -> Scoring:
    return Scoring()


@dataclass(frozen=True)
class Rule:
    """A scoring rule, the update of a recurrence, or the rounding of a writer.

    name: used everywhere. formula: the score of query i and key j in one line, with the names of parameters
    and constants; q and k are columns in it. source: of the formula, one line. constants: numbers that a case
    may choose.

    reference: the NumPy scores of one head, ``reference(q, k, parameters, positions)``. q is (rows, D); k is
    (Lk, D), or (rows, D) for paired keys. ``parameters`` are those of the head by name, and the constants, as
    numbers (:func:`constants_of`); ``positions`` (rows,) are the rows' positions on the key axis. It
    returns (rows, Lk) in the dtype of its inputs, float64 or
    wider, with bias but without mask and sink.

    inner: what a score is made of, for ``attnbench explain``: takes the arguments of ``reference`` and gives
    arrays (rows or 1, keys or 1, any) by the formula of each, in their order.

    bind: the same for torch: ``bind(case, parameters)`` with parameters (H, ...) gives a :class:`Scoring`. It
    takes constants from ``case.constant(name, default)``.

    parameters: those that a case needs. sink: for a rule with one, ``sink(parameters)`` of one head gives its
    logit. pairs_keys: k has the length of q; each query is paired with its own key. concatenates: as a layer,
    the output projection maps [query ; merged heads] instead of the merged heads.

    score_elements: elements that a broadcasting form holds for each (query, key) pair while it computes the
    scores: 1, or D for ``additive``. score_flops: ``score_flops(case)`` gives operations for the score of one
    kept pair; None for 2·D, the dot product.

    update: what a step does to the state, for a rule of a recurrence. It has no scores, so it needs neither
    ``reference`` nor ``bind``. rounds: whether it says how operations that write codes round. Then it has no
    scores either.

    laws: the ones of :data:`Law` that hold. They let attnbench check outputs on new inputs in every call.
    Those that hold for any rule need no entry.

    supports: gives the reason in words why a case makes no sense for the rule, or None. no_gradients: gives
    the reason why gradients are meaningless there, so that no backend is asked for them, or None.
    """

    name: str
    formula: str
    source: str
    reference: Callable[[Array, Array, Mapping[str, Array], Array], Array] = _no_scores
    bind: Callable[[Case, Mapping[str, Tensor]], Scoring] = _no_scoring
    update: Update | None = None
    rounds: bool = False
    parameters: Callable[[Case], tuple[Parameter, ...]] = lambda case: ()
    constants: tuple[Constant, ...] = ()
    inner: Callable[[Array, Array, Mapping[str, Array], Array], Mapping[str, Array]] | None = None
    sink: Callable[[Mapping[str, Array]], float] | None = None
    pairs_keys: bool = False
    concatenates: bool = False
    has_dot_form: bool = True
    score_elements: Callable[[Case], int] = lambda case: 1
    score_flops: Callable[[Case], int] | None = None
    laws: tuple[Law, ...] = ()
    supports: Callable[[Case], str | None] = lambda case: None
    no_gradients: Callable[[Case], str | None] = lambda case: None

    @property
    def kind(self) -> RuleKind:
        """What it says: scores, the update of a state, or how codes are rounded."""
        return "update" if self.update is not None else "rounding" if self.rounds else "scores"

    def refuses(self, case: Case) -> str | None:
        """Return why the rule can't be that of a case, or None."""
        if self.kind != operation_of(case).kind:
            return f"{self.name} is {_KINDS[self.kind]}, which {case.operation} has not"
        return self.supports(case)


def constants_of(case: Case, rule: Rule) -> dict[str, float]:
    """Return the constants by name: as the case chooses them, else their defaults where they have one."""
    values = {one.name: one.default_of(case) for one in rule.constants} | dict(case.constants)
    return {name: value for name, value in values.items() if value is not None}


def wrong_constant(case: Case, rule: Rule) -> str | None:
    """Return why a constant of the case makes no sense for the rule, or None."""
    known = {constant.name: constant for constant in rule.constants}
    for name, value in case.constants:
        if name not in known:
            has = f"it has {' and '.join(known)}" if known else "it has none"
            return f"the rule {rule.name} has no constant {name!r}; {has}"
        least, most = known[name].least, known[name].most
        if not least <= value <= most:
            return f"{name} = {value:g}: give {least:g} to {most:g}"
    return None


def of_head(case: Case, rule: Rule, parameters: Mapping[str, Array], head: int) -> dict[str, Any]:
    """Return what the rule's reference is given for a head: constants and the head's parameters, by name."""
    return {**constants_of(case, rule), **{name: array[head] for name, array in parameters.items()}}
