"""Findings made of records; nothing is judged here."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from attnbench import Backend
from attnbench.plugins.registry import load_registry
from attnbench.testing.diagnosis_process import Diagnosed, Smallest, WrongPlaces
from attnbench.testing.findings import Counts, Finding, NotConforming, Report, merged
from attnbench.testing.judge import rules_in
from attnbench.testing.problems import MOST_LOOKS, findings_of, looks
from attnbench.types.record import Record
from attnbench.types.status import Check, Status

REGISTRY = load_registry()
RULES = rules_in(REGISTRY)
SOURCES = {name: entry.source for name, entry in REGISTRY.rules.items()}
MINE = Backend("mine", "a test", prepare=print)
CASE = "attention/dot/B1-H2-Lq9-Lk12-D8/{}/float32/cpu/forward"
NEAR = "attention/dot/B1-H2-Lq7-Lk8-D8/causal:lower_right/float32/cpu/forward/seed5"


def record(mask: str, status: Status = "mismatch", check: Check = "", reason: str = "it failed") -> Record:
    on = ["normal"] if check == "values" else [check] if check else []
    return Record(CASE.format(mask), "dot", "mine", status, reason, failed_check=check, failed_on=on)


def found(*records: Record, backend: Backend = MINE, **diagnoses: str) -> list[Finding]:
    by_case = {CASE.format(mask): Diagnosed(do) for mask, do in diagnoses.items()}
    return findings_of(records, by_case, backend, RULES)


def test_cases_of_one_mistake_are_one_finding_and_others_refer_to_it() -> None:
    same = [record(mask, check="values", reason=f"RMS error {mask}") for mask in ("none", "causal")]
    declined = [record("window:3", "unsupported"), record("float", "unavailable")]
    assert found(record("padding", "ok"), *declined) == []
    failed = [*same, record("window:3", check="values"), record("bool", check="values")]
    by_case = {CASE.format(mask): Diagnosed("Do this.", "one") for mask in ("none", "causal")}
    by_case[CASE.format("window:3")] = Diagnosed("Do that.", "another")
    known, second, other = findings_of([*failed, *declined], by_case, MINE, RULES)
    assert known.cases == tuple(CASE.format(mask) for mask in ("none", "causal"))
    assert (known.check, known.do) == ("values", "Do this.")
    assert second.do.startswith("Do that.")
    assert other.do.endswith("Fix the problems above first: this may be one of them.")


def test_one_known_mistake_is_one_finding_over_all_cases() -> None:
    """Also over a case that equals none, and those without a close look, beside another fault."""
    failed = [record(mask, check="values") for mask in ("none", "causal", "window:3", "bool")]
    by_case = {CASE.format("none"): Diagnosed("Do this.", "one"), CASE.format("causal"): Diagnosed()}
    (one,) = findings_of(failed, by_case, MINE, RULES)
    assert (one.mistake, len(one.cases)) == ("one", 4)
    by_case[CASE.format("window:3")] = Diagnosed("It keeps something.", kind="kept")
    one, kept = findings_of(failed, by_case, MINE, RULES)
    assert (one.mistake, len(one.cases), kept.cases) == ("one", 3, (CASE.format("window:3"),))
    counts = Counts("mine", 0, 4, 0, 4, command="attnbench check CASE --backend mine")
    text = str(Report((counts,), (one, kept)))
    for finding in (one, kept):
        own = text[text.index(finding.problem) :].partition("again: ")[2].splitlines()[0]
        assert own == f"attnbench check {finding.cases[0]} --backend mine"


def test_nan_is_a_finding_of_its_own_beside_a_known_mistake() -> None:
    """It is mostly another fault than wrong numbers, so the plainest case that has it gets a close look."""
    wrong = [record(mask, check="values") for mask in ("none", "causal", "window:3")]
    nan = [record(mask, check="not_finite", reason="got nan") for mask in ("window:4", "window:5", "bool")]
    by_case = {CASE.format("none"): Diagnosed("Do this.", "one")}
    known, other = findings_of([*wrong, *nan], by_case, MINE, RULES)
    assert (known.mistake, known.cases) == ("one", tuple(each.case for each in wrong))
    assert (other.mistake, set(other.cases)) == ("", {each.case for each in nan})
    by_case[CASE.format("window:4")] = Diagnosed("Do that.", "two")
    known, other = findings_of([*wrong, *nan], by_case, MINE, RULES)
    assert (other.mistake, set(other.cases)) == ("two", {each.case for each in nan})
    many = [record(f"window:{width}", check="values") for width in range(1, MOST_LOOKS + 3)]
    assert nan[2].case in looks([*many, nan[2]], SOURCES)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("crashed", "and its process ended: it failed."),
        ("timeout", "and it gave no answer in time: it failed."),
        ("out_of_memory", "and it ran out of memory: it failed."),
        ("error", "and it failed."),
    ],
)
def test_a_call_that_fails_is_declined_or_fixed(status: Status, words: str) -> None:
    (finding,) = found(record("bool", status), record("none", "ok"))
    assert finding.problem == f"supports() let this case through, {words}"
    assert finding.do.startswith(
        "It fails in all cases with a mask (not case.mask.is_none), or an explicit mask"
    )
    assert "let supports() return the reason" in finding.do


def test_coarse_answers_are_a_finding_of_their_own() -> None:
    reason = "as exact as float32 arithmetic: RMS error 3e-08 is above 3e-15"
    coarse = record("none", "inaccurate", "values", reason)
    by_case = {CASE.format("none"): Diagnosed(), CASE.format("causal"): Diagnosed("Do this.", "one")}
    wrong, other = findings_of([coarse, record("causal", check="values")], by_case, MINE, RULES)
    assert (wrong.mistake, wrong.cases) == ("one", (CASE.format("causal"),))
    assert (
        other.problem
        == f"answers are coarser than the case's dtype: on attention/dot/H2-Lq9-Lk12-D8: {reason}."
    )
    assert other.do.startswith("Compute all parts, the softmax too, in the case's dtype")


def test_what_was_not_judged_blames_no_backend() -> None:
    failed = [
        record(mask, "unjudged", reason="the oracle failed: ValueError: x") for mask in ("none", "bool")
    ]
    (finding,) = found(*failed, record("causal", "ok"))
    assert finding.problem == "nothing is known of it in 2 cases: the oracle failed: ValueError: x."
    assert finding.do == "attnbench failed here, twice, and not the backend. Check again, and report it."
    assert finding.exit_code == 4
    rule = record("none", "unjudged", "reference", "the oracle failed in the rule 'r': ValueError: x")
    assert found(rule)[0].do == ""


def test_exceptions_that_differ_in_numbers_only_are_one_finding() -> None:
    (finding,) = found(*(record(f"window:{n}", "error", reason=f"size {n} is odd") for n in (2, 3)))
    assert len(finding.cases) == 2


def test_shapes_are_given_in_the_declared_layout() -> None:
    near = Record(CASE.format("none"), "dot", "mine", "error", f"beside, {NEAR}: it failed", failed_case=NEAR)
    (finding,) = found(near)
    assert "Inputs were q (1, 2, 7, 8), k (1, 2, 8, 8), v (1, 2, 8, 8), in its layout BHLD." in finding.do
    (finding,) = found(record("none", "error"), backend=replace(MINE, layout="BLHD"))
    assert "Inputs were q (1, 9, 2, 8), k (1, 12, 2, 8)" in finding.do


@pytest.mark.parametrize(
    ("status", "check", "words"),
    [
        ("mismatch", "aliasing", "Allocate the output in each call"),
        ("mismatch", "state", "Set switches in preparation or with a context manager"),
        ("mismatch", "activity", "Use case.threads threads"),
        ("mismatch", "rule_forms", "The rule 'dot': its torch form and its NumPy form differ"),
        ("mismatch", "dropout", "Drop each weight by itself, anew in every call, after the softmax"),
        ("mismatch", "weights", "Return the weights that make the output, with 0 where the mask drops"),
        ("error", "graph", "Keep the graph"),
        ("error", "requires", "declare it, as requires=('name',)"),
        ("error", "supports", "raise nothing"),
    ],
)
def test_each_check_has_its_advice(status: Status, check: Check, words: str) -> None:
    (finding,) = found(record("none", status, check))
    assert finding.check == check
    assert words in finding.do


def test_plain_cases_of_wrong_values_get_a_close_look() -> None:
    near = Record(
        CASE.format("bool+padding"), "dot", "mine", "mismatch", "x", failed_check="values", failed_case=NEAR,
        failed_on=["variant:normal", "variant:large_logits"],
    )  # fmt: skip
    skipped = [
        record("causal", "error"),
        record("float", check="inputs_changed"),
        record("bool", check="rule_forms"),
    ]
    close = looks([near, record("none", check="values"), *skipped], SOURCES)
    assert [look.case for look in close.values()] == [CASE.format("none"), NEAR]
    assert close[near.case].families == ("normal", "large_logits")
    large = CASE.format("none").replace("Lq9-Lk12", "Lq4096-Lk4096")
    too_large = Record(large, "dot", "mine", "mismatch", "x", failed_check="values", failed_on=["normal"])
    assert list(looks([too_large, near], SOURCES)) == [near.case, large]
    many = [record(f"window:{n}", check="values") for n in range(2, 20)]
    assert len(looks(many, SOURCES)) == MOST_LOOKS


def test_a_mistake_that_more_cases_show_explains_those_that_do_not_tell_two_apart() -> None:
    """In a short case the answers of two mistakes are equal."""
    failed = [record(mask, check="values") for mask in ("none", "causal", "padding")]
    of_16, of_32 = {"of_16": "Blocks of 16."}, {"of_32": "Blocks of 32."}
    by_case = {
        CASE.format("none"): Diagnosed("Blocks of 32.", "of_32", equals=of_32),
        CASE.format("causal"): Diagnosed("Blocks of 16.", "of_16", equals=of_16 | of_32),
    }
    (one,) = findings_of(failed, by_case, MINE, RULES)
    assert (one.mistake, one.do, len(one.cases)) == ("of_32", "Blocks of 32.", 3)


def test_cases_of_one_unknown_fault_are_one_finding() -> None:
    """Also those that got no close look, as long as nothing else is known to be wrong."""
    failed = [record(mask, check="values") for mask in ("none", "causal", "padding", "bool")]
    told = {"none": "Wrong: the gradients of v.", "causal": "Wrong: the gradients of q."}
    (one,) = found(*failed, **told)
    assert len(one.cases) == 4
    assert one.cases[0] == CASE.format("none")
    assert one.do == "Of the first case below: Wrong: the gradients of v."
    by_case = {
        CASE.format("none"): Diagnosed("Loud.", kind="family"),
        CASE.format("causal"): Diagnosed("In row 1."),
    }
    (one,) = findings_of(failed, by_case, MINE, RULES)
    assert one.do == "Of the first case below: In row 1."
    assert len(one.cases) == 4


def test_what_changes_from_call_to_call_is_all_that_is_said() -> None:
    failed = [record(mask, check="values") for mask in ("none", "causal", "padding")]
    by_case = {
        CASE.format("none"): Diagnosed("“no mask”", "mask_ignored"),
        CASE.format("causal"): Diagnosed("It is wrong in 3 of 8 equal calls.", kind="sometimes"),
    }
    (one,) = findings_of([*failed, record("bool", "ok")], by_case, MINE, RULES)
    assert (one.do, one.mistake, len(one.cases)) == ("It is wrong in 3 of 8 equal calls.", "", 3)


def test_a_fault_that_was_made_small_has_its_condition_and_its_smallest_case() -> None:
    long = "attention/dot/B1-H2-Lq9-Lk{}-D8/{}/float32/cpu/forward"

    def of(Lk: int, mask: str, status: Status = "mismatch") -> Record:
        case, check = long.format(Lk, mask), "values" if status == "mismatch" else ""
        return Record(case, "dot", "mine", status, "RMS error", failed_check=check)

    right = [of(12, "none", "ok"), of(65, "causal", "ok"), of(12, "causal", "ok")]
    small = Smallest("attention/dot/B1-H1-Lq65-Lk65-D1/none/float32/cpu/forward", {"Lq = Lk": 65})
    by_case = {long.format(70, "none"): Diagnosed()}
    asking = "--backend mine --plugin mine.py"
    (one,) = findings_of([of(70, "none"), of(129, "none"), *right], by_case, MINE, RULES, small, asking)
    assert one.do == (
        "It fails in all cases with Lk > 64 and without a mask, and is right in all others. Look at the "
        "boundary of blocks at 64."
    )
    assert f"the smallest case that fails: attnbench check {asking} --replay {small.point}" in str(one)


def test_places_of_errors_hold_in_all_cases_or_are_not_told() -> None:
    def of(mask: str, head: int) -> Record:
        reason = f"RMS error 1 is above 0; worst at (b=0, h={head}, i=3, e=0): got 1, expected 2"
        return record(mask, check="values", reason=reason)

    def told(*heads: int, places: tuple[dict[str, WrongPlaces], ...]) -> str:
        masks = ("none", "causal", "bool")[: len(heads)]
        by_case = {
            CASE.format(mask): Diagnosed(places=each) for mask, each in zip(masks, places, strict=False)
        }
        failed = [of(mask, head) for mask, head in zip(masks, heads, strict=True)]
        return findings_of(failed, by_case, MINE, RULES)[0].do

    first, row = WrongPlaces((0,), 2), WrongPlaces((3,), 9)
    assert told(0, 0, places=({"h": first, "i": row}, {"h": first})) == "All errors are in head 0 of 2."
    assert "head" not in told(0, 1, places=({"h": first}, {"h": WrongPlaces((1,), 2)}))
    # A case that got no close look names a place too.
    assert "head" not in told(0, 1, places=({"h": first},))
    larger = ({"i": WrongPlaces((3,), 17)}, {"i": row})
    assert told(0, 1, places=larger) == "All errors are in row 3."


def test_numbers_have_the_case_that_they_are_of() -> None:
    """Also where a variant of the listed case showed the fault; such a case is listed after the others."""
    variant = CASE.format("none").replace("Lk12", "Lk65")
    beside = record("none", check="values", reason=f"RMS error 3 (on the variant case {variant})")
    beside = structs.replace(beside, failed_case=variant)
    (finding,) = findings_of([beside], {}, MINE, RULES, asking="--backend mine")
    assert finding.problem.endswith("on attention/dot/H2-Lq9-Lk65-D8: RMS error 3.")
    assert finding.again == (f"the variant again: attnbench check --backend mine --replay {variant}",)
    assert f"  {CASE.format('none')} (wrong at Lk = 65, a variant)" in str(finding).splitlines()
    (finding,) = found(beside, record("padding", check="values", reason="RMS error 2"))
    assert finding.problem.endswith("on attention/dot/H2-Lq9-Lk12-D8/padding: RMS error 2.")
    assert finding.cases == (CASE.format("padding"), CASE.format("none"))


def test_the_text_of_a_report() -> None:
    counts = Counts("mine", 1, 2, 3, 4, command="attnbench check CASE --backend mine")
    report = Report((counts,), merged(Finding("mine", "wrong", "Fix it.", (case,)) for case in "abcde"))
    assert str(report) == (
        "mine: 2 cases checked, 1 right, 1 not, chosen after supports() took 1 of 4 combinations\n"
        "  problem: wrong\n    Fix it.\n    a\n    b\n    c\n    and 2 more cases\n"
        "    the first of these cases again: attnbench check a --backend mine"
    )
    assert not report.ok
    assert isinstance(NotConforming(report), AssertionError)
    assert Report((counts,), ()).ok
    absent = Report((Counts("mine", 0, 0, 0, 0, "no such device"),), ())
    assert not absent.ok
    assert str(absent) == "mine: nothing was checked: no such device"
