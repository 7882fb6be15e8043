"""Scoring identical contenders: none is slower, and most are proved the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attnbench.selftest.bounds import Count, shared_baseline_effect
from attnbench.selftest.cells import (
    FAMILY,
    Cell,
    alone,
    cells_of,
    count,
    families,
    peer_families,
    peer_rates,
)
from attnbench.selftest.findings import Finding, Scored, rate
from attnbench.selftest.parts import Part, Terms
from attnbench.selftest.peers import Peers
from attnbench.selftest.trials import Trial, kept_share
from attnbench.types.verdict import Word

SLOWER_AT_MOST = 0.002
FAMILIES_AT_MOST = 0.01
SAME_AT_LEAST = 0.95
PARTS_OF_BUDGET = (1.0, 0.5, 0.25)


def score_aa(measured: Mapping[Part, Sequence[Trial]], terms: Terms, peers: Peers) -> Scored:
    """How often identical contenders are called slower, and proved the same at whole and smaller budgets.

    The false alarms of cells are those of verdicts given to each cell alone, without the adjustment that a
    run's other cells bring: the most there can be.
    """
    whole: dict[Part, list[Cell]] = {}
    same: list[Finding] = []
    claims = 2 + (len(measured) if terms.as_planned else 0)
    for part, trials in measured.items():
        for share in PARTS_OF_BUDGET:
            cells = cells_of(
                trials,
                part.contenders[1:],
                part.contenders[0],
                part=share,
                leave_out=terms.leave_out,
                peers=peers if share == 1 else None,
            )
            if share == 1:
                whole[part] = cells
            same.append(
                rate(
                    f"proved the same, {part.at(kept_share(trials, share))}",
                    "at least",
                    SAME_AT_LEAST,
                    count(cells, lambda cell: alone(cell, terms.delta) == "same"),
                    first=terms.as_planned and share == 1,
                    claims=claims,
                )
            )
    cells = [cell for found in whole.values() for cell in found]
    effect = max((shared_baseline_effect(len(p.contenders) - 1, p.sets) for p in whole), default=1.0)
    alarms = [
        _alarms(cells, "slower", terms, effect, claims),
        _families(cells, terms, claims),
        _alarms(cells, "faster", terms, effect, claims),
    ]
    return Scored(findings=(*alarms, *same))


def _alarms(cells: Sequence[Cell], word: Word, terms: Terms, effect: float, claims: int) -> Finding:
    return rate(
        f"identical code called {word}, of cells",
        "at most",
        SLOWER_AT_MOST,
        count(cells, lambda cell: alone(cell, terms.delta) == word),
        first=terms.whole and word == "slower",
        claims=claims,
        effect=effect,
        peers=peer_rates(cells, word),
    )


def _families(cells: Sequence[Cell], terms: Terms, claims: int) -> Finding:
    return rate(
        f"any called slower, of runs of {FAMILY} cells",
        "at most",
        FAMILIES_AT_MOST,
        [Count(int("slower" in words), 1) for words in families(cells, terms.delta)],
        first=terms.whole,
        claims=claims,
        peers=peer_families(cells, "slower"),
    )
