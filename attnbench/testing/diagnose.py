"""A close look at a backend in this process: the mistake in a wrong answer, and answers that change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from attnbench.cases.ids import case_id, given_id, parse_case
from attnbench.cases.variant import SMALL, variant_cases
from attnbench.inputs.draw import EPS, draw_inputs, draw_parameters, draw_upstreams, store, widen
from attnbench.inputs.encoded import AMPLIFIED, encoded, with_amplitudes
from attnbench.inputs.kinds import (
    DELIVERIES,
    LIGHT_KEYS,
    NORMAL,
    SEARCHED,
    STRESS_INPUTS,
    applies,
    draw_stress_input,
)
from attnbench.ipc.messages import Prepare
from attnbench.ipc.names import ACTIVATIONS, OUT, UPSTREAM, parameter_names
from attnbench.ipc.names import PLAIN as PLAIN_NAME
from attnbench.kit.reference import PLAIN
from attnbench.testing.advice import (
    ALL_NAN,
    ALL_ZERO,
    BY_FAMILY,
    IN_SMALLER,
    KEPT,
    NOT_REPEATED,
    SOMETIMES,
    WEIGH,
)  # fmt: skip
from attnbench.testing.alike import AS_NEAR, NEAR, RIGHT, Parts, answered, diagnosed_as, distance, nearest
from attnbench.testing.diagnose_batch import look_at_batch
from attnbench.testing.diagnosis_process import Diagnosed, Look, Smallest, WrongPlaces, too_large
from attnbench.testing.mistakes import mistakes_for
from attnbench.testing.mistakes.encodings import (
    EncodedMistake,
    StoredTensors,
    encoded_mistakes,
    stored_tensors,
)
from attnbench.testing.mistakes.factors import factors_in
from attnbench.testing.mistakes.inputs import WEIGHS
from attnbench.testing.mistakes.masks import added_mask
from attnbench.testing.mistakes.parts import Mistake
from attnbench.testing.pairs import can_be_read, differing, kept_by
from attnbench.trial.judge import ALL_DRAWS, EQUAL_CALLS, equal_calls, judge, surroundings
from attnbench.trial.point import Point
from attnbench.trial.shrink import least_sizes, shrink
from attnbench.types.arithmetic import UNIT
from attnbench.types.backend import Setup
from attnbench.types.case import Case
from attnbench.types.encoding import is_encoded
from attnbench.types.extensions import Source
from attnbench.types.operation import operation_of
from attnbench.types.problem import is_upstream
from attnbench.types.rule import Rule
from attnbench.types.status import MEANING
from attnbench.worker.answers import stored_answer
from attnbench.worker.failures import NotPrepared, Refused
from attnbench.worker.gradients import recast
from attnbench.worker.outputs import to_tensors
from attnbench.worker.prepared import PreparedBackend, judges_rule, prepare

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.worker.gradients import Inputs

Known = Mistake | EncodedMistake

CLOSE = 2.0
"""The same in half precision on inputs of which a right kernel rounds little but the output."""
ROUNDING = 16.0
"""In units of the dtype's rounding of the largest element: the effect of other orders of summation."""

TWICE = "two calls on the same inputs gave different answers"
AFTER = "after calls on other cases it gave another answer to the same inputs"
WRONG_AFTER = "after calls on other cases, in one process, its answer was wrong"

_NAMES = tuple(family.name for family in (*STRESS_INPUTS, *SEARCHED))
_DROPPED_WEIGH = "dropped_keys_weigh"
_OTHER_PAIRS = "other_pairs"
_SIMPLE = "one_hot"
"""If one key has all the weight, scores hardly matter, so a second mistake shows alone."""
_AXES = {4: "bhie", 3: "bie"}
"""The letters of an output's axes, of heads (B, H, Lq, Dv) and of a layer (B, Lq, E)."""
CHANGED = "near_duplicate"
MOST_ASKED = 60
"""Cases that are asked to make one small."""


