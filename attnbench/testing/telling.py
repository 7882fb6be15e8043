"""From records of the judge to findings: what happened, and what an author can do about it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from attnbench.cases.identity import parse_case
from attnbench.testing.advice import BY_FAMILY, by_words
from attnbench.testing.apart import Look
from attnbench.testing.asking import RAISES_NOTHING
from attnbench.testing.attributing import shared
from attnbench.testing.findings import Finding
from attnbench.types.backend import Backend
from attnbench.types.record import Record
from attnbench.types.rule import Rule
from attnbench.types.shapes import activation_shapes
from attnbench.types.source import Source
from attnbench.worker.names import WEIGHTS

LET_THROUGH = "supports() let this case through"
MOST_LOOKS = 6
"""Cases that are looked at closely; of a mistake that shows everywhere the first say as much as all."""
MOST_COMPUTED = 2**24
"""B·H·Lq·Lk·D up to which an answer is held against all known mistakes."""

_NOT_LOOKED_AT = ("dropout", WEIGHTS)
_ASKING = "asking what it supports "
_BESIDE = "on a case beside it, "
_NUMBERS = re.compile(r"[0-9]+(\.[0-9]+)?(e-?[0-9]+)?")
_FORMS = "do the rule's torch and NumPy forms agree"
_NOT_THERE = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")
_ENDINGS = {
    "crashed": "its process ended",
    "timeout": "it gave no answer in time",
    "out_of_memory": "it ran out of memory",
}


@dataclass(frozen=True)
class Failure:
    """A record that is no good. shown: the case that shows it, it or one beside it; words: what was seen
    there; families: of the inputs there."""

    record: Record
    shown: str
    words: str
    families: tuple[str, ...]

    @property
    def kind(self) -> str:
        """What failures must have in common to be told as one: the words without their numbers."""
        plain = "" if self.by_value else _NUMBERS.sub("n", self.words)
        return f"{self.record.status} {plain}"

    @property
    def by_value(self) -> bool:
        """Whether an answer was of the right kind and had wrong numbers."""
        return self.record.status == "mismatch" and bool(self.families) and not by_words(self.words)


def failures(records: Iterable[Record]) -> list[Failure]:
    """The records that say of a backend that it's wrong or fell over."""
    found = []
    for record in records:
        if record.status in ("ok", "unsupported", "unavailable"):
            continue
        shown, words = record.case, record.reason
        if words.startswith(_BESIDE):
            shown, _, words = words.removeprefix(_BESIDE).partition(": ")
        families = tuple(dict.fromkeys(name.removeprefix("near:") for name in record.failed_on))
        found.append(Failure(record, shown, words, families))
    return found


def looks(records: Iterable[Record], sources: Mapping[str, Source]) -> dict[str, Look]:
    """The cases of wrong answers to look at, by the id of the case that was asked for; plain ones first.

    sources: where each rule comes from.
    """
    found: dict[str, Look] = {}
    for failure in failures(records):
        if not failure.by_value or WEIGHTS in failure.families or _FORMS in failure.words:
            continue
        case = parse_case(failure.shown)
        if not case.dropout and case.B * case.H * case.Lq * case.Lk * case.D <= MOST_COMPUTED:
            source = sources[failure.record.rule]
            found[failure.record.case] = Look(failure.shown, source, failure.families)
    first = sorted(found, key=lambda name: _trouble(found[name]))[:MOST_LOOKS]
    return {name: found[name] for name in first}


def _trouble(look: Look) -> tuple[int, int]:
    """How much there is in a case that can be wrong beside what is."""
    case, mask = parse_case(look.case), parse_case(look.case).mask
    parts = [mask.causal, mask.window, mask.padding, mask.explicit, case.group > 1, case.layer]
    return sum(map(bool, parts)) + 3 * (case.pass_ != "forward"), case.Lq * case.Lk


