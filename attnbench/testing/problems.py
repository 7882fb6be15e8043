"""Findings made of records: the problem, and advice for the author."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from msgspec.structs import replace

from attnbench.cases.ids import given_id, parse_case
from attnbench.inputs.kinds import LIGHT_KEYS, NORMAL
from attnbench.testing.advice import BY_CHECK, BY_FAMILY, COARSE, RAISES_NOTHING
from attnbench.testing.conditions import condition
from attnbench.testing.diagnosis_process import SHRUNK, Diagnosed, Look, Smallest, too_large
from attnbench.testing.findings import About, Finding
from attnbench.testing.places import places_in_words
from attnbench.trial.point import Point
from attnbench.types.backend import Backend
from attnbench.types.case import Case
from attnbench.types.extensions import Source
from attnbench.types.operation import operation_of
from attnbench.types.problem import call_inputs, call_outputs
from attnbench.types.record import ON_VARIANT, Record
from attnbench.types.rule import Rule
from attnbench.types.status import MEANING
from attnbench.types.words import count_of

LET_THROUGH = "supports() let this case through"
MOST_LOOKS = 12
"""The number of cases that get a close look; more show nothing new if a mistake shows everywhere."""

BY_VALUE = ("values", "not_finite", "gradients", "dropout", "weights", "timed_values")
"""Checks that an output of the right form fails by its numbers."""
LOOKED_AT = ("values", "not_finite", "gradients")

_NUMBERS = re.compile(r"[0-9]+(\.[0-9]+)?(e-?[0-9]+)?")
_ENDINGS = {
    "crashed": "its process ended",
    "timeout": "it gave no answer in time",
    "out_of_memory": "it ran out of memory",
}


def _shown(record: Record) -> str:
    """Return the case that shows a failure: the record's own, or the variant case."""
    return record.failed_case or record.case


def _reason(record: Record) -> str:
    """Return the reason, without the id of the variant case."""
    beside = record.failed_case
    return record.reason.removesuffix(f" ({ON_VARIANT} {beside})")


def problem_of(record: Record) -> str:
    """Return the problem of a record in a line, with the case that shows it; "" for none."""
    return f"{_in_case(record)}: {_reason(record)}" if _failures([record]) else ""


def _in_case(record: Record) -> str:
    """Name the case that shows a failure, for a sentence."""
    words = f"{record.backend} on {given_id(parse_case(_shown(record)))}"
    return f"{words}, a variant of the case that is asked first" if record.failed_case else words


def _families(record: Record) -> tuple[str, ...]:
    """Return the families of inputs on which the check failed, on whichever case."""
    return tuple(dict.fromkeys(name.removeprefix("variant:") for name in record.failed_on))


def _kind(record: Record) -> tuple[str, ...]:
    """Return what all failures of one finding share; wrong numbers need not be wrong by as much."""
    if record.failed_check in BY_VALUE:
        return (record.status,)
    # The same exception names the sizes of each case.
    return record.status, record.failed_check, _NUMBERS.sub("n", _reason(record))


def _failures(records: Iterable[Record]) -> list[Record]:
    """Return the records with a status other than right, declined or absent."""
    return [record for record in records if not (record.passed or MEANING[record.status].declined)]


def looks(records: Iterable[Record], sources: Mapping[str, Source]) -> dict[str, Look]:
    """Choose the wrong answers to diagnose, by the case of the record.

    Plain cases come first, then large ones, and coarse answers last.
    The plainest that failed each check is among them, since NaN is mostly another fault than wrong numbers.
    sources: by rule.
    """
    found: list[tuple[Case, bool, Record, Look]] = []
    for record in _failures(records):
        case = parse_case(_shown(record))
        if may_be_known(case) and record.failed_check in LOOKED_AT:
            look = Look(_shown(record), sources[record.rule], _families(record))
            found.append((case, record.status == "inaccurate", record, look))
    found.sort(key=lambda one: (one[1], too_large(one[0]), _trouble(one[0])))
    plainest: dict[str, tuple[str, Look]] = {}
    for _, _, record, look in found:
        plainest.setdefault(record.failed_check, (record.case, look))
    ordered = dict([*plainest.values(), *((record.case, look) for _, _, record, look in found)])
    return dict(islice(ordered.items(), MOST_LOOKS))