@dataclass
class Trial:
    """A prepared backend with inputs.

    inputs, upstream: copies of the same numbers, in BHLD; of encoded keys and values what they mean.
    stored: the tensors that encode them, if the case has such.
    """

    held: PreparedBackend
    inputs: tuple[Any, ...]
    upstream: Tensor | None
    stored: StoredTensors | None = None

    def call(self) -> Parts:
        """Make one call; return its parts in BHLD and float64. Raises whatever the backend raises."""
        assert self.held.inputs is not None
        parts = stored_answer(self.held, self.held.call(*self.held.inputs))
        return {name: widen(part, self.held.case.dtype) for name, part in parts.items()}


def begin(
    case: Case,
    backend: str,
    source: Source | None,
    rule_source: Source,
    family: str = NORMAL,
    zeroed: NDArray[np.bool_] | None = None,
) -> Trial:
    """Prepare a backend and give it inputs of a family; call it within :func:`surroundings`.

    source: None for the plain reference, of a case without encoded tensors.
    zeroed: True for each key (Lk) whose values are 0, in attention.

    Raises:
        NotPrepared: it could not be prepared. Whatever its code raises.
    """
    rule = judges_rule(rule_source, case.rule)
    parameters = draw_parameters(case, rule)
    request = Prepare(case_id(case), backend, source, rule_source, (), None)
    held, _ = prepare(request, parameter_names(parameters.rule, parameters.projections))
    stored: dict[str, Any]
    if operation_of(case).heads is None:
        stored = dict(draw_inputs(case, rule, case.seed, 0))
    else:
        stored = dict(zip(ACTIVATIONS, draw_stress_input(case, rule, family, case.seed, 0), strict=True))
    if zeroed is not None:
        # Bits of 0 are the number 0 in every dtype.
        values = stored[ACTIVATIONS[2]] = stored[ACTIVATIONS[2]].copy()
        values[:, :, zeroed] = 0
    if is_encoded(case):
        return _begun_encoded(held, rule, stored, family)
    if case.pass_ != "forward":
        stored |= draw_upstreams(case, case.seed, 0)
    held = held.with_inputs(stored, fresh=True, delivery=family if family in DELIVERIES else "")
    tensors = to_tensors(stored, case)
    inputs = tuple(x for name, x in tensors.items() if not is_upstream(name))
    return Trial(held, inputs, tensors.get(UPSTREAM))


def _begun_encoded(held: PreparedBackend, rule: Rule, drawn: dict[str, Any], family: str) -> Trial:
    """Give a backend drawn inputs as its case encodes them, as the verifier does."""
    case = held.case
    names = [spec.name for spec in operation_of(case).inputs(case, rule)]
    drawn = dict(zip(names, drawn.values(), strict=True))
    if family in AMPLIFIED:
        drawn = with_amplitudes(case, rule, drawn, case.seed, 0)
    arrays = encoded(case, rule, drawn)
    tensors = stored_tensors(case, rule, arrays)
    keys, values = tensors.read()
    meant = drawn | {"k": store(keys, case.dtype), "v": store(values, case.dtype)}
    delivery = family if family in DELIVERIES else ""
    given = held.with_inputs(arrays, fresh=True, delivery=delivery)
    return Trial(given, tuple(to_tensors(meant, case).values()), None, tensors)


