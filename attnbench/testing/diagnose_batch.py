"""A close look at a wrong answer to a batch: the known mistake that it equals where it is wrong.

Answers are compared head by head: a kernel may read a sequence, or a head, wrongly and the others rightly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnbench.cases.ids import case_id, parse_case
from attnbench.inputs.draw import EPS, store, widen
from attnbench.inputs.encoded import meant
from attnbench.inputs.kinds import NORMAL, STRESS_INPUTS
from attnbench.ipc import verifier_messages as rm
from attnbench.ipc.messages import Prepare
from attnbench.ipc.names import OUT, parameter_names
from attnbench.kit.problems import problem_setups
from attnbench.kit.reference import PLAIN, masked, row_scores
from attnbench.testing.advice import EMPTY_GRADIENTS, EMPTY_ROWS, UNUSED
from attnbench.testing.alike import RIGHT, Parts, answered, diagnosed_as, distance, nearest
from attnbench.testing.diagnosis_process import Diagnosed, Look
from attnbench.testing.mistakes import mistakes_for
from attnbench.testing.mistakes.batches import BatchMistake, BatchTensors, batch_mistakes
from attnbench.testing.mistakes.encodings import Numbers
from attnbench.testing.mistakes.factors import factors_in
from attnbench.testing.mistakes.masks import added_mask
from attnbench.testing.mistakes.parts import Form, Mistake, built
from attnbench.testing.mistakes.sequences import (
    HALVES,
    LOG_SUMS,
    SEEN,
    ZEROS,
    Cache,
    LogSumMistake,
    Read,
    SequenceMistake,
    cache_of,
    sequence_mistakes,
)
from attnbench.trial.judge import ORACLE_FLOPS, surroundings
from attnbench.types.backend import Setup
from attnbench.types.batch import parse_batch
from attnbench.types.case import Case
from attnbench.types.encoding import is_encoded
from attnbench.types.extensions import Source
from attnbench.types.problem import UPSTREAM
from attnbench.verifier.batch import BatchVerifier
from attnbench.worker.answers import stored_answer
from attnbench.worker.gradients import recast
from attnbench.worker.outputs import to_tensors
from attnbench.worker.prepared import PreparedBackend, judges_rule, prepare

if TYPE_CHECKING:
    from torch import Tensor

    Array = NDArray[Any]
    BySequence = Mapping[int, Array]

DRAWS = 4
"""So many draws are compared. What a wrong kernel finds in unused slots may hide its mistake in one."""
LSE = "lse"


def look_at_batch(look: Look, backend: str, source: Source) -> Diagnosed:
    """Compare wrong answers to ordinary inputs with those of known mistakes.

    Raises:
        NotPrepared: it could not be prepared. Whatever its code raises.
    """
    case = parse_case(look.case)
    rule = judges_rule(look.rule_source, case.rule)
    others = tuple(stress.name for stress in STRESS_INPUTS if stress.name != NORMAL)
    opened = BatchVerifier(rm.OpenCase(case_id(case), look.rule_source, 0, 0, ORACLE_FLOPS, others), rule)
    names = parameter_names(opened.parameters.rule, opened.parameters.projections)
    with surroundings(case):
        held, _ = prepare(Prepare(case_id(case), backend, source, look.rule_source, (), None), names)
        # The last one has the hardest contents of unused slots, as NaN.
        last = len(opened.stress_inputs) - 1
        draws = [*range(min(DRAWS - 1, last)), last]
        if is_encoded(case):
            return _encoded(opened, held, draws)
        asked = [_Asked(opened, held, index) for index in draws]
        found = (one.diagnosed() for one in asked)
        told = next(filter(None, found), None)
        if told is None and any(one.reads_unused_slots() for one in asked):
            told = _told("unused_slots", UNUSED)
    return told or Diagnosed()


def _told(name: str, words: str) -> Diagnosed:
    return Diagnosed(words, name, equals={name: words})


def _answer(opened: BatchVerifier, held: PreparedBackend, index: int, arrays: Mapping[str, Array]) -> Any:
    """Return the parts of an answer by sequence, widened."""
    ready = held.with_inputs(dict(arrays), fresh=True)
    assert ready.inputs is not None
    answer = stored_answer(ready, ready.call(*ready.inputs))
    dtype = opened.case.dtype
    return [
        {name: part if name == LSE else widen(part, dtype) for name, part in own.items()}
        for own in opened.taken("a backend", index, 0, answer)
    ]


def _by_head(part: BySequence) -> Parts:
    """Return arrays (1, H, ·) by sequence and head."""
    return {f"{number}.{h}": array[0, h] for number, array in part.items() for h in range(array.shape[1])}


@dataclass(frozen=True)
class _Asked:
    """A backend's answer to a draw, with the exact one in float64 and where its keys lie."""

    opened: BatchVerifier
    held: PreparedBackend
    index: int

    @property
    def case(self) -> Case:
        return self.opened.case

    @cached_property
    def drawn(self) -> dict[str, Array]:
        return self.opened.arrays(self.index, 0)

    @cached_property
    def cache(self) -> Cache | None:
        return cache_of(self.case, self.drawn)

    @cached_property
    def arrays(self) -> dict[str, Array]:
        """The stored arrays, with numbers in slots without a key: NaN would hide what was read.

        They are minus those of keys, for copies of all keys would give a right output.
        """
        cache, found = self.cache, dict(self.drawn)
        if cache is None or cache.table is None:
            return found
        used = np.concatenate([cache.places(n, cache.length(n)) for n in range(self.case.B)])
        unused = np.setdiff1d(np.arange(cache.slots), used)
        for name in ("k", "v") if len(used) else ():
            whole = found[name].reshape(cache.slots, *found[name].shape[2:]).copy()
            other = store(-widen(whole[used], self.case.dtype), self.case.dtype)
            whole[unused] = np.resize(other, (len(unused), *whole.shape[1:]))
            found[name] = whole.reshape(found[name].shape)
        return found

    @cached_property
    def got(self) -> list[dict[str, Array]]:
        return list(_answer(self.opened, self.held, self.index, self.arrays))

    def reads_unused_slots(self) -> bool:
        """Return whether the output changes with what lies in slots that hold no key."""
        if self.cache is None or self.cache.table is None:
            return False
        drawn = _answer(self.opened, self.held, self.index, self.drawn)
        return any(
            not np.array_equal(one[OUT], other[OUT], equal_nan=True)
            for one, other in zip(self.got, drawn, strict=True)
        )

    @cached_property
    def sequences(self) -> list[tuple[Setup, tuple[Tensor, ...], Tensor | None]]:
        """The setup, q, k and v, and the gradient of the output of each sequence, in float64."""
        found = []
        for setup, one in zip(problem_setups(self.held.setup), self.opened.problems, strict=True):
            tensors = to_tensors(one.arrays(self.index, 0, apart=True), one.case)
            upstream = tensors.get(UPSTREAM)
            own = recast(setup, [tensors[name] for name in "qkv"], "float64")
            found.append((*own, None if upstream is None else upstream.double()))
        return found

    @cached_property
    def right(self) -> list[dict[str, Array]]:
        found = []
        for setup, inputs, upstream in self.sequences:
            parts = dict(answered(PLAIN.prepare, setup, inputs, upstream))
            if LSE in self.case.returns:
                parts[LSE] = self._scores(setup, inputs).logsumexp(-1).numpy()
            found.append(parts)
        return found

    def _scores(self, setup: Setup, inputs: tuple[Tensor, ...]) -> Tensor:
        q, k = inputs[0], inputs[1].repeat_interleave(setup.case.group, 1)
        return masked(setup, row_scores(setup, q, k).detach(), slice(0, setup.case.Lq)).cpu()

    def part(self, answer: Sequence[Mapping[str, Array]], name: str) -> BySequence:
        return {number: own[name] for number, own in enumerate(answer)}

    def wrong(self, name: str, rounding: float) -> tuple[Parts, Parts]:
        """Return the heads of a part that are wrong, and all right ones."""
        got, right = _by_head(self.part(self.got, name)), _by_head(self.part(self.right, name))
        with np.errstate(invalid="ignore"):
            unit = max((np.abs(x[np.isfinite(x)]).max(initial=0) for x in right.values()), default=0.0)
            near = {
                key: np.isclose(one, right[key], rtol=0, atol=rounding * unit).all()
                for key, one in got.items()
            }
        return {key: one for key, one in got.items() if not near[key]}, right

    def diagnosed(self) -> Diagnosed | None:
        """Return the known mistake of the first part that is wrong: the output, then lse, then gradients."""
        rounding = RIGHT * EPS[self.case.dtype]
        for name in sorted(self.right[0], key=lambda name: (name != OUT, name != LSE)):
            wrong, right = self.wrong(name, rounding)
            if not wrong:
                continue
            if words := self._without_keys(name, wrong, right):
                return _told(f"{name}_of_rows_without_keys", words)
            numbers = {int(key.partition(".")[0]) for key in wrong}
            for mistakes, theirs in self._known(name):

                def answer(one: Any, theirs: Any = theirs, numbers: set[int] = numbers) -> Parts:
                    return _by_head(theirs(one, numbers))

                if known := nearest(mistakes, answer, wrong, right, rounding):
                    return diagnosed_as(known)
        return None

    def _known(self, name: str) -> Iterator[tuple[Iterator[Any], Callable[[Any, set[int]], BySequence]]]:
        """Yield known mistakes of a part, and what gives their answers for some sequences."""
        cache = self.cache
        if name == LSE:
            yield iter(LOG_SUMS), self._log_sums
        elif name == OUT and cache is not None:
            yield sequence_mistakes(cache), lambda one, numbers: self._reading(one, cache, numbers)
        got, right = self.part(self.got, name), self.part(self.right, name)
        yield _exchanges(got, right, name), lambda one, numbers: one.answer
        if name != LSE:
            ours = chain(HALVES, mistakes_for(replace(self.case, batch="", storage="dense", sizes=())))

            def in_each(one: Mistake, numbers: set[int]) -> BySequence:
                return self._in_each(one, name, numbers)

            yield ours, in_each
            if name == OUT:
                # Numbers are found in the sequence that has the most.
                most = max(got, key=lambda number: got[number].size * self.sequences[number][0].case.Lk)
                yield factors_in(lambda one: in_each(one, {most})[most], got[most]), in_each

    def _without_keys(self, name: str, wrong: Parts, right: Parts) -> str:
        """Return the words for a part that is wrong only where a query has no key; "" for another."""
        empty = {
            f"{number}.{h}": self._scores(setup, inputs)[0, h].logsumexp(-1).isneginf().numpy()
            for number, (setup, inputs, _) in enumerate(self.sequences)
            for h in range(setup.case.H)
        }
        if name in (OUT, LSE):
            near = RIGHT * EPS[self.case.dtype]
            for key, one in wrong.items():
                bad = ~np.isclose(one, right[key], rtol=near, atol=near)
                if not (~bad.reshape(len(bad), -1).any(-1) | empty[key]).all():
                    return ""
            return EMPTY_ROWS
        alone = {str(number) for number, pair in enumerate(parse_batch(self.case.batch)) if 0 in pair}
        alone |= {key.partition(".")[0] for key, each in empty.items() if each.any()}
        numbers = {key.partition(".")[0] for key in wrong}
        return EMPTY_GRADIENTS if numbers <= alone and len(alone) < self.case.B else ""

    def _reading(self, mistake: SequenceMistake, cache: Cache, numbers: set[int]) -> BySequence:
        return self._each(numbers, lambda number: self._attended(number, mistake.reads(cache, number)))

    def _each(self, numbers: set[int], make: Callable[[int], Array], name: str = OUT) -> BySequence:
        """Make an answer in each sequence where it can be made, and the right one in others."""
        found, failure = dict(self.part(self.right, name)), None
        made = 0
        for number in numbers:
            try:
                found[number] = make(number)
                made += 1
            except Exception as raised:
                failure = raised
        if not made and failure is not None:
            raise failure
        return found

    def _attended(self, number: int, read: Read) -> Array:
        """Attend from the queries of a sequence to what is read."""
        import torch

        setup, (q, _, _), _ = self.sequences[number]
        case = replace(setup.case, Lk=len(read.keys))
        if not len(read.keys):
            return np.zeros((1, case.H, case.Lq, case.Dv))
        pools = {
            name: widen(self.arrays[name], self.case.dtype).reshape(-1, *self.arrays[name].shape[-2:])
            for name in ("k", "v")
        }
        kept = {
            name: np.where((slots == ZEROS)[:, None, None], 0, pools[of][slots]).swapaxes(0, 1)[None]
            for name, of, slots in (("k", "k", read.keys), ("v", read.of, read.values))
        }
        mask = added_mask(replace(setup.case, Lk=read.length))
        seen = np.zeros((*mask.shape[:-1], 1))
        columns = np.where(read.columns == SEEN, read.length, read.columns)
        added = np.concatenate([mask, seen], -1)[..., columns]
        own = replace(setup, case=case, scoring=setup.rule.bind(case, setup.rule_parameters))
        call = built(Form(mask=lambda case: added), own)
        k, v = (torch.from_numpy(np.ascontiguousarray(x)).to(q) for x in kept.values())
        return np.asarray(call(q, k, v).cpu().numpy())

    def _in_each(self, mistake: Mistake, name: str, numbers: set[int]) -> BySequence:
        def make(number: int) -> Array:
            setup, inputs, upstream = self.sequences[number]
            return answered(mistake.prepare, setup, inputs, upstream)[name]

        return self._each(numbers, make, name)

    def _log_sums(self, mistake: LogSumMistake, numbers: set[int]) -> BySequence:
        import torch

        def make(number: int) -> Array:
            setup, inputs, _ = self.sequences[number]
            right = self.right[number][LSE]
            found = mistake.of(setup, self._scores(setup, inputs), torch.from_numpy(right)).numpy()
            # Rows without keys are another matter.
            return np.where(np.isneginf(right), self.got[number][LSE], found)

        return self._each(numbers, make, LSE)


