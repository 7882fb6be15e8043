"""The gate: outcomes that fail or hold, and gate files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from attnbench.compare.gate import (
    FAILS_ON,
    CellRule,
    Gate,
    hold,
    outcomes,
    read_gate,
    with_accepted,
    without_accepted,
)
from attnbench.reports.compared import acceptance_lines, cell_words
from attnbench.types.compared import OUTCOMES, Compared, ComparedCell, Outcome
from attnbench.types.errors import BadFile, BadInput


def cell(verdict: Outcome, backend: str = "mine", case: str = "attention/dot/a") -> ComparedCell:
    ratio = None if verdict in ("mismatch", "missing", "none") else 1.0
    return ComparedCell(case=case, rule="dot", backend=backend, verdict=verdict, ratio=ratio)


def compared(*cells: ComparedCell) -> Compared:
    return Compared("base", "new", cells)


@pytest.mark.parametrize("verdict", OUTCOMES)
@pytest.mark.parametrize("fail_on", [(), ("unclear",), ("slower", "missing"), FAILS_ON])
def test_exactly_what_is_named_fails(verdict: Outcome, fail_on: tuple[Outcome, ...]) -> None:
    result = hold(compared(cell(verdict), cell("same", "other")), Gate(fail_on=fail_on))
    assert (result.exit_code == 1) == (verdict in fail_on)


def test_the_sentence_counts_what_fails() -> None:
    found = hold(compared(cell("slower"), cell("slower", "b"), cell("missing", "c")), Gate())
    assert found.sentence == "fails: 2 slower, 1 missing of 3 cells"
    found = hold(compared(cell("slower"), cell("same", "b")), Gate(fail_on=("mismatch",)))
    assert (found.exit_code, found.sentence) == (
        0,
        "holds: none of 2 cells is a mismatch; 1 slower (allowed), 1 same",
    )


FLAKY = CellRule(backend="mine", ignore="flaky")


@pytest.mark.parametrize(
    ("cells", "rules", "why"),
    [
        ((), (), "neither side has a cell"),
        ((cell("none"), cell("none", "b")), (), "no cell has a time on both sides"),
        ((cell("slower"),), (FLAKY,), "every cell is ignored"),
    ],
)
def test_where_nothing_could_be_compared_it_is_3(
    cells: tuple[ComparedCell, ...], rules: tuple[CellRule, ...], why: str
) -> None:
    result = hold(compared(*cells), Gate(rules=rules))
    assert (result.exit_code, result.sentence) == (3, f"nothing could be compared: {why}")
    assert result.ignored == tuple((one, "flaky") for one in cells if rules)


def test_a_named_backend_without_a_time_on_both_sides_is_3_where_others_hold() -> None:
    cells = (cell("same"), ComparedCell("attention/dot/a", "dot", "flash", "none", "unsupported in both"))
    result = hold(Compared("base", "new", cells, named=("mine", "flash")), Gate())
    assert (result.exit_code, result.sentence) == (
        3,
        "nothing could be compared of flash: unsupported in both",
    )
    assert hold(Compared("base", "new", cells, named=("mine",)), Gate()).exit_code == 0
    assert hold(Compared("base", "new", (cell("slower"), cells[1]), named=("flash",)), Gate()).exit_code == 1


def test_what_the_lines_under_a_red_gate_accept_is_accepted(tmp_path: Path) -> None:
    odd = "tests/test_a.py::test[x-1]"
    slower = replace(cell("slower", "", odd), ratio=1.258, low=1.05, high=1.37)
    found = compared(slower, cell("missing", "b"), cell("mismatch", "c"), cell("same", "d"))
    file = tmp_path / "gate.toml"
    lines = "\n".join(acceptance_lines(hold(found, Gate())))
    file.write_text(lines)
    # What to do stands before the id of the first entry, and the others are counted.
    with pytest.raises(BadFile, match=r": write your reason in place of 'say why' for case .*, and 1 more$"):
        read_gate(file, Gate())
    file.write_text(lines.replace("say why", "exact now", 1))
    with pytest.raises(BadFile, match=r"in place of 'say why' for case '[^']*', backend 'b'$"):
        read_gate(file, Gate())
    file.write_text(lines.replace("say why", "exact now"))
    gate = read_gate(file, Gate())
    assert [rule.at_most for rule in gate.rules] == [1.4, None]
    after = with_accepted(found, gate)
    assert [one.verdict for one in after.cells] == ["accepted", "accepted", "mismatch", "same"]
    assert after.cells[0].reason == "slower; exact now"
    assert hold(after, gate).sentence == "fails: 1 mismatch of 4 cells; 2 accepted, 1 same"
    right = with_accepted(compared(*found.cells[:2], found.cells[3]), gate)
    assert hold(right, gate).sentence == "holds: 2 of 3 cells would fail, all accepted; 1 same"
    wrong = compared(*(cell("mismatch", name) for name in "abc"))
    assert hold(wrong, Gate()).sentence == "fails: 3 mismatches of 3 cells"
    again = with_accepted(compared(replace(slower, ratio=1.31, low=1.278, high=1.44)), gate)
    assert again.cells[0].verdict == "accepted", "the same code, measured again"
    worse = with_accepted(compared(replace(slower, ratio=1.46, low=1.408, high=1.57)), gate)
    assert (worse.cells[0].verdict, hold(worse, gate).exit_code) == ("slower", 1)
    words = cell_words(worse.cells[0])
    assert (words["ratio"], words["interval"]) == ("1.460", "[1.408, 1.570]"), "above 1.4, as printed"


def test_what_would_not_fail_keeps_its_verdict_and_its_entry_is_said_to_be_idle() -> None:
    gate = Gate(rules=(CellRule(backend="mine", accept="exact now"),))
    for verdict in ("unclear", "same", "faster"):
        found = with_accepted(compared(cell(verdict)), gate)
        assert found.cells[0].verdict == verdict
        (hint,) = hold(found, gate).hints
        assert "not needed here" in hint
        assert "backend 'mine'" in hint
    strict = Gate(fail_on=("unclear",), rules=gate.rules)
    needed = with_accepted(compared(cell("unclear")), strict)
    merged = ("after the merge, take the lines that accept out of gate.toml",)
    assert (needed.cells[0].verdict, hold(needed, strict, "gate.toml").hints) == ("accepted", merged)
    assert hold(with_accepted(compared(cell("slower")), gate), gate, "gate.toml").hints == merged


def test_an_entry_that_the_base_has_accepts_nothing_more() -> None:
    rule = CellRule(backend="mine", accept="exact now", at_most=1.3, delta=0.1)
    anew = CellRule(backend="mine", accept="and exact twice", at_most=1.3)
    slower = compared(replace(cell("slower"), ratio=1.2, low=1.1))
    gate, there = without_accepted(Gate(rules=(rule,)), Gate(rules=(rule,)))
    assert there == (rule,)
    assert hold(with_accepted(slower, gate), gate).exit_code == 1
    assert gate.delta_of("attention/dot/a", "mine") == 0.1
    # Nothing is left of an entry that only accepts, so no warning follows where it fits no cell.
    bare = CellRule(backend="mine", accept="exact now")
    assert without_accepted(Gate(rules=(bare,)), Gate(rules=(bare,))) == (Gate(), (bare,))
    gate, there = without_accepted(Gate(rules=(rule, anew)), Gate(rules=(rule,)))
    assert hold(with_accepted(slower, gate), gate).exit_code == 0


def test_of_many_failing_cells_a_line_accepts_all_of_a_backend() -> None:
    many = [cell("slower", "mine", f"case{number}") for number in range(9)]
    lines = acceptance_lines(hold(compared(*many, cell("same", "b")), Gate()))
    assert lines == ["[[cells]]", 'case = "*"', 'backend = "mine"', 'accept = "say why"']


def test_strict_fails_on_a_rule_that_fits_nothing() -> None:
    assert hold(compared(cell("same")), Gate(strict=True)).exit_code == 0
    idle = (CellRule(backend="gone", ignore="x"),)
    assert hold(compared(cell("same")), Gate(rules=idle)).exit_code == 0
    strict = hold(compared(cell("same")), Gate(rules=idle, strict=True))
    assert strict.sentence == "fails: 1 warning under --strict; 1 same"


def test_the_last_rule_that_fits_and_says_something_counts() -> None:
    gate = Gate(
        rules=(
            CellRule(case="attention/dot/*", delta=0.1, fail_on=("mismatch",)),
            CellRule(backend="m?ne", delta=0.2),
            CellRule(backend="other", ignore="known"),
            CellRule(backend="other", ignore="no"),
            CellRule(backend="other"),
        )
    )
    assert gate.delta_of("attention/dot/a", "mine") == 0.2
    assert gate.delta_of("attention/dot/a", "else") == 0.1
    assert gate.delta_of("attention/general/a", "else") == 0.02
    assert gate.fail_on_of("attention/dot/a", "mine") == ("mismatch",)
    assert gate.fail_on_of("attention/general/a", "mine") == FAILS_ON
    assert gate.ignored("attention/dot/a", "other") == "no"
    assert gate.ignored("attention/dot/a", "mine") == ""


def test_verdicts_are_put_in_order_and_unknown_ones_refused() -> None:
    assert outcomes("unclear, slower") == ("slower", "unclear")
    assert outcomes("nothing") == ()
    for bad in ("slowr", "", "slower,,missing"):
        with pytest.raises(BadInput, match="no verdict"):
            outcomes(bad)
    for never in ("same", "none"):
        with pytest.raises(BadInput, match=r"can't fail the gate; these can: slower.*Or give 'nothing'"):
            outcomes(f"slower,{never}")


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "gate.toml"
    path.write_text(text)
    return path


def test_what_a_gate_file_says_stands_in_place_of_the_options(tmp_path: Path) -> None:
    text = (
        "fail-on = ['unclear', 'slower']\nstrict = true\n[[cells]]\ncase = 'x/*'\ndelta = '3%'\nfail-on = []"
    )
    gate = read_gate(write(tmp_path, text), Gate(delta=0.1))
    rules = (CellRule(case="x/*", delta=0.03, fail_on=()),)
    assert gate == Gate(("slower", "unclear"), 0.1, rules, strict=True)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("delta = true", "delta = True: give a share between 0 and 1"),
        ("delta = '200%'", "a share between 0 and 1"),
        ("delta = nan", "a share between 0 and 1"),
        ("delta = []", "got `array` - at `$.delta`"),
        ("fail-on = [1]", "at `$.fail-on[0]`"),
        ("cells = 3", "Expected `array`, got `int` - at `$.cells`"),
        ("cells = [3]", "Expected `object`, got `int` - at `$.cells[0]`"),
        ("[[cells]]\nbackends = 'x'", "unknown field `backends` - at `$.cells[0]`"),
        ("[[cells]]\n[[cells]]\ndelta = 7", "delta = 7"),
        (f"delta = 1{'0' * 400}", "give a share between 0 and 1"),  # more than a float holds
    ],
)
def test_what_can_t_be_is_refused_in_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(BadFile) as refused:
        read_gate(write(tmp_path, text), Gate())
    assert sentence in str(refused.value)
    assert "gate.toml" in str(refused.value)


def test_a_binary_gate_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "gate.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadFile, match="is not TOML"):
        read_gate(tmp_path / "gate.toml", Gate())


def test_a_gate_that_holds_says_so_in_a_sentence() -> None:
    one, two = compared(cell("same")), compared(cell("same"), cell("same", "b"))
    assert hold(two, Gate()).sentence == "holds: none of 2 cells is slower, a mismatch or missing; 2 same"
    assert hold(one, Gate(fail_on=("slower",))).sentence == "holds: the only cell is not slower; 1 same"
    assert hold(one, Gate(fail_on=())).sentence == "holds: no verdict fails it; 1 same"
