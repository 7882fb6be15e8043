"""The processes of a run: servers, verifier, the scale of the machine, and the cores they may use."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

from attnbench.ipc import messages as m
from attnbench.ipc.process import descendants, is_stopped, kill_all
from attnbench.plugins.code import Stamp, attnbench_code, digest_of
from attnbench.runner.machine import allowed_cpus, split_cpus
from attnbench.runner.options import Options
from attnbench.runner.processes import (
    CLOSING_S,
    HERE,
    START_TIMEOUT_S,
    STOPPED,
    Interpreter,
    ServerLost,
    VerifierLink,
    WorkerFailed,
    WorkerLink,
    start_server,
    wait_until_ended,
)
from attnbench.types.case import Case
from attnbench.types.errors import BadInput, MeasuringFailed
from attnbench.types.record import MachineScale

_GENERATED = "; where the plugin writes that module itself, write it once, with a name for each content"


@dataclass(frozen=True)
class ServerKey:
    """The key of a server: its side, its number of threads, and its number among several."""

    side: str
    threads: int
    launch: int


class WorkerPool:
    """Starts and ends the servers and the verifier of a run.

    There are ``options.launches`` servers for each number of threads, and repetitions take turns with them.
    All forks of one server share what it got when it started; with a single server, ratios of unlike backends
    differed by 2 % from run to run.

    sides: in a live comparison, the interpreter of each side. The plain reference and the scale belong to no
    side, and come from one more server. Other runs have the side "" alone. executor: threads of the parent,
    one a core, that wait for several workers at once while nothing is timed.
    """

    def __init__(self, options: Options, sides: Mapping[str, Interpreter] | None = None) -> None:
        self.options = options
        self._sides = {"": HERE} | dict(sides or {})
        self._origin = {side: self._first_like(side) for side in self._sides}
        self.all_cpus = allowed_cpus()
        self._servers: dict[ServerKey, WorkerLink] = {}
        self._attnbench = {"": attnbench_code()}
        self._code: dict[tuple[str, str], tuple[str, str]] = {}
        self._begun: dict[tuple[str, str], str] = {}
        self.executor = ThreadPoolExecutor(max_workers=len(self.all_cpus))
        self._verifiers = [self._new_verifier()]
        self._lent: list[VerifierLink] = []
        self.torch = self._torch_facts()

    @contextmanager
    def lent_verifier(self) -> Iterator[VerifierLink]:
        """Lend a verifier to a case, which is the only one that it has open; from the main thread alone."""
        verifier = self._verifiers.pop() if self._verifiers else self._new_verifier()
        # The next case, or the same one again, is asked of a process in which nothing has failed.
        if not verifier.alive or verifier.failed:
            verifier.close()
            verifier = self._new_verifier()
        self._lent.append(verifier)
        try:
            yield verifier
        finally:
            self._lent.remove(verifier)
            self._verifiers.append(verifier)

    def _new_verifier(self) -> VerifierLink:
        return VerifierLink(self.options.timeout_s * 5)

    def end_if_stopped(self) -> None:
        """End all servers, workers and verifiers if one of them was stopped, as a backend can do.

        Raises:
            ServerLost: there was one.
        """
        links: list[WorkerLink | VerifierLink] = [*self._servers.values(), *self._verifiers, *self._lent]
        own = [link.pid for link in links if link.alive]
        every = [*own, *(worker for pid in own for worker in descendants(pid))]
        if any(map(is_stopped, every)):
            kill_all(every)
            for pid in own:
                wait_until_ended(pid, CLOSING_S)
            raise ServerLost(STOPPED)

    def start_servers(self, threads: int, launches: int | None = None) -> None:
        """Start the missing servers for a number of threads; they get ready by themselves.

        launches: so many of each side; None for all.

        Call it from the main thread alone: the system ends a server with the thread that started it.
        """
        for place in self._places(threads, launches):
            server = self._servers.get(place)
            if server is not None and not server.alive:
                server.kill()
            if server is None or not server.alive:
                interpreter = self._sides[place.side]
                self._servers[place] = start_server(threads, interpreter, self.options.timeout_s)

    @property
    def live(self) -> bool:
        """Return whether this is a live comparison, of two sides."""
        return len(self._sides) > 1

    def wait_for_servers(self, threads: int) -> None:
        """Wait until all servers for a number of threads have torch loaded. From the main thread alone.

        One that was lost is started anew.

        Raises:
            MeasuringFailed: one does not start.
        """
        for place in self._places(threads):
            try:
                self._wait_for(place)
            except (WorkerFailed, ServerLost):
                try:
                    self._wait_for(place)
                except (WorkerFailed, ServerLost) as failure:
                    whose = f" of the {place.side} side" if place.side else ""
                    reason = f"a server{whose} that loads torch does not work: {failure}"
                    raise MeasuringFailed(reason) from failure

    def _wait_for(self, place: ServerKey) -> None:
        self.start_servers(place.threads)
        server = self._servers[place]
        server.ask(m.Wait(), m.Done, server.patience_s)

    def _first_like(self, side: str) -> str:
        """Return the first side whose servers serve this one too."""
        wanted = replace(self._sides[side], side=None)
        return next(name for name, each in self._sides.items() if replace(each, side=None) == wanted)

    def _places(self, threads: int, launches: int | None = None) -> Iterator[ServerKey]:
        for side in dict.fromkeys(self._origin.values()):
            for launch in range(self._launches(side) if launches is None else launches):
                yield ServerKey(side, threads, launch)

    def _launches(self, side: str) -> int:
        return self.options.launches if side or not self.live else 1

    def new_worker(
        self,
        threads: int,
        cpus: tuple[int, ...],
        *,
        keeps_memory: bool | None = None,
        backward: bool = False,
        launch: int = 0,
        side: str = "",
    ) -> WorkerLink:
        """Fork a worker with torch loaded and no plugin; safe from several threads.

        backward: it will compute gradients.

        Every worker imports its plugin itself. Forks of one process that has imported it share its memory
        layout, and identical code on two sides then differs in all repetitions alike.
        """
        place = ServerKey(self._origin[side], threads, launch % self._launches(side))
        worker = self._servers[place].fork(
            timed=False, cpus=cpus, keeps_memory=keeps_memory, backward=backward
        )
        paths = self._sides[side].side
        try:
            if worker.attnbench is not None:
                self.same_attnbench(worker.attnbench, place.side)
            if paths is not None:
                worker.ask(paths, m.Done, START_TIMEOUT_S)
        except BaseException:
            worker.kill()
            raise
        return worker

    def same_code(self, whose: str, modules: Mapping[str, Stamp]) -> dict[str, str]:
        """Return the digests of a plugin's modules, as a process reports them.

        whose: the side and the plugin.

        Raises:
            WorkerFailed: another process has loaded another file, or the file has changed since.
            BadInput: it has changed since the run was begun, which is resumed here.
        """
        digests = {module: digest_of(stamp) for module, stamp in modules.items()}
        for module, digest in digests.items():
            file = modules[module].file
            begun = self._begun.get((whose, module), digest)
            if begun != digest:
                raise BadInput(
                    f"the run was begun with other code of {module} ({file!r}): its times would mix two "
                    "versions of the code; begin anew"
                )
            known_file, known = self._code.setdefault((whose, module), (file, digest))
            if known_file != file:
                places = f"one process has {module} from {known_file!r}, another from {file!r}"
                raise WorkerFailed("error", places + _GENERATED)
            if not digest or known != digest:
                raise WorkerFailed("error", f"{file} changed during the run: start again{_GENERATED}")
        return digests

    def knows(self, whose: str) -> bool:
        """Return whether a process has reported a module of a plugin."""
        return any(known == whose for known, _ in list(self._code))

    def go_on_with(self, whose: str, digests: Mapping[str, str]) -> None:
        """Expect these digests of a plugin's modules, by which a run was begun."""
        self._begun |= {(whose, module): digest for module, digest in digests.items()}

    def same_attnbench(self, code: Stamp, side: str = "") -> None:
        """Raise :class:`MeasuringFailed` if a process of a side runs another attnbench than the others.

        Those of no side must run the same as this process.
        """
        known = self._attnbench.setdefault(side, code)
        if known.file != code.file:
            raise MeasuringFailed(
                f"this process has attnbench from {known.file!r}, and the processes that it starts from "
                f"{code.file!r}: start the command attnbench, or python -P -m attnbench, or install the first"
            )
        if known != code:
            raise MeasuringFailed(f"{code.file} has changed since it was loaded: start again")

    def measured_cpus(self, threads: int) -> tuple[int, ...]:
        """Return the cores where workers with so many threads are timed."""
        return split_cpus(self.all_cpus, threads)[0]

    def keep_off_measured_cores(self, threads: int) -> None:
        """Move this process to the cores where nothing is timed."""
        os.sched_setaffinity(0, split_cpus(self.all_cpus, threads)[1])

    def use_all_cores(self) -> None:
        """Give this process all its cores back."""
        os.sched_setaffinity(0, self.all_cpus)

    def _torch_facts(self) -> m.TorchFacts:
        # A worker looks for CUDA devices: a server that did could not be forked any more.
        try:
            self.start_servers(1)
            worker = self.new_worker(1, self.all_cpus)
            facts, _ = worker.ask(m.Facts(), m.TorchFacts, START_TIMEOUT_S)
            worker.kill()
        except (WorkerFailed, ServerLost) as failure:
            self.close()
            raise MeasuringFailed(f"the server that loads torch does not work: {failure}") from failure
        except BaseException:
            self.close()
            raise
        return facts

    def close(self) -> None:
        """End every process."""
        self.use_all_cores()
        self.executor.shutdown(wait=False, cancel_futures=True)
        for verifier in self._verifiers:
            verifier.close()
        for server in self._servers.values():
            server.kill()