def may_be_known(case: Case) -> bool:
    """Return whether wrong answers to a case, or to smaller ones, can be compared with known mistakes."""
    operation = operation_of(case)
    if operation.heads is None:
        told = operation.updates and operation.reference is not None
        has_mistakes = told and not case.batch and case.pass_ == "forward"
    else:
        has_mistakes = not case.batch or case.operation == "attention"
    return has_mistakes and not case.dropout


def _trouble(case: Case) -> tuple[int, int]:
    """Rank a case by how much in it can be wrong."""
    parts = len(case.mask.words) + (case.group > 1) + (case.layer is not None)
    return parts + 3 * (case.pass_ != "forward"), case.Lq * case.Lk


def findings_of(
    records: Sequence[Record],
    diagnoses: Mapping[str, Diagnosed],
    backend: Backend,
    rules: Mapping[str, Rule],
    smallest: Smallest | None = None,
    asking: str = "",
) -> list[Finding]:
    """Return the mistakes of one backend: all cases of one mistake, or failures of one kind, are one finding.

    diagnoses: by the case of the record, where an answer got a close look. smallest: the case that was made
    small of one of them. asking: the options by which ``attnbench check`` asks the backend.
    """
    failures = _failures(records)
    judged = [record for record in records if record.passed or record in failures]
    # An answer that is only coarse is another fault than one of wrong maths.
    coarse = {record.case for record in failures if record.status == "inaccurate"}
    diagnoses = {
        case: one
        for case, one in diagnoses.items()
        if one.mistake or one.kind == "sometimes" or case not in coarse
    }
    known = _known(diagnoses)
    nan = [record for record in failures if record.failed_check == "not_finite"]
    numbers = [record for record in failures if record not in nan]
    of_numbers, of_nan = _only_fault(numbers, known), _only_fault(nan, known)
    for records, fault in ((numbers, of_numbers), (nan, of_nan)):
        if fault is not None and fault.mistake:
            silent = [record.case for record in records if _says_nothing(known.get(record.case))]
            known |= dict.fromkeys(silent, fault)
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in failures:
        diagnosis = known.get(record.case)
        if diagnosis is None and record.failed_check in BY_VALUE and record.status != "inaccurate":
            diagnosis = of_nan if record.failed_check == "not_finite" else of_numbers
        kind = _kind(record) if diagnosis is None else (diagnosis.mistake, diagnosis.kind, diagnosis.do)
        groups.setdefault(kind, []).append(record)
    found = []
    # Known mistakes come first: other wrong answers may be the same.
    for group in sorted(groups.values(), key=lambda each: not any(one.case in known for one in each)):
        looked_at = sorted(group, key=lambda record: _place_in_finding(record, diagnoses, known))
        diagnosis = known.get(looked_at[0].case)
        others = [record for record in judged if record not in group and not MEANING[record.status].unknown]
        told = ""
        if diagnosis is None or diagnosis.mistake:
            told = _condition(group, others, None)
        elif diagnosis.kind in SHRUNK:
            told = _condition(group, others, smallest)
            own = [diagnoses[record.case] for record in group if record.case in known]
            where = places_in_words([one.places for one in own], [record.reason for record in group])
            told = _joined(where, told)
            if diagnosis.do and any(one.do != diagnosis.do for one in own):
                diagnosis = replace(diagnosis, do=f"Of the first case below: {diagnosis.do}")
        finding = _finding(looked_at, diagnosis, told, backend, rules, any_known=bool(known))
        if (
            smallest is not None
            and diagnosis is not None
            and not finding.mistake
            and diagnosis.kind in SHRUNK
        ):
            command = _replay(asking, smallest.point)
            finding = dataclasses.replace(finding, smallest=command)
        elif asking and looked_at[0].failed_case and looked_at[0].failed_check in LOOKED_AT:
            # The variants of a check are others each time.
            command = _replay(asking, str(_point(looked_at[0])))
            finding = dataclasses.replace(finding, again=(f"the variant again: {command}",))
        found.append(finding)
    return found


