"""How many known mistakes the judge refuses, by family, each with a case that shows it, and at what cost.

    python tests/benchmarks/judge_score.py [--seeds 3] [--out docs/measured/judge-score.json]

It judges the mutants of ``attnbench selftest judge --full``, and then the few mistakes of the conformance kit
of which the self-test makes no backend. ``python tests/docs/written.py`` makes the table in docs/judge.md of
the file. The exit status is 1 if a wrong one is never refused, or a right one is. Needs attnbench-selftest.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from attnbench_selftest.judge import Kill, Outcome, count, judge_mutants
from attnbench_selftest.judge_plan import FULL
from attnbench_selftest.mutants import MUTANTS
from attnbench_selftest.mutants.mutant import Mutant

from attnbench import Backend, hookimpl
from attnbench.testing.mistakes import VALUES
from attnbench.testing.mistakes.gradients import GRADIENTS
from attnbench.testing.mistakes.inputs import ENDS, FIRST_TRIES, HEADS, LAYER, MASKS
from attnbench.testing.mistakes.parts import Mistake
from attnbench.testing.mistakes.scores import BLOCKS, PRECISION, RULES, SCORES

OUT = Path(__file__).parents[2] / "docs" / "measured" / "judge-score.json"
KIT = {
    "scores and softmax": SCORES, "blocks of an online softmax": BLOCKS, "masks": MASKS,
    "heads and batch": HEADS, "ends of axes": ENDS, "one rule": RULES, "layer": LAYER,
    "precision": PRECISION, "first tries": FIRST_TRIES, "gradients": GRADIENTS,
}  # fmt: skip
"""The families of the kit's known mistakes."""
OWN = {
    "values": "further values", "answers": "answers of the wrong form", "caches": "caches",
    "outputs": "outputs that are no new tensor", "world": "switches, threads, memory",
    "gradients": "further gradients",
}  # fmt: skip
"""Those of the mutants that only the self-test has, by their module."""
ASKED = (
    "attention/scaled_dot/B2-H4-Hkv2-Lq17-Lk40-D16-Dv12/bool/float32",
    "attention/scaled_dot/B2-H4-Hkv2-Lq17-Lk40-D16-Dv12/none/float32",
    "attention/scaled_dot/B1-H2-Lq17-Lk300-D16/none/float32",
)
"""Cases for mistakes of which the self-test makes no backend."""


def left_out() -> tuple[Mistake, ...]:
    """The kit's mistakes of which the self-test makes no backend."""
    names = {mutant.name for mutant in MUTANTS}
    return tuple(mistake for mistake in (*VALUES, *GRADIENTS) if mistake.name not in names)


@hookimpl
def attnbench_backends() -> Iterator[Backend]:
    """Those mistakes as backends."""
    for mistake in left_out():
        yield Backend(mistake.name, mistake.summary, mistake.prepare, dtypes=("float32",))


def main() -> int:
    """Judge, write the file, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        finding = judge_mutants(FULL, range(1, options.seeds + 1), (), Path(folder))
    found = count(MUTANTS, finding.outcomes)
    begun = time.process_time()
    others = list(asked_here())
    seconds = finding.facts["wall_s"] + time.process_time() - begun
    score: dict[str, Any] = {
        "facts": finding.facts | {"seconds": round(seconds)},
        "families": list(families([*found.kills, *others], finding.outcomes)),
        "controls": {
            "kept": found.right - len({one.mutant for one in found.wronged}),
            "of": found.right,
            "verdicts": found.right_verdicts,
        },
        "missed": [missed(kill, finding.outcomes) for kill in found.kills if kill.refused < kill.cases],
    }
    options.out.write_text(json.dumps(score, indent=1, ensure_ascii=False) + "\n")
    for family in score["families"]:
        print(" | ".join(map(str, family.values())))
    print(found.last_line)
    return 0 if found.fine and all(kill.refused for kill in others) else 1


def families(kills: Sequence[Kill], outcomes: Sequence[Outcome]) -> Iterator[dict[str, Any]]:
    """Yield a row for each family: its mutants, how many were refused, and one case that shows one."""
    caught = [one for one in outcomes if one.caught]
    by_family: dict[str, list[Kill]] = defaultdict(list)
    for kill in kills:
        by_family[family_of(kill.mutant)].append(kill)
    for family, its in by_family.items():
        shown = max(its, key=lambda kill: kill.refused / kill.cases)
        yield {
            "family": family,
            "mutants": len(its),
            "refused": sum(kill.refused > 0 for kill in its),
            "verdicts": sum(kill.cases for kill in its),
            "refusals": sum(kill.refused for kill in its),
            "shown_by": shown.mutant.removeprefix("wrong_"),
            "case": next((one.case for one in caught if one.mutant == shown.mutant), shown.by[0]),
        }


def family_of(name: str) -> str:
    """Return the family of a mutant, by its name as a backend, or of a mistake."""
    bare = name.removeprefix("wrong_")
    for family, mistakes in KIT.items():
        if any(mistake.name == bare for mistake in mistakes):
            return family
    (mutant,) = (mutant for mutant in MUTANTS if mutant.backend_name == name)
    return OWN[module_of(mutant)]


def module_of(mutant: Mutant) -> str:
    """Return the module of the self-test that has a mutant."""
    from attnbench_selftest import mutants

    return next(name for name in OWN if mutant in getattr(mutants, name).MUTANTS)


def missed(kill: Kill, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the cases in which a mutant was not refused, of how many."""
    cases = {one.case for one in outcomes if one.mutant == kill.mutant and one.status in ("ok", "inaccurate")}
    return {
        "mutant": kill.mutant,
        "summary": kill.summary,
        "missed": kill.cases - kill.refused,
        "of": kill.cases,
        "cases": sorted(cases),
    }


def asked_here() -> Iterator[Kill]:
    """Judge the mistakes without a mutant in this process."""
    from attnbench.cases.ids import case_id, parse_case
    from attnbench.plugins.registry import load_wanted
    from attnbench.trial.judge import judge
    from attnbench.trial.point import Point

    registry = load_wanted([__file__])
    for mistake in left_out():
        entry = registry.backends[mistake.name]
        shown = []
        for case in map(parse_case, ASKED):
            outcome = judge(Point(case), mistake.name, entry.source, registry.rules[case.rule].source)
            if outcome.status in ("wrong", "error"):
                shown.append(case_id(case))
        # Where a mistake can't show, as in a case of one block, its answer is right.
        cases = max(1, len(shown))
        yield Kill(mistake.name, "value", mistake.summary, cases, len(shown), 0, (), tuple(shown or ASKED))


if __name__ == "__main__":
    sys.exit(main())
