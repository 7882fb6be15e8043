"""How far to count down for a slowdown of so many percent: measured before, as any backend is.

In the turns of a run a call is colder than in a loop, and other processes' turns lie between: what a loop
says of 3 % came out as 4. So a contender that counts as far as is known is measured beside a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from attnbench.compare.comparison import compare
from attnbench.runner.plan import sets_for
from attnbench.selftest.contenders import PROBE, PROBE_ITERATIONS, copies
from attnbench.selftest.parts import Part
from attnbench.selftest.trials import Trial
from attnbench.types.errors import MeasuringFailed

BUDGET_S = {16: 1.0, 512: 2.0}
LEAST_SHARE = 0.05
"""What the probe's counting takes of a call, at least: less can't be told from what a set is off by."""


def needs_calibration(part: Part) -> bool:
    """Whether a part plants by counting."""
    return bool(part.percent) and part.device == "cpu"


def calibration_part(part: Part) -> Part:
    """What is measured before ``part``: on the first of its cases."""
    budget_s = BUDGET_S[part.length]
    return replace(
        part,
        contenders=(*copies(1), PROBE),
        budget_s=budget_s,
        sets=sets_for(budget_s),
        trials=1,
        together=1,
        percent=0,
    )


def calibrations(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Those that some parts need, one for each length."""
    return tuple(dict.fromkeys(calibration_part(part) for part in parts if needs_calibration(part)))


def iterations_for(percent: int, trials: Sequence[Trial], length: int) -> int:
    """How many iterations make a call slower by so much, from the trials of a calibration.

    The function around the loop, a tenth of a microsecond, is counted as if it were in proportion: of a call
    of 40 µs that makes 3.2 % of 3. What it takes by itself can't be measured as well as that.

    Raises:
        MeasuringFailed: the probe was not measured, or is hardly slower than a copy.
    """
    (copy,) = copies(1)
    found = compare([line for trial in trials for line in trial.sets], PROBE, copy)
    if found is None:
        raise MeasuringFailed("planted slowdowns could not be calibrated: their probe was not measured")
    share = found.ratio - 1
    if share < LEAST_SHARE:
        raise MeasuringFailed(
            f"planted slowdowns could not be calibrated: {PROBE_ITERATIONS[length]} iterations add "
            f"{share:.1%} to a call; measure when the machine is quieter"
        )
    return round(PROBE_ITERATIONS[length] * percent / 100 / share)
