"""Diagnosing a wrong answer: the known mistake that gives the same, or the elements that are wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnbench.cases.ids import parse_case
from attnbench.check.gradients import leaf_inputs, passed, recast, with_gradients
from attnbench.check.reference import PLAIN
from attnbench.inputs.draw import EPS
from attnbench.inputs.kinds import FAMILIES, NORMAL, families_of
from attnbench.testing.advice import ADVICE, BY_FAMILY
from attnbench.testing.mistakes import mistakes_for
from attnbench.testing.trial import Trial, begin, surroundings
from attnbench.types.backend import Setup
from attnbench.types.extensions import Source
from attnbench.types.rule import Rule
from attnbench.worker.prepared import loaded_here

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.check.gradients import Triple
    from attnbench.types.backend import Call

Parts = Mapping[str, NDArray[Any]]

NEAR = 0.1
"""A mistake is recognised where the answer is ten times nearer to its answer than to the exact one."""
RIGHT = 32.0
"""In units of rounding: an answer nearer to the exact one counts as right here. This is not the verdict."""
MOST_NAMED = 3

_NAMES = tuple(family.name for family in FAMILIES)
_SIMPLE = "one_key"
"""Where one key has all the weight scores hardly matter: of two mistakes the other one shows alone."""
_AXES: dict[int, tuple[str, ...]] = {
    4: ("batch element", "head", "row", "feature"),
    3: ("batch element", "row", "feature"),
}
_NOT_REPEATED = (
    "In a process of its own its first answer to such inputs is right: look for values that it keeps from "
    "one call to the next, and for memory that it reads before writing it."
)


@dataclass(frozen=True)
class Diagnosis:
    """do: what to do, "" where nothing is known. mistake: the known mistake that gives the same answer."""

    do: str = ""
    mistake: str = ""


def diagnose(
    case: str, backend: str, source: Source, rule_source: Source, families: Sequence[str]
) -> Diagnosis:
    """Diagnose a backend that is wrong on a case, on inputs of these families. Raises what it raises."""
    parsed = parse_case(case)
    rule = next(r for r in loaded_here(rule_source).of(Rule) if r.name == parsed.rule)
    shown = sorted(set(families) & set(_NAMES), key=_NAMES.index)[:2] or [NORMAL]
    wrong = False
    for family in dict.fromkeys((*shown, _SIMPLE)):
        if family not in families_of(parsed, rule):
            continue
        with surroundings(parsed):
            trial = begin(parsed, backend, source, rule_source, family)
            found = _of_answer(trial)
        if found is not None and found.do:
            return found
        wrong = wrong or found is not None
    if wrong:
        return Diagnosis()
    return Diagnosis(next((f"{BY_FAMILY[name]}." for name in families if name in BY_FAMILY), _NOT_REPEATED))


def places(bad: NDArray[np.bool_]) -> str:
    """Name the batch elements, heads, rows and features that are wrong; "" where all of them are.

    bad: True for each wrong element of an output (B, H, Lq, Dv) or (B, Lq, E).
    """
    found = []
    for axis, name in enumerate(_AXES.get(bad.ndim, ()) if bad.any() else ()):
        wrong = np.flatnonzero(bad.any(axis=tuple(a for a in range(bad.ndim) if a != axis)))
        if len(wrong) < bad.shape[axis]:
            found.append(f"{name}{'s' if len(wrong) > 1 else ''} {_numbers(wrong)} of {bad.shape[axis]}")
    return f"All errors are in {' and '.join(found)}." if found else ""


def _numbers(numbers: NDArray[Any]) -> str:
    first, last = int(numbers[0]), int(numbers[-1])
    if len(numbers) == last - first + 1 and len(numbers) > 1:
        return f"{first} to {last}"
    named = ", ".join(str(int(n)) for n in numbers[:MOST_NAMED])
    return named if len(numbers) <= MOST_NAMED else f"{named}, …"


def _of_answer(trial: Trial) -> Diagnosis | None:
    """Diagnose one answer; None where it is right."""
    got, setup = trial.call(), trial.held.setup
    right = _exact(setup, trial.inputs, trial.upstream)
    far = _distance(got, right, right)
    if far <= RIGHT * EPS[setup.case.dtype]:
        return None
    if known := _known_mistake(got, right, trial):
        name, summary = known
        do = f": {ADVICE[name]}" if name in ADVICE else ""
        return Diagnosis(f"Your output equals the known mistake “{summary}”{do}.", name)
    bad = {name: _wrong_elements(got[name], theirs, setup) for name, theirs in right.items()}
    wrong = [name for name, elements in bad.items() if elements.any()]
    said = []
    if parts := [name for name in wrong if name != "out"]:
        others = [name for name in got if name not in wrong]
        said.append(
            f"Wrong: {'the output, ' if 'out' in wrong else ''}the gradients of {', '.join(parts)}"
            + (f"; right: {', '.join(others)}." if others else ".")
        )
    if "out" in wrong and (where := places(bad["out"])):
        said.append(where)
    return Diagnosis(" ".join(said))


def _known_mistake(got: Parts, right: Parts, trial: Trial) -> tuple[str, str] | None:
    """Return the name and the summary of the mistake whose answer is nearest, where one is near enough."""
    setup, inputs, upstream = trial.held.setup, trial.inputs, trial.upstream
    wide, sources = recast(setup, inputs, "float64")
    above = None if upstream is None else upstream.double()
    best, least = None, NEAR * min(_distance(got, right, right), 1.0)
    for mistake in mistakes_for(setup.case, setup.rule):
        in_wide = "float64" in mistake.dtypes
        given = (wide, sources, above) if in_wide else (setup, inputs, upstream)
        try:
            theirs = _answer(mistake.prepare, *given)
        except Exception:
            continue
        distance = _distance(got, theirs, right)
        # Of mistakes that give the same answer the first counts, which is the more particular.
        if distance < 0.99 * least:
            best, least = (mistake.name, mistake.summary), distance
    return best


def _answer(
    prepare: Callable[[Setup], Call], setup: Setup, inputs: Triple, upstream: Tensor | None
) -> dict[str, NDArray[Any]]:
    """Compute an answer in float64, by part: ``out``, and gradients where the case has them."""
    import torch

    if upstream is None:
        with torch.inference_mode():
            return {"out": prepare(setup)(*inputs).double().cpu().numpy()}
    with torch.inference_mode(False), torch.enable_grad():
        own, sources = with_gradients(setup), leaf_inputs(inputs)
        made = passed(prepare(own), own, upstream.clone())
        made.renew(sources)
        parts: Any = made(*sources)
        return {name: x.detach().double().cpu().numpy() for name, x in zip(made.names, parts, strict=True)}


def _exact(setup: Setup, inputs: Triple, upstream: Tensor | None) -> dict[str, NDArray[Any]]:
    """Compute the right answer: the plain form in float64."""
    wide, sources = recast(setup, inputs, "float64")
    return _answer(PLAIN.prepare, wide, sources, None if upstream is None else upstream.double())


def _wrong_elements(got: NDArray[Any], right: NDArray[Any], setup: Setup) -> NDArray[np.bool_]:
    limit = RIGHT * EPS[setup.case.dtype] * float(np.abs(right).max())
    return ~np.asarray(np.abs(got - right) <= limit)


def _distance(left: Parts, right: Parts, scale: Parts) -> float:
    """Return the RMS difference of two answers in units of the exact one's RMS, the worst over parts.

    Infinite where shapes or the places of NaN differ.
    """
    if set(left) != set(right):
        return float("inf")
    total = 0.0
    for name, a in left.items():
        b = right[name]
        if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return float("inf")
        finite = np.isfinite(a) & np.isfinite(scale[name])
        unit = float(np.sqrt(np.mean(np.square(scale[name][finite])))) if finite.any() else 1.0
        error = float(np.sqrt(np.mean(np.square((a - b)[finite])))) if finite.any() else 0.0
        total = max(total, error / (unit or 1.0))
    return total
