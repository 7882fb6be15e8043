"""What is printed: a line for each claim, other tools beside, what was planted, time and machine."""

from __future__ import annotations

from typing import Any

from attnbench.selftest.bounds import Count
from attnbench.selftest.findings import Effect, Finding, Scored, rate
from attnbench.selftest.table import tables

FACTS: dict[str, Any] = {
    "measuring_s": 12.4,
    "setup_s": 30.0,
    "load_before": [0.5, 0, 0],
    "load_after": [1.25, 0, 0],
    "environment": {"cpu": "A CPU", "cpus_allowed": [0, 1], "torch": "2.13.0"},
}
SLOWER = rate(
    "identical code called slower",
    "at most",
    0.002,
    [Count(0, 40)],
    first=True,
    claims=2,
    effect=1.25,
    peers={"t_test": 0.25, "u_test": 0.3},
)
BEYOND = rate("proved the same", "at least", 0.95, [Count(10, 40)], first=False, claims=2)


def lines(scored: Scored, width: int = 120) -> list[str]:
    return tables(scored, FACTS, width=width).splitlines()


def test_each_claim_has_its_numbers_and_its_outcome() -> None:
    found = lines(Scored((SLOWER, BEYOND)))
    assert " ".join(found[0].split()) == "what estimate 95 % bound of target outcome"
    assert found[1].split("  ")[0] == "identical code called slower"
    assert " ".join(found[1].split()[4:]) == "0 % ≤ 8.94 % 0/40 ≤ 0.2 % neither shown nor refuted"
    assert " ".join(found[2].split()[3:]) == "25 % ≥ 14.2 % 10/40 ≥ 95 % beyond not met"


def test_other_tools_stand_beside_ours() -> None:
    found = lines(Scored((SLOWER, BEYOND)))
    (head,) = (i for i, line in enumerate(found) if "other tools' rules" in line)
    assert found[head].split()[-3:] == ["ours", "t_test", "u_test"]
    assert found[head + 1].split()[-6:] == ["0", "%", "25", "%", "30", "%"]
    assert not any("other tools" in line for line in lines(Scored((BEYOND,))))


def test_a_rule_that_failed_on_some_claims_leaves_a_gap() -> None:
    other = rate("x", "at most", 0.1, [Count(0, 9)], first=True, claims=2, peers={"u_test": 0.5})
    found = lines(Scored((SLOWER, other)))
    assert next(line for line in found if line.startswith("x ") and "0.1" not in line.split()[0]).split()
    assert [line.split()[-4:] for line in found if line.startswith("x")][-1] == ["0", "%", "50", "%"]


def test_what_was_planted_is_beside_what_it_came_to() -> None:
    effect = Effect("L=16 in 0.25 s", 0.05, 0.0487, 0.0461, 0.0509, 136)
    unknown = Effect("L=512 in 4 s", 0.03, 0.031, None, None, 25)
    text = "\n".join(lines(Scored((SLOWER,), (effect, unknown))))
    words = " ".join(text.split())
    assert "L=16 in 0.25 s +5 % +4.87 % 4.61 % to 5.09 % 136 sets" in words
    assert "L=512 in 4 s +3 % +3.1 % 25 sets" in words


def test_notes_say_how_often_a_right_build_fails_and_what_cells_count() -> None:
    text = "\n".join(lines(Scored((SLOWER,), notes=("a note",))))
    assert "a note" in text
    assert "a build that meets every target exactly is refuted in 0.191 % of such runs, at most" in text
    assert "40 as 32 (identical code called slower)" in text
    assert "measuring 12 s, setting up 30 s; load average 0.50 before, 1.25 after" in text
    assert "A CPU, 2 cores, torch 2.13.0" in text


def test_what_was_refuted_stands_out_and_what_was_not_measured_says_so() -> None:
    bad = rate("alarms", "at most", 0.002, [Count(9, 10)], first=True, claims=1)
    none = rate("nothing", "at most", 0.002, [], first=True, claims=1)
    found = lines(Scored((bad, none)))
    assert found[1].endswith("REFUTED")
    assert " ".join(found[2].split()) == "nothing – 0/0 ≤ 0.2 % not measured"
    assert "\x1b[1;31m" in tables(Scored((bad,)), FACTS, colour=True)


def test_two_sides_and_nanoseconds() -> None:
    both = Finding("fires", "exactly", 0.0390625, True, 0.04, 0.03, 0.05, "met", 40, 1000, 12.0)
    ns = Finding("cost", "at most", 20.0, True, 0.5, -1.0, 2.0, "met", 0, 40, 40.0, unit="ns")
    found = lines(Scored((both, ns)))
    assert " ".join(found[1].split()) == "fires 4 % 3 % to 5 % 40/1000 = 3.91 % met: shown by the bound"
    assert " ".join(found[2].split()) == "cost 0.5 ns ≤ 2 ns 40 sets ≤ 20 ns met: shown by the bound"


def test_no_machine_is_known_where_nothing_ran() -> None:
    text = tables(Scored((SLOWER,)), FACTS | {"environment": {}})
    assert text.endswith("after\n")