def findings_of(
    records: Sequence[Record], diagnoses: Mapping[str, str], backend: Backend, rules: Mapping[str, Rule]
) -> list[Finding]:
    """What records say of one backend that is a mistake; those that say the same are one finding.

    diagnoses: what to do, by the id of the case, where an answer was looked at closely.
    """
    right = [record.case for record in records if record.status == "ok"]
    together: dict[str, list[Failure]] = {}
    known: dict[str, list[Failure]] = {}
    for failure in failures(records):
        do = _of_forms(failure) or diagnoses.get(failure.record.case, "")
        (known if do else together).setdefault(do or failure.kind, []).append(failure)
    found = [_wrong(group, do, right) for do, group in known.items()]
    others = any(diagnoses.values())
    return found + [_of_group(group, right, backend, rules, others) for group in together.values()]


def _of_forms(failure: Failure) -> str:
    """What to do where the plain reference, computed by a rule's torch form, is wrong too: no kernel is."""
    if _FORMS not in failure.words:
        return ""
    rule = failure.record.rule
    return (
        f"The rule {rule!r} gives its maths twice, and not the same: let what bind returns compute the "
        "scores of reference (scale, signs, parameters, positions)."
    )


def _wrong(group: Sequence[Failure], do: str, right: Sequence[str]) -> Finding:
    first, cases = group[0], tuple(failure.record.case for failure in group)
    problem = f"wrong answers: {first.words}{'' if first.words.endswith('?') else '.'}"
    return Finding(first.record.backend, problem, _joined(do, shared(cases, right)), cases)


def _of_group(
    group: Sequence[Failure], right: Sequence[str], backend: Backend, rules: Mapping[str, Rule], others: bool
) -> Finding:
    first, cases = group[0], tuple(failure.record.case for failure in group)
    status, words, common = first.record.status, first.words, shared(cases, right)
    name = first.record.backend
    if first.by_value:
        asked_for = next((f"{BY_FAMILY[name]}." for name in first.families if name in _NOT_LOOKED_AT), "")
        others_first = "Mend what is said above first: this may be the same." if others else ""
        do = asked_for or others_first or _decline("such a case")
        problem = f"wrong answers in cases that supports() let through: {words}."
        return Finding(name, problem, _joined(common, do), cases)
    if status == "mismatch":
        return Finding(name, f"{words}.", _joined(by_words(words), common), cases)
    if status in _ENDINGS:
        return Finding(
            name, f"{LET_THROUGH}, and {_ENDINGS[status]}: {words}.", _joined(common, _decline("it")), cases
        )
    if words.startswith("the plain reference failed"):
        return Finding(name, f"{words}.", "", cases)
    if words.startswith(_ASKING):
        problem = f"supports() {words.removeprefix(_ASKING)}"
        return Finding(name, problem, RAISES_NOTHING, cases, about="declarations")
    graph = by_words(words) if "gradient" in words else ""
    do = graph or _missing(words) or _joined(_decline("it"), _given(first, backend, rules))
    return Finding(name, f"{LET_THROUGH}, and {words}.", _joined(common, do), cases)


def _missing(words: str) -> str:
    """What to do about a library that isn't there, which is no mistake of the kernel."""
    named = _NOT_THERE.search(words)
    if named is None:
        return ""
    library = named[1].partition(".")[0]
    return (
        f"Install {library}, and declare requires=({library!r},): where it isn't installed, the backend is "
        "then unavailable, and not wrong."
    )


def _joined(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)


def _decline(what: str) -> str:
    return f"Make it work, or have supports() return the reason in words why {what} can't be run."


def _given(failure: Failure, backend: Backend, rules: Mapping[str, Rule]) -> str:
    """The shapes of a call's inputs: half of what raises is an axis where another was thought."""
    case = parse_case(failure.shown)
    shapes: tuple[tuple[int, ...], ...] = activation_shapes(case, rules[case.rule])
    if case.layer is not None:
        named = ", ".join(
            f"{name} {shape}" for name, shape in zip(("queries", "keys", "values"), shapes, strict=True)
        )
        return f"Inputs were {named}."
    if backend.layout == "BLHD":
        shapes = tuple((s[0], s[2], s[1], s[3]) for s in shapes)
    named = ", ".join(f"{name} {shape}" for name, shape in zip("qkv", shapes, strict=True))
    return f"Inputs were {named}, as its layout {backend.layout} says."
