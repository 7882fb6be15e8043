"""The processes of a run: servers, verifier, the scale of the machine, and the cores they may use."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType

from attnbench.ipc import messages as m
from attnbench.runner.link import (
    HERE,
    START_TIMEOUT_S,
    Interpreter,
    VerifierLink,
    WorkerFailed,
    WorkerLink,
    start_server,
)
from attnbench.runner.machine import allowed_cpus, split_cpus
from attnbench.runner.options import Options
from attnbench.types.case import Case
from attnbench.types.errors import MeasuringFailed
from attnbench.types.extensions import Source
from attnbench.types.record import MachineScale


@dataclass(frozen=True)
class ServerKey:
    """The key of a server: its side, its number of threads, and its number among several."""

    side: str
    threads: int
    launch: int


class WorkerPool:
    """Starts and ends the servers and the verifier of a run.

    Servers are as many as ``options.launches`` for each number of threads. What a process gets when it is
    started, and all forks of it have in common, made ratios of unlike backends differ by 2 % from run to run,
    whatever the sets of each said; so sets take turns with the servers that their processes come from.

    sides: of a live comparison, by name, the interpreter of its servers; what belongs to none (the plain
    reference, the scale) comes from one server more. Elsewhere there is the side "" alone.
    executor: threads of the parent, one a core, that wait for several workers at once while nothing is timed.
    """

    def __init__(self, options: Options, sides: Mapping[str, Interpreter] | None = None) -> None:
        self.options = options
        self._sides = {"": HERE} | dict(sides or {})
        self.all_cpus = allowed_cpus()
        self._servers: dict[ServerKey, WorkerLink] = {}
        self._loaded: dict[tuple[ServerKey, tuple[Source, ...]], WorkerLink] = {}
        self._replacing = threading.Lock()
        self._loading = threading.Lock()
        self.executor = ThreadPoolExecutor(max_workers=len(self.all_cpus))
        self._verifier = VerifierLink(options.timeout_s * 5)
        self.torch = self._torch_facts()

    @property
    def verifier(self) -> VerifierLink:
        """The verifier, a new one where it ended. A new one knows no case."""
        with self._replacing:
            if not self._verifier.alive:
                self._verifier.close()
                self._verifier = VerifierLink(self.options.timeout_s * 5)
            return self._verifier

    def start_servers(self, threads: int) -> None:
        """Start those servers for a number of threads that aren't there; they get ready by themselves.

        From the main thread alone: the system ends a server with the thread that started it.
        """
        for place in self._places(threads):
            server = self._servers.get(place)
            if server is not None and not server.alive:
                server.kill()
                for key in [key for key in self._loaded if key[0] == place]:
                    self._loaded.pop(key).kill()
            if server is None or not server.alive:
                self._servers[place] = start_server(threads, self._sides[place.side])

    def wait_for_servers(self, threads: int) -> None:
        """Have all servers for a number of threads there, with torch loaded. From the main thread alone.

        Raises:
            MeasuringFailed: one doesn't start.
        """
        self.start_servers(threads)
        for place in self._places(threads):
            try:
                self._servers[place].ask(m.Preload(()), m.Done, START_TIMEOUT_S)
            except WorkerFailed as failure:
                whose = f" of the {place.side} side" if place.side else ""
                reason = f"a server{whose} that loads torch does not work: {failure.reason}"
                raise MeasuringFailed(reason) from failure

    def _places(self, threads: int) -> Iterator[ServerKey]:
        for side in self._sides:
            for launch in range(self._launches(side)):
                yield ServerKey(side, threads, launch)

    def _launches(self, side: str) -> int:
        return self.options.launches if side or len(self._sides) == 1 else 1

    def new_worker(
        self,
        threads: int,
        cpus: tuple[int, ...],
        sources: tuple[Source, ...] = (),
        *,
        pin_allocator: bool = False,
        launch: int = 0,
        side: str = "",
    ) -> WorkerLink:
        """A process with torch and these plugins loaded and nothing prepared; safe from several threads.

        Plugins are imported once, in a fork of the preloaded server that does nothing else.
        """
        place = ServerKey(side, threads, launch % self._launches(side))
        origin = self._with_plugins(place, sources) if sources else self._servers[place]
        return origin.fork(timed=False, cpus=cpus, pin_allocator=pin_allocator)

    def _with_plugins(self, place: ServerKey, sources: tuple[Source, ...]) -> WorkerLink:
        with self._loading:
            loaded = self._loaded.get((place, sources))
            if loaded is None or loaded.ended:
                loaded = self._servers[place].fork(timed=False, cpus=self.all_cpus)
                self._loaded[place, sources] = loaded
                loaded.ask(m.Preload(sources), m.Done, self.options.timeout_s)
            return loaded

    def measured_cpus(self, threads: int) -> tuple[int, ...]:
        """The cores where workers with so many threads are timed."""
        return split_cpus(self.all_cpus, threads)[0]

    def keep_off_measured_cores(self, threads: int) -> None:
        """Move this process off the cores that are measured."""
        os.sched_setaffinity(0, split_cpus(self.all_cpus, threads)[1])

    def use_all_cores(self) -> None:
        """Give this process all its cores back."""
        os.sched_setaffinity(0, self.all_cpus)

    def _torch_facts(self) -> m.TorchFacts:
        # Asked of a prepared worker: to look for CUDA devices would make the server unfit to be forked.
        try:
            self.start_servers(1)
            prepared_worker = self.new_worker(1, self.all_cpus)
            facts, _ = prepared_worker.ask(m.Facts(), m.TorchFacts, START_TIMEOUT_S)
            prepared_worker.kill()
        except WorkerFailed as failure:
            self.close()
            raise MeasuringFailed(f"the server that loads torch does not work: {failure.reason}") from failure
        return facts

    def close(self) -> None:
        """End every process."""
        self.use_all_cores()
        self.executor.shutdown(wait=False, cancel_futures=True)
        self._verifier.close()
        for loaded in self._loaded.values():
            loaded.kill()
        for server in self._servers.values():
            server.kill()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


MOST_FAILURES = 3
"""A worker that ends or hangs is started anew until so many have; the rest of the run has no scale."""

LONGEST_S = 60.0


class Scale:
    """Measures the scale with one worker for each number of threads, started when first needed and kept.

    Kept, unlike the workers of backends: what is held against each other over a run must not change with
    the process. It sleeps while others measure. Nothing that goes wrong here fails a run: the sets then have
    no scale, and ``problem`` says why.
    """

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._links: dict[int, WorkerLink] = {}
        self._failures = 0
        self.problem = ""

    def measure(self, case: Case, bytes_moved: float) -> MachineScale | None:
        """Measure the machine on the cores where the case is measured; takes a few milliseconds.

        bytes_moved: by one call of the case. From the main thread alone.
        """
        request = m.MeasureScale(case.dtype, case.device, int(bytes_moved))
        while self._failures < MOST_FAILURES:
            try:
                link = self._links.get(case.threads) or self._start(case.threads)
                measured, _ = link.ask(request, m.ScaleMeasured, min(self._pool.options.timeout_s, LONGEST_S))
            except (WorkerFailed, MeasuringFailed) as failure:
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
