"""The suite of a program's attention calls, as TOML: each case with its count in one step."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import groupby, product
from math import isclose, log2

from attnbench.cases.ids import case_id, parse_case, short_id
from attnbench.cases.suites import IN_PROGRAM, TORCHS
from attnbench.masks import kept_keys
from attnbench.plugins.registry import load_registry
from attnbench.programs.tally import Call, Calls, Kind, Unclassified
from attnbench.results.targets import FileKind
from attnbench.types.batch import parse_batch
from attnbench.types.case import WITH_ROOM, Case
from attnbench.types.errors import BadCase
from attnbench.types.mask import Mask
from attnbench.types.operation import operation_of
from attnbench.types.rule import wrong_constant
from attnbench.types.words import count_of

SUITE = FileKind("a suite", b"# Written by attnbench capture.")

SCALE_TOLERANCE = 1e-6
"""Scales that differ by less are one, since programs compute them in float32: so they have seven digits."""

LEAST_CALLS = 4
"""From so many calls on, those of a layer or two of a model, the time between them tells their share."""

MOST_LENGTHS = 4
"""Calls that differ in batch and lengths alone become one case for each octave from so many on."""


@dataclass(frozen=True)
class CapturedCase:
    """A case of a program. count: how many calls a step of it made. also: for what else it stands, or ""."""

    case: Case
    count: float
    also: str


@dataclass(frozen=True)
class Captured:
    """The attention calls of a program.

    cases: prompts first, then by length. steps: of optimizers that were recorded, if the counts are those
    of one; None if they are those of the whole program. classified, calls: how many calls became cases, of
    how many. without: in words, the calls of a step that became none. notes: in words, what was not
    classified, and where recording failed. recording_s: time that recording took in all processes. forward_s:
    time of the forward calls in all threads; of a device that is the time to start them. between_s: time from
    the first of them to the end of the last, without recording.
    """

    cases: tuple[CapturedCase, ...]
    steps: int | None
    classified: int
    calls: int
    without: tuple[str, ...]
    notes: tuple[str, ...]
    recording_s: float
    forward_s: float
    between_s: float

    @property
    def has_backward(self) -> bool:
        """Whether some calls were followed by their backward pass."""
        return any(one.case.pass_ != "forward" for one in self.cases)

    @property
    def share(self) -> float | None:
        """The part that forward calls took of the time from the first to the end of the last.

        None where it can't be told: a device only starts a call, threads and processes wait for each other,
        and one call has nothing beside it.
        """
        if self.calls < LEAST_CALLS or not all(one.case.on_host for one in self.cases):
            return None
        # Recording the last call was no part of the time between.
        return min(1.0, self.forward_s / self.between_s) if self.between_s > 0 else None

    def toml(self, threads: Collection[int] = ()) -> str:
        """Return the suite as TOML. threads: each case has one for each number; () for the program's own."""
        whole = "a program" if self.steps is None else f"one step, a mean of {self.steps}"
        lines = [
            SUITE.mark.decode(),
            *(f"# {note}" for note in self.notes),
            f'summary = "attention calls of {whole}"',
            # Others refer to what their operation or storage names.
            *([f"baseline = {json.dumps(TORCHS)}"] if all(_is_plain(one.case) for one in self.cases) else []),
            *([f"without = {json.dumps(self.without)}"] if self.without else []),
            *(
                [f"share = {json.dumps(float(f'{self.share:.6g}'))}"]
                if self.share and self.steps is None and not self.has_backward
                else []
            ),
            "",
        ]
        stages = {_stage(one.case) for one in self.cases}
        # A mean of steps is one sum; a program that decodes after its prompts has two.
        staged = self.steps is None and stages == {"prefill", "decode"}
        written = {
            replace(one.case, threads=number if number and one.case.on_host else one.case.threads): one
            for _, its in groupby(self.cases, lambda one: _stage(one.case) == "decode")
            for number, one in product(threads or (0,), tuple(its))
        }
        for case, one in written.items():
            lines += [
                f"[[cases]] # {one.also}" if one.also else "[[cases]]",
                f"id = {json.dumps(case_id(case))}",
                f"count = {one.count:.6g}",
                *([f'stage = "{_stage(case)}{IN_PROGRAM}"'] if staged else []),
                "",
            ]
        return "\n".join(lines[:-1]) + "\n"