def diagnose(look: Look, backend: str, source: Source) -> Diagnosed:
    """Diagnose a backend that is wrong on a case, by asking it again; says nothing where the judge fails."""
    point = _shown(look)
    try:
        if too_large(point.case):
            return _in_smaller_cases(look, backend, source)
        wrong = equal_calls(point, backend, source, look.rule_source)
        if wrong is None:
            # No answer is wrong alone: all of a kind may be, together.
            if judge(point, backend, source, look.rule_source, ALL_DRAWS).status == "right":
                return Diagnosed(NOT_REPEATED, kind="not repeated")
        elif wrong == 0:
            kept = KEPT.format(calls=EQUAL_CALLS)
            return Diagnosed(BY_FAMILY[point.values] if point.values == CHANGED else kept, kind="kept")
        elif wrong < EQUAL_CALLS:
            return Diagnosed(SOMETIMES.format(wrong=wrong, calls=EQUAL_CALLS), kind="sometimes")
        found = _looked_at(look, backend, source)
        if found.mistake or found.kind:
            return found
        own = filter(None, map(operation_of(point.case).advice, look.families))
        if NORMAL not in look.families and (told := next(own, None)):
            return Diagnosed(told, kind="family", places=found.places)
        if point.values == NORMAL:
            return found
        plain = judge(replace(point, values=NORMAL), backend, source, look.rule_source, ALL_DRAWS)
        # A call is wrong on these inputs though no other came before it: nothing is kept.
        anew = point.values == CHANGED and wrong is not None
        if plain.status == "right" and point.values in BY_FAMILY and not anew:
            told = f"{BY_FAMILY[point.values]} {found.do}".rstrip()
            return Diagnosed(told, kind="family", places=found.places)
    except Refused as refusal:
        return Diagnosed(f"Called again in a process of its own, it failed: {refusal.reason}.", kind="failed")
    except Exception:
        return Diagnosed(kind="unjudged")
    return found


def smallest(look: Look, backend: str, source: Source) -> Smallest | None:
    """Make a case small on which a backend is wrong, as the search does; None where it is right here."""

    def is_wrong(point: Point) -> bool:
        try:
            return judge(point, backend, source, look.rule_source).status in ("wrong", "error")
        except Exception:
            return False

    if not is_wrong(_shown(look)):
        return None
    small = shrink(_shown(look), is_wrong, MOST_ASKED).point
    without_seed = replace(small, case=replace(small.case, seed=0))
    if small.case.seed and is_wrong(without_seed):
        small = without_seed
    return Smallest(str(small), least_sizes(small, is_wrong))


def _shown(look: Look) -> Point:
    """Return the case with the first kind of inputs that shows the fault, ordinary ones before all others."""
    shown = sorted(set(look.families) & set(_NAMES), key=_NAMES.index)
    return Point(parse_case(look.case), shown[0] if shown else NORMAL)


def _looked_at(look: Look, backend: str, source: Source) -> Diagnosed:
    """Compare wrong answers with those of known mistakes; else say where they are wrong."""
    case = parse_case(look.case)
    if case.batch:
        return look_at_batch(look, backend, source)
    if operation_of(case).heads is None:
        return _looked_at_plainly(look, backend, source)
    rule = judges_rule(look.rule_source, case.rule)
    shown = sorted(set(look.families) & set(_NAMES), key=_NAMES.index)[:2] or [NORMAL]
    placed = None
    # Lost keys tell of sums where ordinary answers are nearly right; else other mistakes lose them too.
    sums = (LIGHT_KEYS,) if LIGHT_KEYS in look.families else ()
    for family in dict.fromkeys((*shown, *sums, _SIMPLE)):
        if not applies(case, rule, family) or (family == LIGHT_KEYS and placed is not None):
            continue
        with surroundings(case):
            trial = begin(case, backend, source, look.rule_source, family)
            got = trial.call()
            right = answered(PLAIN.prepare, *_in_float64(trial))
            units = CLOSE if family == LIGHT_KEYS else RIGHT
            if _near(got, right, case, units):
                continue
            # On another kind of inputs alone, that kind is what to tell of.
            if family == NORMAL and (nothing := _nothing(got)):
                return nothing
            known = _known_mistakes(got, right, trial, units)
            if known and family != NORMAL:
                plain = begin(case, backend, source, look.rule_source)
                known = [one for one in known if _fits_ordinary(one, plain)]
        if known:
            known, rivals = _told_apart(known, case, backend, source, look.rule_source)
            found = diagnosed_as(known, rivals)
            if any(one in WEIGHS for one in known):
                # Other cases of this fault may show no more than that.
                return structs.replace(found, equals=found.equals | {_DROPPED_WEIGH: WEIGH})
            return found
        words, where = _wrong_parts(got, right, case)
        placed = placed or Diagnosed(words, places=where)
        if words or where:
            break
    else:
        # Wrong everywhere on each of these inputs, or right on all.
        family = shown[0]
    if pairs := _other_pairs(case, backend, source, look.rule_source):
        return Diagnosed(pairs, _OTHER_PAIRS)
    if placed is not None and _dropped_keys_weigh(case, backend, source, look.rule_source, family):
        return Diagnosed(WEIGH, _DROPPED_WEIGH, equals={_DROPPED_WEIGH: WEIGH})
    return placed or Diagnosed()


