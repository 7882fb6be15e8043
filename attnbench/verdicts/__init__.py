"""Rules of other tools that say which of two is the faster: plugins like any other, scored by the self-test.

All of them pool the samples of every set, as their tools do: they know no sets.
"""

from __future__ import annotations

from collections.abc import Iterable

from attnbench.hookspecs import hookimpl
from attnbench.types.verdict import VerdictRule
from attnbench.verdicts.asv import ASV
from attnbench.verdicts.bootstrap import BOOTSTRAP
from attnbench.verdicts.pyperf import PYPERF
from attnbench.verdicts.pytest_benchmark import MEDIAN_5_PERCENT, MIN_5_PERCENT
from attnbench.verdicts.t_test import T_TEST
from attnbench.verdicts.u_test import U_TEST


@hookimpl
def attnbench_verdict_rules() -> Iterable[VerdictRule]:
    """Gates on a statistic first, then tests, then rules that are both."""
    return (MEDIAN_5_PERCENT, MIN_5_PERCENT, T_TEST, PYPERF, U_TEST, BOOTSTRAP, ASV)