def _replay(asking: str, point: str) -> str:
    return f"attnbench check {asking} --replay {shlex.quote(point)}"


def _point(record: Record) -> Point:
    """Return the case that shows a failure with one kind of inputs on which it does, ordinary ones first."""
    families = _families(record)
    values = NORMAL if NORMAL in families or not families else families[0]
    return Point(parse_case(_shown(record)), values)


def _place_in_finding(
    record: Record, diagnoses: Mapping[str, Diagnosed], known: Mapping[str, Diagnosed]
) -> tuple[bool, bool, bool, tuple[int, int]]:
    """Put the case first whose diagnosis is told: all sentences on one case are on this one.

    Then those that fail themselves, and not on a variant; of these the plainest.
    """
    told, own = known.get(record.case), diagnoses.get(record.case)
    differs = told is not None and own is not None and own.do != told.do
    return told is None, differs, bool(record.failed_case), _trouble(parse_case(_shown(record)))


def _condition(group: Sequence[Record], others: Sequence[Record], smallest: Smallest | None) -> str:
    """Say which cases fail, by the variant case where that shows a failure."""
    return condition(
        [_shown(record) for record in group],
        [record.case for record in others],
        small=smallest.point.split()[0] if smallest else "",
        least=smallest.least if smallest else {},
        right=all(record.passed for record in others),
    )


def _known(diagnoses: Mapping[str, Diagnosed]) -> dict[str, Diagnosed]:
    """Return diagnoses by case; one stands for all cases that show its fault.

    A backend that is wrong in some of equal calls may be so in any case, and no other diagnosis is true then.
    """
    told = {case: one for case, one in diagnoses.items() if one.kind not in ("unjudged", "too large")}
    changing = next((one for one in told.values() if one.kind == "sometimes"), None)
    if changing is not None:
        return dict.fromkeys(told, changing)
    for case, one in told.items():
        if one.equals:
            # The mistake that the most cases show is the one that each of them shows.
            shows = Counter(name for each in told.values() for name in each.equals)
            name = max(one.equals, key=shows.__getitem__)
            if any(shows[other] < shows[name] for other in one.equals):
                told[case] = Diagnosed(one.equals[name], name, equals=one.equals)
    first: dict[tuple[str, str], Diagnosed] = {}
    # A fault on ordinary inputs is told first: another kind alone may show it in other cases.
    for one in sorted(told.values(), key=lambda one: one.kind != ""):
        first.setdefault(_fault(one), one)
    return {case: first[_fault(one)] for case, one in told.items()}


def _only_fault(records: Iterable[Record], known: Mapping[str, Diagnosed]) -> Diagnosed | None:
    """Return the fault of all these records that is known: what got no close look is most likely the same.

    Where one of them is a known mistake, it is that one: rounding, or inputs on which it hardly shows, may
    hide in others which mistake an answer equals.
    """
    faults = {_fault(one): one for record in records if (one := known.get(record.case)) is not None}
    mistakes = [one for one in faults.values() if one.mistake]
    likely = mistakes or list(faults.values())
    return likely[0] if len(likely) == 1 else None


def _says_nothing(one: Diagnosed | None) -> bool:
    """Return whether a close look told no more than that, and where, an answer is wrong in each call."""
    return one is not None and not one.mistake and not one.do and one.kind == ""


def _fault(one: Diagnosed) -> tuple[str, str]:
    return one.mistake, "" if one.kind in SHRUNK else one.kind