def _looked_at_plainly(look: Look, backend: str, source: Source) -> Diagnosed:
    """Compare wrong answers to ordinary inputs with those of known mistakes, by an operation's reference."""
    case = parse_case(look.case)
    reference = operation_of(case).reference
    assert reference is not None, "operations with known mistakes have a reference"
    with surroundings(case):
        trial = begin(case, backend, source, look.rule_source)
        got, right = trial.call(), answered(reference, *_in_float64(trial))
        known = [] if _near(got, right, case) else _known_mistakes(got, right, trial)
    if not known:
        return Diagnosed()
    return diagnosed_as(*_told_apart(known, case, backend, source, look.rule_source))


def _in_smaller_cases(look: Look, backend: str, source: Source) -> Diagnosed:
    """Return the known mistake that a backend makes in a smaller case of the same kind as a large one."""
    for case in _smaller_cases(parse_case(look.case), look.rule_source):
        try:
            found = _looked_at(structs.replace(look, case=case_id(case)), backend, source)
        except NotPrepared:
            continue
        if found.mistake:
            return structs.replace(found, do=f"{found.do} {IN_SMALLER.format(case=given_id(case))}")
    return Diagnosed(kind="too large")


def _smaller_cases(case: Case, rule_source: Source) -> list[Case]:
    """Return cases of the same kind of other lengths, the smallest first: the same ones each time."""
    rule, rng = judges_rule(rule_source, case.rule), np.random.default_rng(0)
    # Without dtypes of a backend they have that of the case.
    found = (one for one in variant_cases(case, rule, (), rng, len(SMALL)) if not too_large(one))
    return sorted(found, key=lambda one: one.Lq * one.Lk)


def _told_apart(
    known: list[Known], case: Case, backend: str, source: Source, rule_source: Source
) -> tuple[list[Known], list[Known]]:
    """Return those of mistakes that also give the backend's answers to smaller cases, where they differ.

    Then those of them that differ from the first in such a case, but which the backend does not take: no
    more is known of these.
    """
    reference, rounding = operation_of(case).reference or PLAIN.prepare, RIGHT * EPS[case.dtype]
    unanswered: list[tuple[dict[str, Parts], Parts]] = []

    def unlike(answers: dict[str, Parts], right: Parts) -> list[Known]:
        first = answers[known[0].name]
        return [one for one in known if distance(answers[one.name], first, right) > rounding]

    for other in _smaller_cases(case, rule_source) if len(known) > 1 else ():
        with surroundings(other):
            try:
                # The plain reference takes no codes, and others prepare in longer time.
                codes = is_encoded(other)
                name, its = backend if codes else PLAIN_NAME, source if codes else None
                plain = begin(other, name, its, rule_source)
                wide = _in_float64(plain)
                right = answered(reference, *wide)
                answers = {one.name: _mistaken(one, plain, wide) for one in known}
            except Exception:
                # One of them can't be made in this case.
                continue
            if not unlike(answers, right):
                continue
            try:
                got = begin(other, backend, source, rule_source).call()
            except Exception:
                # The backend need not take such a case.
                unanswered.append((answers, right))
                continue
        off = {one.name: distance(got, answers[one.name], right) for one in known}
        least = min(off.values())
        if least > rounding and not least < NEAR * distance(got, right, right):
            # Another fault shows there.
            continue
        known = [one for one in known if off[one.name] <= max(AS_NEAR * least, rounding)]
    apart = [one for answers, right in unanswered for one in unlike(answers, right)]
    return known, [one for one in known if one in apart]


