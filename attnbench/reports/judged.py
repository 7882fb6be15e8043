"""Records with their verdicts, which depend on the other records of the run and so aren't stored in one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from attnbench.compare.verdict import verdicts
from attnbench.plugins.registry import Entry
from attnbench.types.metric import Metric
from attnbench.types.record import Record
from attnbench.types.verdict import Word

BASELINE: Literal["baseline"] = "baseline"


@dataclass(frozen=True)
class Added:
    """The cell of a column that a plugin adds: its metric, who brings that, and the value, None for none."""

    entry: Entry[Metric]
    value: float | None


@dataclass(frozen=True)
class Judged:
    """A record, and what its ratio amounts to among the others of its run.

    verdict: the word; ``baseline`` for the baseline itself; None where there is no ratio to judge.
    p_adjusted: its p-value after Benjamini-Hochberg over all ratios of the run. why: for ``unclear``, what
    is missing and what to do about it. run: the id of its run, "" where that isn't said. added: a cell for
    each metric that a plugin brings.
    """

    record: Record
    verdict: Word | Literal["baseline"] | None = None
    p_adjusted: float | None = None
    why: str = ""
    run: str = ""
    added: tuple[Added, ...] = ()


def judge(records: Sequence[Record], run: str = "") -> list[Judged]:
    """All records of **one run**, in their order, with their verdicts; ``run``: its id.

    The run is the family over which p-values are adjusted: judge the runs of several files one by one.
    """
    said = verdicts(records)
    judged = []
    for record in records:
        verdict = said.get((record.case, record.backend))
        if record.status != "ok" or record.ratio is None:
            judged.append(Judged(record, run=run))
        elif record.backend == record.baseline:
            judged.append(Judged(record, BASELINE, run=run))
        elif verdict is None:
            judged.append(Judged(record, run=run))
        else:
            judged.append(Judged(record, verdict.word, verdict.p_adjusted, verdict.reason, run))
    return judged
