"""The verifier of a test session: verdicts of ``attnbench check`` and exact answers, from other processes."""

from __future__ import annotations

import secrets
from collections.abc import Set
from contextlib import ExitStack

from attnbench.cases.ids import case_id
from attnbench.cases.memory import free_memory
from attnbench.inputs.kinds import NORMAL, STRESS_INPUTS
from attnbench.ipc import verifier_messages as rm
from attnbench.plugins.registry import Registry, encoding_source, storage_source
from attnbench.runner.case import CaseRun
from attnbench.runner.check import check_reference
from attnbench.runner.context import CaseContext, open_context
from attnbench.runner.measure import run_cases
from attnbench.runner.options import Options
from attnbench.runner.pool import ScaleMeter, WorkerPool
from attnbench.runner.processes import HelperLost, VerifierFailed, WorkerFailed
from attnbench.runner.progress import Clock
from attnbench.stats.protocol import ORACLE_FLOPS, TIMED_DRAWS
from attnbench.types.case import Case
from attnbench.types.record import Line, Record

_STRESS_INPUTS = tuple(stress.name for stress in STRESS_INPUTS if stress.name != NORMAL)


class SessionVerifier:
    """Checks backends, and keeps one case open to compare outputs on it. Use it from the main thread only."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._pool = WorkerPool(Options(timed=False))
        self._records: dict[tuple[Case, str], Record] = {}
        self._open: CaseContext | None = None
        self._closing = ExitStack()

    def record(self, case: Case, backend: str, others: Set[str]) -> Record:
        """Return the verdict of ``attnbench check`` on a backend; check ``others`` on the case as well.

        Raises:
            MeasuringFailed: a process of the check does not start or answer.
        """
        if (case, backend) not in self._records:
            self._close_case()
            names = sorted(name for name in {backend, *others} if (case, name) not in self._records)
            lines: list[Line] = []
            run = CaseRun(
                pool=self._pool, scale=ScaleMeter(self._pool), registry=self._registry, case=case,
                names=tuple(names), left_out=frozenset(), clock=Clock(), write=lines.append,
            )  # fmt: skip
            run_cases([run])
            for line in lines:
                if isinstance(line, Record):
                    self._records[case, line.backend] = line
        return self._records[case, backend]

    def opened(self, case: Case) -> CaseContext:
        """Open the case with new ordinary inputs, which the verifier and the plain reference have solved.

        It stays open until the verifier opens or checks another case.

        Raises:
            VerifierFailed, HelperLost, WorkerFailed: there is no exact answer, or no plain reference; asked
                twice.
        """
        if self._open is None or self._open.case != case_id(case) or not self._open.verifier.alive:
            opening = rm.OpenCase(
                case=case_id(case),
                rule_source=self._registry.rules[case.rule].source,
                timed_entropy=secrets.randbits(63),
                timed_draws=TIMED_DRAWS,
                oracle_flops=ORACLE_FLOPS,
                # The check has used the stress inputs already.
                without=_STRESS_INPUTS,
                operation_source=self._registry.operations[case.operation].source,
                storage_source=storage_source(self._registry, case),
                encoding_source=encoding_source(self._registry, case),
            )
            try:
                return self._opened(opening, case.threads)
            except (VerifierFailed, HelperLost, WorkerFailed):
                return self._opened(opening, case.threads)
        return self._open

    def _opened(self, opening: rm.OpenCase, threads: int) -> CaseContext:
        self._close_case()
        self._pool.start_servers(threads)
        verifier = self._closing.enter_context(self._pool.lent_verifier())
        opened = open_context(verifier, opening, threads, int(free_memory()))
        context = self._closing.enter_context(opened)
        check_reference(self._pool, context)
        self._open = context
        return context

    def timed_score(self, outputs: tuple[rm.TimedOutput, ...], fd: int, context: CaseContext) -> rm.Scored:
        """Return the verdict on outputs of an open case; if the verifier fails, that of a new one.

        Raises:
            VerifierFailed, HelperLost, WorkerFailed: both failed.
        """
        asked = rm.ScoreTimed(outputs)
        try:
            return context.verifier.ask(asked, rm.Scored, fd)[0]
        except (VerifierFailed, HelperLost):
            again = self._opened(context.opening, context.threads)
            return again.verifier.ask(asked, rm.Scored, fd)[0]

    def _close_case(self) -> None:
        self._open = None
        self._closing.close()

    def close(self) -> None:
        """End the processes."""
        self._close_case()
        self._pool.close()