def _other_pairs(case: Case, backend: str, source: Source, rule_source: Source) -> str:
    """Return in words which other pairs a backend keeps; "" where they are those of the mask, or not told."""
    if not can_be_read(case) or is_encoded(case):
        return ""
    with surroundings(case):
        trial = begin(case, backend, source, rule_source)
        if trial.held.setup.scoring.bias is not None:
            return ""

        def answer(stored: dict[str, Any]) -> NDArray[Any]:
            held = trial.held.with_inputs(stored | upstreams, fresh=True)
            return replace(trial, held=held).call()[OUT]

        upstreams = draw_upstreams(case, case.seed, 0) if case.pass_ != "forward" else {}
        return differing(kept_by(answer, case), case)


def _near(got: Parts, right: Parts, case: Case, units: float = RIGHT) -> bool:
    return distance(got, right, right) <= units * EPS[case.dtype]


def _dropped_keys_weigh(case: Case, backend: str, source: Source, rule_source: Source, family: str) -> bool:
    """Return whether a query's output changes with the values of keys that it drops, by more than rounding.

    Asks about the query of the first batch element and head that drops the most keys and keeps one.
    """
    if case.operation != "attention" or case.mask.is_none or case.pass_ == "backward":
        return False
    dropped = np.isneginf(added_mask(case)[0, 0])
    counts = np.where(dropped.all(-1), 0, dropped.sum(-1))
    query = int(counts.argmax())
    if not counts[query]:
        return False
    with surroundings(case):
        one, other = (
            begin(case, backend, source, rule_source, family, zeroed).call()[OUT][0, 0, query]
            for zeroed in (None, dropped[query])
        )
    return bool(np.abs(other - one).max() > RIGHT * EPS[case.dtype] * np.abs(one).max())


def _fits_ordinary(mistake: Known, plain: Trial) -> bool:
    """Return False for a mistake that is wrong on ordinary inputs, on which the backend is right.

    Of a backend that is wrong there too, nothing is known: it may have a second fault.
    """
    case, wide = plain.held.case, _in_float64(plain)
    right = answered(PLAIN.prepare, *wide)
    if not _near(plain.call(), right, case):
        return True
    return _near(_mistaken(mistake, plain, wide), right, case)


def _mistaken(mistake: Known, trial: Trial, wide: tuple[Setup, Inputs, Tensor | None]) -> Parts:
    """Return the answer of a mistake. wide: the trial in float64."""
    import torch

    if not isinstance(mistake, EncodedMistake):
        given = (trial.held.setup, trial.inputs, trial.upstream) if mistake.by_rounding else wide
        return answered(mistake.prepare, *given)
    setup, (q, _, _), _ = wide
    assert trial.stored is not None
    keys, values = (torch.from_numpy(np.ascontiguousarray(x)).to(q) for x in mistake.reads(trial.stored))
    return answered(PLAIN.prepare, setup, (q, keys, values), None)


def _nothing(got: Parts) -> Diagnosed | None:
    """Return what an output without one number says: such answers equal those of many mistakes, by chance."""
    out = got.get(OUT)
    if out is None:
        return None
    if np.isnan(out).all():
        return Diagnosed(ALL_NAN, kind="nothing")
    return None if out.any() else Diagnosed(ALL_ZERO, kind="nothing")


def _known_mistakes(got: Parts, right: Parts, trial: Trial, units: float = RIGHT) -> list[Known]:
    """Return the mistakes whose answers are near enough and as near as any, the nearest first.

    units: of rounding, within which answers are alike.
    """
    case, wide = trial.held.case, _in_float64(trial)
    of_codes = encoded_mistakes(case) if trial.stored is not None else ()
    mistakes: Iterator[Known] = chain(of_codes, mistakes_for(case))
    rounding = units * EPS[case.dtype]

    def answer(one: Known) -> Parts:
        return _mistaken(one, trial, wide)

    known = nearest(mistakes, answer, got, right, rounding)
    if not known and OUT in got and trial.stored is None and operation_of(case).heads is not None:
        known = nearest(factors_in(lambda one: answer(one)[OUT], got[OUT]), answer, got, right, rounding)
    return known