def _is_plain(case: Case) -> bool:
    return case.operation == "attention" and not case.batch


def _stage(case: Case) -> str:
    """Return the stage that a call of this case belongs to; "" where its sizes don't say it."""
    if case.batch or case.pass_ != "forward":
        return ""
    return "decode" if case.Lq == 1 else "prefill"


def _place(one: CapturedCase) -> tuple[bool, int, int, float]:
    """Where a case stands: prompts before the decode that follows them, short ones before long ones."""
    case = one.case
    return _stage(case) == "decode", case.Lq, case.Lk, -one.count * _work(case)


def captured(calls: Calls, *, by_step: bool) -> Captured:
    """Return the cases of a program's calls. by_step: their counts in one step of its optimizer."""
    counts: Counter[Case] = Counter()
    notes: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    total = 0
    rules = {name: rule.record for name, rule in load_registry().rules.items()}
    for kind, (forward, backward) in calls.counted.items():
        by_hand = isinstance(kind, Unclassified) and kind.by_hand
        total += 0 if by_hand else forward
        try:
            case = case_of(kind)
            if problem := wrong_constant(case, rules[case.rule]):
                raise BadCase(f"not classified: {kind.function}: {problem}")
        except BadCase as failure:
            lost[kind.function] += 0 if by_hand else forward
            notes[str(failure)] += forward
            continue
        assert isinstance(kind, Call)
        name = short_id(case)
        if not kind.layout:
            notes["no word says how their inputs lie in memory; they are measured contiguous"] += forward
        if kind.kept is not None:
            notes[f"{name}: the program's mask keeps about {kind.kept:.0%} of pairs, the case 80%"] += forward
        if backward and case.dropout:
            notes[f"{name}: its backward passes are measured without dropout"] += min(backward, forward)
        if backward:
            counts[replace(case, pass_="both", dropout=0.0)] += backward
        if forward > backward:
            counts[case] += forward - backward
    steps = calls.steps if by_step and calls.steps else None
    cases = [
        CapturedCase(case, number / (steps or 1), also)
        for case, (number, also) in _fold(_with_full_caches(counts)).items()
    ]
    cases.sort(key=_place)
    return Captured(
        tuple(cases),
        steps,
        total - lost.total(),
        total,
        tuple(
            f"{number / (steps or 1):.6g} {'call' if number == (steps or 1) else 'calls'} of {name}"
            for name, number in lost.items()
            if number
        ),
        (
            *(f"{count_of(number, 'call')}: {note}" for note, number in notes.items()),
            *(f"recording failed in {n:,} of its processes: {why}" for why, n in Counter(calls.lost).items()),
        ),
        calls.recording_s,
        calls.forward_s,
        calls.between_s,
    )


def case_of(call: Kind) -> Case:
    """Return the case of a call; raises BadCase, with a note, where none can say it."""
    if isinstance(call, Unclassified):
        if call.by_hand:
            raise BadCase(f"softmax {call.why}: attention by hand? Only attention functions are captured")
        raise BadCase(f"not classified: {call.function}: {call.why}")
    default, rule = call.D**-0.5, call.rule or "scaled_dot"
    if not call.rule and call.scale is not None and not isclose(call.scale, default, rel_tol=SCALE_TOLERANCE):
        rule = "dot" if isclose(call.scale, 1) else f"scaled_dot@scale={call.scale:.7g}"
    lengths = () if call.batch else ("Lq", "Lk")
    parts = [f"{name}{getattr(call, name)}" for name in ("H", "Hkv", *lengths, "D", "Dv")]
    sizes = "-".join([call.batch or f"B{call.B}", *parts])
    words = [call.mask, call.dtype, call.device, f"threads{call.threads}", call.layout or "own"]
    if call.dropout:
        words.append(f"dropout{call.dropout:.7g}")
    if call.storage != "dense":
        words.append(call.storage)
    try:
        return parse_case("/".join([call.operation, rule, sizes, *words]))
    except BadCase as failure:
        raise BadCase(f"not classified: {call.function}: {failure}") from failure