def _finding(
    group: Sequence[Record],
    known: Diagnosed | None,
    common: str,
    backend: Backend,
    rules: Mapping[str, Rule],
    *,
    any_known: bool,
) -> Finding:
    """Describe the problem of some failures, and what to do."""
    record = group[0]
    about: About = "answers"
    check, reason, mistake = record.failed_check, _reason(record), ""
    # Numbers are those of the case that shows them, which may be a variant of the listed one.
    numbered = f"on {given_id(parse_case(_shown(record)))}: {reason}"
    wrong = numbered if reason.endswith("?") else f"{numbered}."
    if known is not None:
        problem, mistake = f"wrong answers: {wrong}", known.mistake
        do = _joined(known.do, common) or _decline("such a case")
    elif MEANING[record.status].unknown:
        problem = f"nothing is known of it in {count_of(len(group), 'case')}: {reason}."
        do = "" if check else "attnbench failed here, twice, and not the backend. Check again, and report it."
    elif check == "rule_forms":
        problem = f"wrong answers: {wrong}"
        do = f"The rule {record.rule!r}: {BY_CHECK[check]}"
    elif record.status == "inaccurate":
        problem, do = f"answers are coarser than the case's dtype: {wrong}", _joined(COARSE, common)
    elif check in BY_VALUE:
        problem = f"wrong answers in cases that supports() let through: {wrong}"
        families = _families(record)
        family = next((BY_FAMILY[name] for name in families if name in _OWN_ADVICE), "")
        if families == (LIGHT_KEYS,):
            family = BY_FAMILY[LIGHT_KEYS]
        others_first = "Fix the problems above first: this may be one of them." if any_known else ""
        do = _joined(common, family or others_first or _decline("such a case"))
    elif record.status == "mismatch":
        advice = BY_CHECK.get(check, "") if check != "output_form" else _form(parse_case(_shown(record)))
        problem, do = f"{reason}.", _joined(advice, common)
    elif check == "supports":
        problem, do, about = reason, RAISES_NOTHING, "declarations"
    else:
        ending = _ENDINGS.get(record.status)
        what = reason if ending is None else f"{ending}: {reason}"
        problem = f"{LET_THROUGH}, and {what}."
        do = _joined(common, BY_CHECK.get(check, ""))
        if check not in BY_CHECK:
            given = "" if ending else _given(parse_case(_shown(record)), backend, rules)
            do = _joined(common, _decline("it"), given)
    cases = tuple(each.case for each in group)
    variants = tuple((each.case, variant_words(each)) for each in group if each.failed_case)
    exit_code = MEANING[record.status].exit_code
    return Finding(
        record.backend, problem, do, cases, about=about, check=check, mistake=mistake, exit_code=exit_code,
        variants=variants,
    )  # fmt: skip


def variant_words(record: Record) -> str:
    """Name the variant case that shows a failure, by how it differs in size from the case of its record."""
    own, variant = parse_case(record.case), parse_case(record.failed_case)
    sizes = {name: getattr(variant, name) for name in ("B", "H", "Hkv", "Lq", "Lk", "D", "Dv", "dtype")}
    unlike = [f"{name} = {size}" for name, size in sizes.items() if size != getattr(own, name)]
    if variant.batch != own.batch:
        unlike = [f"sequences {variant.batch}"]
    return f"at {', '.join(unlike)}, a variant" if unlike else "on a variant"


_OWN_ADVICE = ("dropout", "weights")


def _joined(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)


def _decline(what: str) -> str:
    return f"Make it work, or let supports() return the reason why it can't run {what}."


def _form(case: Case) -> str:
    """Name what a call of the case's operation returns."""
    operation = operation_of(case)
    if operation.heads is not None and not case.batch and not case.returns:
        return BY_CHECK["output_form"]
    outputs = ", ".join(
        f"{spec.name} {spec.shape}" + ("" if spec.kind == "float" else f" of {spec.kind}")
        for spec in call_outputs(case)
    )
    form = "each a torch.Tensor in the case's dtype where no other is named, several in a tuple"
    return f"Return {outputs}: {form}."


def _given(case: Case, backend: Backend, rules: Mapping[str, Rule]) -> str:
    """Name the shapes of a call's inputs: many exceptions come from exchanged axes."""
    shapes = {spec.name: spec.shape for spec in call_inputs(case, rules[case.rule])}
    dense = case.operation == "attention" and not case.batch
    layout = f", in its layout {backend.layout}" if dense else ""
    if layout and backend.layout == "BLHD":
        shapes = {name: (s[0], s[2], s[1], s[3]) for name, s in shapes.items()}
    named = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
    return f"Inputs were {named}{layout}."