def _in_float64(trial: Trial) -> tuple[Setup, Inputs, Tensor | None]:
    import torch

    setup, inputs = recast(trial.held.setup, trial.inputs, "float64")
    if trial.stored is not None:
        # What is encoded means more bits than the dtype has.
        q = inputs[0]
        k, v = (torch.from_numpy(x).to(q) for x in trial.stored.read())
        inputs = (q, k, v)
    return setup, inputs, None if trial.upstream is None else trial.upstream.double()


def _wrong_parts(got: Parts, right: Parts, case: Case) -> tuple[str, dict[str, WrongPlaces]]:
    """Name the wrong gradients in words, "" for none; and the places of errors in the output."""
    bad: dict[str, NDArray[np.bool_]] = {}
    for name, exact in right.items():
        limit = RIGHT * EPS[case.dtype] * float(np.abs(exact).max())
        wrong = ~np.asarray(np.abs(got[name] - exact) <= limit)
        if wrong.any():
            bad[name] = wrong
    words = ""
    if gradients := [name for name in bad if name != "out"]:
        output = "the output, " if "out" in bad else ""
        others = ", ".join(name for name in got if name not in bad)
        fine = f"; right: {others}" if others else ""
        words = f"Wrong: {output}the gradients of {', '.join(gradients)}{fine}."
    return words, places(bad["out"]) if "out" in bad else {}


def places(bad: NDArray[np.bool_]) -> dict[str, WrongPlaces]:
    """Return the axes on which a part alone is wrong, by letter: batch elements, heads, rows, features.

    bad: True for each wrong element, of which there are some, of an output (B, H, Lq, Dv) or (B, Lq, E).
    """
    found = {}
    for axis, letter in enumerate(_AXES[bad.ndim]):
        wrong = np.flatnonzero(bad.any(axis=tuple(a for a in range(bad.ndim) if a != axis)))
        if len(wrong) < bad.shape[axis]:
            found[letter] = WrongPlaces(tuple(map(int, wrong)), bad.shape[axis])
    return found


def unsteady(cases: Sequence[tuple[str, Source]], backend: str, source: Source) -> list[tuple[str, str]]:
    """Return the answers that changed by more than rounding, or are wrong here: the case's id, and what.

    This process prepares all cases, calls each twice, then calls each again in the opposite order. An output
    is also compared with the exact one, since what is kept of another case gives the same answer each time.
    cases: ids with the source of their rule.
    """
    trials = []
    found: list[tuple[str, str]] = []
    for name, rule_source in cases:
        case = parse_case(name)
        with surroundings(case):
            try:
                trial = begin(case, backend, source, rule_source)
            except NotPrepared as refusal:
                if MEANING[refusal.status].declined:
                    continue
                raise
            first = trial.call()
            changed = _compared(case, TWICE, first, trial.call())
            found += changed or _compared_with_exact(trial, first)
        trials.append((case, trial, first))
    for case, trial, first in reversed(trials):
        with surroundings(case):
            found += _compared(case, AFTER, first, trial.call())
    return found


def _compared_with_exact(trial: Trial, got: Parts) -> list[tuple[str, str]]:
    held = trial.held
    # Exact gradients may be 0, and rounding then has no scale here.
    if operation_of(held.case).heads is None or "out" not in got:
        return []
    right = answered(PLAIN.prepare, *_in_float64(trial))
    unit = max(UNIT[held.case.dtype], UNIT.get(held.backend.computes_in or "", 0.0))
    out, exact = {"out": got["out"]}, {"out": right["out"]}
    if distance(out, exact, exact) <= RIGHT * unit:
        return []
    return [(case_id(held.case), WRONG_AFTER)]


def _compared(case: Case, what: str, before: Parts, after: Parts) -> list[tuple[str, str]]:
    for part, old in before.items():
        unit = EPS[case.dtype] * float(np.abs(old).max())
        # If NaN appears or disappears, the difference is NaN, which no rounding explains.
        if not np.allclose(old, after[part], rtol=0, atol=ROUNDING * unit, equal_nan=True):
            where = "" if part == "out" else f" in the gradient of {part}"
            return [(case_id(case), f"{what}{where}")]
    return []
