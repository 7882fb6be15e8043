"""Records of the judge as findings, in words; nothing is judged here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from attnbench import Backend
from attnbench.plugins.registry import load_registry
from attnbench.testing.findings import Counts, Finding, NotConforming, Report, merged
from attnbench.testing.judging import rules_in
from attnbench.testing.telling import MOST_LOOKS, findings_of, looks
from attnbench.types.record import Record, Status

REGISTRY = load_registry()
RULES = rules_in(REGISTRY)
SOURCES = {name: entry.source for name, entry in REGISTRY.rules.items()}
MINE = Backend("mine", "a test", prepare=print)
CASE = "attention/dot/B1-H2-Lq9-Lk12-D8/{}/float32/cpu/forward"
NEAR = "on a case beside it, attention/dot/B1-H2-Lq7-Lk8-D8/causal:lower_right/float32/cpu/forward/seed5: "


def record(mask: str, status: Status, reason: str = "", *failed_on: str) -> Record:
    return Record(CASE.format(mask), "dot", "mine", status, reason, failed_on=list(failed_on))


def told(*records: Record, backend: Backend = MINE, **diagnoses: str) -> list[Finding]:
    by_case = {CASE.format(mask): do for mask, do in diagnoses.items()}
    return findings_of(records, by_case, backend, RULES)


def test_what_is_no_mistake_is_not_told() -> None:
    assert (
        told(record("none", "ok"), record("bool", "unsupported", "no"), record("float", "unavailable")) == []
    )


def test_cases_of_one_mistake_are_one_finding() -> None:
    wrong = [
        record(mask, "mismatch", f"RMS error {i}", "normal") for i, mask in enumerate(("none", "causal"))
    ]
    (found,) = told(*wrong, none="Do this.", causal="Do this.")
    assert found.cases == tuple(CASE.format(mask) for mask in ("none", "causal"))
    assert (found.problem, found.do) == ("wrong answers: RMS error 0.", "Do this.")


def test_what_is_not_known_is_told_apart_and_sends_to_what_is() -> None:
    known, other = told(
        record("none", "mismatch", "RMS error 1", "normal"),
        record("bool", "mismatch", NEAR + "RMS error 2", "near:normal"),
        none="Do this.",
    )
    assert known.do == "Do this."
    assert other.problem == "wrong answers in cases that supports() let through: RMS error 2."
    assert other.do == "Mend what is said above first: this may be the same."


@pytest.mark.parametrize(
    ("status", "reason", "problem"),
    [
        ("crashed", "ended by signal 11", "and its process ended: ended by signal 11."),
        ("timeout", "no answer in 5 s", "and it gave no answer in time: no answer in 5 s."),
        ("out_of_memory", "too large", "and it ran out of memory: too large."),
        ("error", "the call raised ValueError: no", "and the call raised ValueError: no."),
    ],
)
def test_what_supports_let_through(status: Status, reason: str, problem: str) -> None:
    (found,) = told(record("bool", status, reason), record("none", "ok"))
    assert found.problem == f"supports() let this case through, {problem}"
    assert found.do.startswith(
        "These are all the cases with a mask (not case.mask.is_none), or an explicit mask"
    )
    assert "have supports() return the reason in words why it can't be run." in found.do


def test_shapes_stand_in_the_layout_that_is_declared() -> None:
    (found,) = told(record("none", "error", NEAR + "the call raised X"))
    assert "Inputs were q (1, 2, 7, 8), k (1, 2, 8, 8), v (1, 2, 8, 8), as its layout BHLD says." in found.do
    (found,) = told(record("none", "error", "the call raised X"), backend=replace(MINE, layout="BLHD"))
    assert "Inputs were q (1, 9, 2, 8), k (1, 12, 2, 8)" in found.do


def test_dropout_and_weights_have_words_of_their_own() -> None:
    (found,) = told(record("none", "mismatch", "of another p", "dropout"))
    assert found.do.startswith("Drop each weight by itself, anew in every call")
    (found,) = told(record("none", "mismatch", "the weights: RMS error 1", "weights"))
    assert found.do.startswith("The weights that are given must be those that the output is made of")


def test_where_to_look_closely() -> None:
    wrong = [
        record("bool+padding", "mismatch", NEAR + "RMS error 1", "near:normal", "near:loud"),
        record("none", "mismatch", "RMS error 1", "quiet"),
        record("causal", "error", "raised"),
        record("float", "mismatch", "the call changed its first input"),
    ]
    found = looks(wrong, SOURCES)
    assert [look.case for look in found.values()] == [
        CASE.format("none"),
        "attention/dot/B1-H2-Lq7-Lk8-D8/causal:lower_right/float32/cpu/forward/seed5",
    ]
    assert found[CASE.format("bool+padding")].families == ("normal", "loud")
    large = CASE.format("none").replace("Lq9-Lk12", "Lq4096-Lk4096")
    too_large = Record(large, "dot", "mine", "mismatch", "RMS error 1", failed_on=["normal"])
    assert looks([too_large], SOURCES) == {}
    many = [record(f"window:{n}", "mismatch", "RMS error 1", "normal") for n in range(2, 20)]
    assert len(looks(many, SOURCES)) == MOST_LOOKS


def test_reports_in_words() -> None:
    counts = Counts("mine", 1, 2, 3, 4, command="attnbench check CASE --backend mine")
    note = Finding("mine", "other bits", cases=("a",), is_note=True)
    wrong = [Finding("mine", "wrong", "Mend it.", (case,)) for case in "abcde"]
    report = Report((counts,), merged([note, *wrong]))
    assert str(report) == (
        "mine: 1 of 2 cases right; supports() declined 3 of 4 combinations of what it declares\n"
        "  problem: wrong\n    Mend it.\n    a\n    b\n    c\n    and 2 more cases\n"
        "  note: other bits\n    a\n"
        "  one of these cases again: attnbench check CASE --backend mine"
    )
    assert not report.ok
    assert isinstance(NotConforming(report), AssertionError)
    assert Report((counts,), (note,)).ok
    absent = Report((Counts("mine", 0, 0, 0, 0, "no such device"),), ())
    assert not absent.ok
    assert str(absent) == "mine: nothing was checked, since it can't run here: no such device"


def test_a_library_that_is_missing_is_declared() -> None:
    reason = "preparation raised ModuleNotFoundError: No module named 'fast_kernels.cpu'"
    (found,) = told(record("none", "error", reason), record("bool", "error", reason))
    assert "Install fast_kernels, and declare requires=('fast_kernels',)" in found.do


def test_a_rule_whose_forms_disagree_is_no_mistake_of_a_backend() -> None:
    words = (
        "RMS error 1. The plain reference is itself off by 1 RMS: do the rule's torch and NumPy forms agree?"
    )
    wrong = record("none", "mismatch", words, "normal"), record("bool", "mismatch", words, "normal")
    assert looks(wrong, SOURCES) == {}
    (found,) = told(*wrong, none="Look for what is kept.")
    assert found.do.startswith(
        "The rule 'dot' gives its maths twice, and not the same: let what bind returns"
    )
