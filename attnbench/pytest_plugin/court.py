"""Who judges in a session of tests: the verdict of ``attnbench check``, and the answers to what is timed.

All of it happens in processes of its own, those of a run; the process of the tests only asks.
"""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from attnbench.cases.ids import case_id
from attnbench.cases.memory import free_memory
from attnbench.inputs.kinds import FAMILIES, NORMAL
from attnbench.ipc import verifier_messages as rm
from attnbench.runner.case import Before, Contest, decide
from attnbench.runner.context import Brief, open_brief
from attnbench.runner.examine import examine_plain
from attnbench.runner.options import Options
from attnbench.runner.pool import Scale, Workshop
from attnbench.runner.progress import Clock
from attnbench.types.case import Case
from attnbench.types.record import Line, Record

if TYPE_CHECKING:
    from attnbench.plugins.registry import Registry

_COURT = pytest.StashKey["Court"]()

_TIMED_DRAWS = 3
_ALL_BUT_NORMAL = tuple(family.name for family in FAMILIES if family.name != NORMAL)


class Court:
    """Judges backends on cases, one case open at a time. From the main thread alone."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        # One server is enough: how sets share the luck of theirs matters to what is timed there.
        self._shop = Workshop(Options(timed=False, launches=1, timed_draws=_TIMED_DRAWS))
        self._scale = Scale(self._shop)
        self._records: dict[tuple[str, str], Record] = {}
        self._open: tuple[str, Brief] | None = None
        self._closing = ExitStack()

    def record(self, case: Case, backend: str, others: tuple[str, ...]) -> Record:
        """The verdict on a backend, that of ``attnbench check``; ``others`` are judged along with it.

        Raises:
            MeasuringFailed: the machinery could not go on.
        """
        name = case_id(case)
        if (name, backend) not in self._records:
            self._leave()
            names = tuple(dict.fromkeys([backend, *others]))
            names = tuple(each for each in names if (name, each) not in self._records)
            written: list[Line] = []
            self._shop.start_servers(case.threads)
            decide(
                Contest(
                    shop=self._shop, scale=self._scale, registry=self.registry, case=case, names=names,
                    left_out=frozenset(), clock=Clock(1, None), write=written.append, before=Before(),
                )
            )  # fmt: skip
            for line in written:
                if isinstance(line, Record):
                    self._records[name, line.backend] = line
        return self._records[name, backend]

    def opened(self, case: Case) -> Brief:
        """The case with inputs that nobody has seen, their exact answers, and the plain reference's errors.

        It stays open until another case is opened or judged.

        Raises:
            VerifierFailed, WorkerFailed: there are no answers, or no reference.
        """
        name = case_id(case)
        if self._open is None or self._open[0] != name or not self._open[1].verifier.alive:
            self._leave()
            self._shop.start_servers(case.threads)
            # What families show the verdict has told; here they would only cost time.
            opening = rm.OpenCase(
                case=name,
                rule_source=self.registry.rules[case.rule].source,
                timed_entropy=secrets.randbits(63),
                timed_draws=_TIMED_DRAWS,
                oracle_flops=self._shop.options.oracle_flops,
                without=_ALL_BUT_NORMAL,
                operation_source=self.registry.operations[case.operation].source,
            )
            verifier = self._shop.verifier
            brief = self._closing.enter_context(
                open_brief(verifier, opening, case.threads, int(free_memory()))
            )
            examine_plain(self._shop, brief)
            self._open = name, brief
        return self._open[1]

    def _leave(self) -> None:
        self._open = None
        self._closing.close()

    def close(self) -> None:
        """End its processes."""
        self._leave()
        self._scale.close()
        self._shop.close()


def court_of(config: pytest.Config, registry: Registry) -> Court:
    """The court of this session, convened when it is first needed.

    Raises:
        MeasuringFailed: its processes don't start.
    """
    if _COURT not in config.stash:
        config.stash[_COURT] = Court(registry)
    return config.stash[_COURT]


def close_court(config: pytest.Config) -> None:
    """End what was convened, if anything."""
    court = config.stash.get(_COURT, None)
    if court is not None:
        del config.stash[_COURT]
        court.close()
