"""Writing inputs anew in the middle of what is timed, at a call that nobody knows before it comes.

What a backend keeps of earlier calls - by address, by content, by count, since the beginning of a turn - is
wrong at the very next call then, whose output is looked at.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import perf_counter_ns
from typing import Any

from attnbench.timing.sample import Sample, joined, take_sample
from attnbench.timing.timer import Timer
from attnbench.worker.evidence import Evidence
from attnbench.worker.held import Held
from attnbench.worker.shared import Stored


@dataclass(frozen=True)
class Renewal:
    """Inputs to come, and where the outputs around their coming are kept."""

    stored: Mapping[str, Stored]
    evidence: Evidence
    stretch: int

    def sample(self, held: Held, timer: Timer, calls: int, turn: int) -> tuple[Sample, Any]:
        """A sample of ``calls`` calls, between two of which the inputs are renewed; and the last output.

        The output before is kept where there is one, that of the first call after in any case. On a device,
        where calls of a sample are one launch, inputs are renewed before all of them.

        A pool of copies, of which each call takes the next, has just the next one written anew, and back: all
        of it would not fit into a turn.
        """
        at = secrets.randbelow(calls) if held.case.device == "cpu" else 0
        a, b, c = held.inputs or (None, None, None)
        samples: list[Sample] = []
        if at:
            sample, output = timer(held.call, a, b, c, at)
            samples.append(sample)
            self._keep(held, output, turn, at - 1, renewed=False)
        if held.pool is None:
            start = perf_counter_ns()
            held.write(self.stored)
            self.evidence.spent(perf_counter_ns() - start)
            first = calls if held.case.device != "cpu" else 1
            sample, output = timer(held.call, a, b, c, first)
            self._keep(held, output, turn, at + first - 1, renewed=True)
        else:
            sample, output = self._in_pool(held, turn, at)
            first = 1
        alone_ns = sample.wall_ns if held.case.device == "cpu" else 0
        samples.append(replace(sample, renewed_ns=alone_ns))
        if at + first < calls:
            sample, output = timer(held.call, a, b, c, calls - at - first)
            samples.append(sample)
        return joined(samples), output

    def _in_pool(self, held: Held, turn: int, at: int) -> tuple[Sample, Any]:
        assert held.pool is not None
        start = perf_counter_ns()
        triple = next(held.pool.upcoming)
        held.write(self.stored, triple)
        self.evidence.spent(perf_counter_ns() - start)
        sample, output = take_sample(held.call, *triple, 1)
        self._keep(held, output, turn, at, renewed=True)
        start = perf_counter_ns()
        assert held.inputs is not None
        for old, now in zip(triple, held.inputs, strict=True):
            old.copy_(now)
        self.evidence.spent(perf_counter_ns() - start)
        return sample, output

    def _keep(self, held: Held, output: Any, turn: int, call: int, *, renewed: bool) -> None:
        self.evidence.keep(held, output, self.stretch, turn, call, renewed=renewed)