_OWN = "write the rows of sequence b from cu_seqlens_q[b] on, gradients of k and v from cu_seqlens_k[b]"
_KEPT = "keep the graph from input to output: no detach(); add to gradients, don't replace them"


@dataclass(frozen=True)
class _Exchange:
    """A mistake that gives the right numbers of another place. answer: by sequence."""

    name: str
    summary: str
    advice: str
    answer: BySequence


def _exchanges(got: BySequence, right: BySequence, name: str) -> Iterator[_Exchange]:
    """Yield the mistakes that write a right part of one sequence or row in the place of another, or 0."""
    zeros = {number: np.zeros_like(each) for number, each in right.items()}
    what = {OUT: "output", LSE: "lse"}.get(name, f"gradient of {name}")
    named = what.replace(" ", "_")
    others = {number: _nearest_other(got[number], number, right) for number in right}
    yield _Exchange(f"{named}_of_another_sequence", f"the {what} of another sequence", _OWN, others)
    if name not in (OUT, LSE):
        yield _Exchange(f"no_{named}", f"the gradient of {name} is 0", _KEPT, zeros)
        return
    whole = np.concatenate([np.moveaxis(each[0], 1, 0) for each in right.values()])
    ends = np.cumsum([each.shape[2] for each in right.values()])[:-1]
    for which, step in (("next", -1), ("previous", 1)):
        rolled = np.split(np.roll(whole, step, 0), ends)
        rows = {number: np.moveaxis(each, 0, 1)[None] for number, each in enumerate(rolled)}
        yield _Exchange(f"{named}_of_the_{which}_row", f"the {what} of the {which} row", _OWN, rows)
    over = zeros | {0: others[0]}
    yield _Exchange(f"{named}_all_over_the_first", "all sequences are written over the first", _OWN, over)


