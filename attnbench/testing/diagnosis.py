"""What a wrong answer looks like, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

from attnbench.cases.identity import parse_case
from attnbench.inputs.families import FAMILIES, NORMAL, families_of
from attnbench.testing.advice import ADVICE, BY_FAMILY
from attnbench.testing.alike import likeness, wrong_elements
from attnbench.testing.places import places
from attnbench.testing.trial import Trial, begin, surroundings
from attnbench.types.rule import Rule
from attnbench.types.source import Source
from attnbench.worker.held import loaded_here

_NAMES = tuple(family.name for family in FAMILIES)
_SIMPLE = ("one_key",)


def diagnose(case: str, backend: str, source: Source, rule_source: Source, families: Sequence[str]) -> str:
    """What to do about a backend that is wrong on a case, on inputs of these families; "" for nothing known.

    Raises what the backend's code raises.
    """
    parsed = parse_case(case)
    rule = next(r for r in loaded_here(rule_source).of(Rule) if r.name == parsed.rule)
    shown = sorted(set(families) & set(_NAMES), key=_NAMES.index)[:2] or [NORMAL]
    wrong = False
    # Where one key has all the weight scores hardly matter: of two mistakes the one beside them shows alone.
    for family in dict.fromkeys((*shown, *_SIMPLE)):
        if family not in families_of(parsed, rule):
            continue
        with surroundings(parsed):
            trial = begin(parsed, backend, source, rule_source, family)
            found = _of_answer(trial)
        if found:
            return found
        wrong = wrong or found is not None
    if wrong:
        return ""
    return next((f"{BY_FAMILY[name]}." for name in families if name in BY_FAMILY), "") or (
        "In a process of its own its first answer to such inputs is right: look for what is kept from "
        "one call to "
        "the next, and for memory that is read before it is written."
    )


def _of_answer(trial: Trial) -> str | None:
    """Of one answer; None where it's right, "" where nothing is known of what is wrong."""
    got = trial.call()
    setup = trial.held.setup
    found = likeness(got, setup, trial.inputs, trial.upstream)
    if found.right:
        return None
    if found.name:
        do = ADVICE.get(found.name, "")
        return f"This is what comes out of a known mistake ({found.summary}){f': {do}' if do else ''}."
    wrong = wrong_elements(got, setup, trial.inputs, trial.upstream)
    said = []
    parts = [name for name in wrong if name != "out"]
    if parts:
        right = [name for name in got if name not in wrong]
        said.append(
            f"Wrong: {'the output, ' if 'out' in wrong else ''}the gradients of {', '.join(parts)}"
            + (f"; right: {', '.join(right)}." if right else ".")
        )
    if "out" in wrong and (where := places(wrong["out"])):
        said.append(where)
    return " ".join(said)