MOST_FAILURES = 3
"""After so many failures of its worker, the rest of the run has no scale."""

LONGEST_S = 60.0


class ScaleMeter:
    """Measures the scale of the machine with one worker for each number of threads.

    A worker is kept for the whole run, unlike those of backends: scales are compared over the run, and must
    not change with the process. It sleeps while others measure. No failure here fails a run: repetitions then
    have no scale, and ``problem`` says why.
    """

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._links: dict[int, WorkerLink] = {}
        self._failures = 0
        self.problem = ""

    def measure(self, case: Case, bytes_moved: float) -> MachineScale | None:
        """Measure the machine on the cores of the case; takes a few ms. From the main thread alone.

        bytes_moved: by one call of the case.
        """
        request = m.MeasureScale(case.dtype, case.device, int(bytes_moved))
        while self._failures < MOST_FAILURES:
            try:
                link = self._links.get(case.threads) or self._start(case.threads)
                measured, _ = link.ask(request, m.ScaleMeasured, min(self._pool.options.timeout_s, LONGEST_S))
            except (WorkerFailed, ServerLost, MeasuringFailed) as failure:
                self.problem = f"the scale of the machine could not be measured: {failure}"
                self._failures += 1
                self._end(case.threads)
            else:
                return measured.scale
        return None

    def close(self) -> None:
        """End the workers."""
        for threads in tuple(self._links):
            self._end(threads)

    def _start(self, threads: int) -> WorkerLink:
        self._pool.start_servers(threads)
        link = self._pool.new_worker(threads, self._pool.measured_cpus(threads))
        self._links[threads] = link
        link.put_first()
        return link

    def _end(self, threads: int) -> None:
        link = self._links.pop(threads, None)
        if link is not None:
            link.kill()