def _nearest_other(got: Array, number: int, right: BySequence) -> Array:
    """Return the answer of another sequence of the same lengths that is nearest to this one."""
    alike = [one for n, one in right.items() if n != number and one.shape == got.shape]
    with np.errstate(invalid="ignore"):
        off = [np.nan_to_num(np.abs(one - got), nan=np.inf).max(initial=0) for one in alike]
    return alike[int(np.argmin(off))] if alike else right[number]


def _encoded(opened: BatchVerifier, held: PreparedBackend, draws: Sequence[int]) -> Diagnosed:
    """Compare answers from codes with those of known mistakes in reading them."""
    case = opened.case
    for index in draws:
        arrays = opened.arrays(index, 0)
        got = {
            str(number): _compared(opened, number, own[OUT])
            for number, own in enumerate(_answer(opened, held, index, arrays))
        }
        right = _named([one.draw(index).expected[OUT] for one in opened.problems])
        rounding = RIGHT * EPS[case.dtype]
        if distance(got, right, right) <= rounding or all(np.isnan(x).all() for x in got.values()):
            continue
        batch = BatchTensors(case, opened.stored_case(index, 0), opened.rule, arrays)

        def theirs(mistake: BatchMistake, batch: BatchTensors = batch, index: int = index) -> Parts:
            return _solved(opened, index, mistake.reads(batch))

        known = nearest(batch_mistakes(case), theirs, got, right, rounding)
        if known:
            return diagnosed_as(known)
    return Diagnosed()


def _named(arrays: Sequence[Array]) -> Parts:
    return {str(number): array for number, array in enumerate(arrays)}


def _compared(opened: BatchVerifier, number: int, out: Array) -> Array:
    """Return the rows of an output (1, H, Lq, Dv) that the verifier compares."""
    rows = opened.problems[number].rows
    return out if rows is None else out[:, :, rows]


def _solved(opened: BatchVerifier, index: int, read: Sequence[Numbers]) -> Parts:
    """Return the exact outputs for other keys and values of each sequence."""
    answers = []
    with np.errstate(all="ignore"):
        for one, (k, v) in zip(opened.problems, read, strict=True):
            given = meant(one.case, one.rule, one.draw(index).inputs)
            answers.append(one.judging.solve(given | {"k": k, "v": v})[OUT])
    return _named(answers)