def _with_full_caches(counts: Mapping[Case, int]) -> Counter[Case]:
    """Return counts in which the step that fills a cache is one of the decode before it.

    A cache with room for more keys is contiguous once none is left, and would be a case of its own. One that
    then drops its first keys stays full for many steps, which are a case of their own.
    """
    found: Counter[Case] = Counter()
    for case, number in counts.items():
        with_room = (
            replace(case, layout=layout) for layout, full in WITH_ROOM.items() if case.layout == full
        )
        same = (
            one for one in with_room if one.is_decode and number <= counts.get(replace(one, Lk=one.Lk - 1), 0)
        )
        found[next(same, case)] += number
    return found


def _fold(counts: Mapping[Case, int]) -> dict[Case, tuple[float, str]]:
    """Return the cases with their calls, and in words for what else each stands.

    The shortest and the longest of an octave of lengths stand for all between them, with shares of the calls
    that keep the number of pairs: a choice holds between two measured lengths. Of paddings, and of batches
    whose size differs too, the case whose number of pairs is nearest to the mean stands for all. The time
    follows the pairs.
    """
    groups: dict[object, dict[Case, int]] = {}
    for case, number in counts.items():
        groups.setdefault(_octave(case), {})[case] = number
    folded: dict[Case, tuple[float, str]] = {}
    for members in groups.values():
        calls, few = sum(members.values()), len(members) < MOST_LENGTHS
        if len(members) == 1 or (few and len({(case.B, case.Lq, case.Lk) for case in members}) > 1):
            folded |= {case: (number, "") for case, number in members.items()}
        elif _differ_in_length(members):
            first, last = min(members, key=_pairs), max(members, key=_pairs)
            share = (_mean_pairs(members) - _pairs(first)) / (_pairs(last) - _pairs(first))
            also = f"an end of {len(members):,} lengths"
            folded |= {first: (calls * (1 - share), also), last: (calls * share, also)}
        else:
            mean = _mean_pairs(members)
            typical = min(members, key=lambda case: abs(_pairs(case) - mean))
            folded[typical] = calls, f"the mean of {len(members):,} shapes or paddings"
    return folded


def _octave(case: Case) -> object:
    """Return what cases of one octave of batches, queries and keys have in common.

    An octave of lengths ends with a power of two, as the cache of many a program does.
    """
    octaves = [int(log2(case.B)), *(int(log2(max(1, length - 1))) for length in (case.Lq, case.Lk))]
    dense = replace(case, batch="", storage="dense", sizes=())
    plain = replace(dense, B=1, Lq=1, Lk=1, mask=case.mask.unlisted())
    return plain, case.storage, case.sizes, case.Lq == 1, case.Lq == case.Lk, *octaves


def _differ_in_length(cases: Collection[Case]) -> bool:
    """Return whether cases of an octave differ in the length of a cache alone, or of whole prompts."""
    alike = len({(case.B, case.mask) for case in cases}) == 1 and not any(case.batch for case in cases)
    return alike and all(_grows(case.mask) and case.Lq in (1, case.Lk) for case in cases)


def _grows(mask: Mask) -> bool:
    """Return whether a mask keeps more keys where there are more; listed lengths of padding stay."""
    return all(word.part != "padding" or word == word.unlisted() for word in mask.words)


def _pairs(case: Case) -> int:
    """Return the number of pairs of a query and a key; of a recurrence, whose steps cost alike, of steps."""
    if case.batch:
        lengths = parse_batch(case.batch)
        return sum(queries * (1 if _is_recurrent(case) else keys) for queries, keys in lengths)
    if _is_recurrent(case):
        return case.B * case.Lq
    return case.Lq * (int(kept_keys(case).sum()) if case.mask.is_range else case.B * case.Lk)


def _is_recurrent(case: Case) -> bool:
    return operation_of(case).updates


def _work(case: Case) -> int:
    """Return about the pairs that take as long: a step of a recurrence works on as many rows as features."""
    return case.H * _pairs(case) * (case.D if _is_recurrent(case) else 1)


def _mean_pairs(cases: Mapping[Case, int]) -> float:
    return sum(number * _pairs(case) for case, number in cases.items()) / sum(cases.values())
