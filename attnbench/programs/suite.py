"""The suite of a program's attention calls, as TOML: each case with its count in one step."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isclose, log2

from attnbench.cases.ids import case_id, parse_case, short_id
from attnbench.plugins.registry import load_registry
from attnbench.programs.tally import Call, Calls, Kind, Unclassified
from attnbench.types.case import Case
from attnbench.types.errors import BadCase
from attnbench.types.rule import wrong_constant
from attnbench.types.words import count_of

SCALE_TOLERANCE = 1e-6
"""Scales that differ by less are one, since programs compute them in float32: so they have seven digits."""

MOST_LENGTHS = 4
"""Calls that differ in batch and lengths alone become one case for each octave from so many on."""


@dataclass(frozen=True)
class CapturedCase:
    """A case of a program. count: how many calls one step of it made."""

    case: Case
    count: float


@dataclass(frozen=True)
class Captured:
    """What a program's attention calls were.

    cases: the case with the most work first. steps: of optimizers that were recorded, if the counts are those
    of one; None if they are those of the whole program. classified, calls: how many calls became cases, of
    how many. notes: in words, what was not classified and what was put together. recording_s: time that
    recording took in all processes.
    """

    cases: tuple[CapturedCase, ...]
    steps: int | None
    classified: int
    calls: int
    notes: tuple[str, ...]
    recording_s: float

    @property
    def whole(self) -> str:
        """In words, what the counts are of."""
        return "a program" if self.steps is None else f"one step, a mean of {self.steps}"

    def toml(self) -> str:
        """Return the suite as TOML."""
        lines = [
            "# Written by attnbench capture.",
            *(f"# {note}" for note in self.notes),
            f'summary = "attention calls of {self.whole}"',
            "",
        ]
        for one in self.cases:
            lines += [
                "[[cases]]",
                f"id = {json.dumps(case_id(one.case))}",
                f"count = {one.count:.6g}",
                "",
            ]
        return "\n".join(lines[:-1]) + "\n"


def captured(calls: Calls, *, by_step: bool) -> Captured:
    """Return the cases of a program's calls. by_step: their counts in one step of its optimizer."""
    counts: Counter[Case] = Counter()
    notes: Counter[str] = Counter()
    total = lost = 0
    rules = {name: rule.record for name, rule in load_registry().rules.items()}
    for one in calls.counted:
        by_hand = isinstance(one.kind, Unclassified) and one.kind.by_hand
        total += 0 if by_hand else one.forward
        try:
            case = case_of(one.kind)
            if problem := wrong_constant(case, rules[case.rule]):
                raise BadCase(f"not classified: {one.kind.function}: {problem}")
        except BadCase as failure:
            lost += 0 if by_hand else one.forward
            notes[str(failure)] += one.forward
            continue
        name, kept = short_id(case), one.kind.kept if isinstance(one.kind, Call) else None
        if kept is not None:
            notes[f"{name}: the program's mask keeps about {kept:.0%} of pairs, the case 80%"] += one.forward
        backward = min(one.backward, one.forward)
        if backward and case.dropout:
            notes[f"{name}: its backward passes are measured without dropout"] += backward
        if backward:
            counts[replace(case, pass_="both", dropout=0.0)] += one.backward
        if one.forward > backward:
            counts[case] += one.forward - backward
    folded, words = _fold(counts)
    steps = calls.steps if by_step and calls.steps else None
    cases = sorted(
        folded.items(), key=lambda item: -item[1] * item[0].B * item[0].H * item[0].Lq * item[0].Lk
    )
    return Captured(
        tuple(CapturedCase(case, number / (steps or 1)) for case, number in cases),
        steps,
        total - lost,
        total,
        (*(f"{count_of(number, 'call')}: {note}" for note, number in notes.items()), *words),
        calls.recording_s,
    )


def case_of(call: Kind) -> Case:
    """Return the case of a call; raises BadCase, with a note, where none can say it."""
    if isinstance(call, Unclassified):
        if call.by_hand:
            raise BadCase(f"softmax {call.why}: attention by hand? Only attention functions are captured")
        raise BadCase(f"not classified: {call.function}: {call.why}")
    default = call.D**-0.5
    rule = "scaled_dot"
    if call.scale is not None and not isclose(call.scale, default, rel_tol=SCALE_TOLERANCE):
        rule = "dot" if isclose(call.scale, 1) else f"scaled_dot@scale={call.scale:.7g}"
    sizes = "-".join(f"{name}{getattr(call, name)}" for name in ("B", "H", "Hkv", "Lq", "Lk", "D", "Dv"))
    words = [call.mask, call.dtype, call.device, f"threads{call.threads}"]
    if call.dropout:
        words.append(f"dropout{call.dropout:.7g}")
    try:
        return parse_case("/".join(["attention", rule, sizes, *words]))
    except BadCase as failure:
        raise BadCase(f"not classified: {call.function}: {failure}") from failure


def _fold(counts: Mapping[Case, int]) -> tuple[dict[Case, int], list[str]]:
    """Put together cases that differ in lengths or padding alone; return them, and what was done in words.

    The case whose number of pairs is nearest to the mean stands for all paddings, and for an octave of
    batches and lengths; the time follows the pairs.
    """
    notes: list[str] = []
    folded: dict[Case, int] = dict(counts)
    for key in (_without_padding, _without_lengths):
        groups: dict[object, dict[Case, int]] = {}
        for case, number in folded.items():
            groups.setdefault(key(case), {})[case] = number
        folded = {}
        for members in groups.values():
            if len(members) < (2 if key is _without_padding else MOST_LENGTHS):
                one, number = members, sum(members.values())
            else:
                stands = _typical(members)
                what = "paddings" if key is _without_padding else "shapes"
                notes.append(f"{short_id(stands)} stands for {len(members)} {what}")
                one, number = {stands: sum(members.values())}, 0
            for case, number in one.items():
                folded[case] = folded.get(case, 0) + number
    return folded, notes


def _without_padding(case: Case) -> object:
    padding = case.mask.padding
    if not isinstance(padding, tuple):
        return case
    return replace(case, mask=replace(case.mask, padding=None)), "padded"


def _without_lengths(case: Case) -> object:
    """Return what cases of one octave of batches, queries and keys have in common."""
    octaves = [int(log2(size)) for size in (case.B, case.Lq, case.Lk)]
    plain = replace(case, B=1, Lq=1, Lk=1, mask=replace(case.mask, padding=None))
    return plain, case.mask.padding is None, case.Lq == 1, case.Lq == case.Lk, *octaves


def _typical(cases: Mapping[Case, int]) -> Case:
    """Return the case whose number of query and key pairs is nearest to the mean."""

    def pairs(case: Case) -> int:
        lengths = case.mask.padding
        return case.Lq * (sum(lengths) if isinstance(lengths, tuple) else case.B * case.Lk)

    mean = sum(number * pairs(case) for case, number in cases.items()) / sum(cases.values())
    return min(cases, key=lambda case: abs(pairs(case) - mean))
