"""The scale of the machine, measured beside every set by a worker that holds no backend."""

from __future__ import annotations

from attnbench.runner.link import WorkerFailed, WorkerLink
from attnbench.runner.workshop import Workshop
from attnbench.types.case import Case
from attnbench.types.errors import MeasuringFailed
from attnbench.types.record import MachineScale
from attnbench.worker import messages as m

MOST_FAILURES = 3
"""A worker that ends or hangs is started anew until so many have; the rest of the run has no scale."""

LONGEST_S = 60.0


class Scale:
    """Measures the scale with one worker for each number of threads, started when first needed and kept.

    Kept, unlike the workers of contenders: what is held against each other over a run must not change with
    the process. It sleeps while others measure. Nothing that goes wrong here fails a run: the sets then have
    no scale, and ``problem`` says why.
    """

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop
        self._links: dict[int, WorkerLink] = {}
        self._failures = 0
        self.problem = ""

    def measure(self, case: Case, bytes_moved: float) -> MachineScale | None:
        """What the machine can do just now, on the cores where the case is measured; a few milliseconds.

        bytes_moved: by one call of the case. From the main thread alone.
        """
        request = m.MeasureScale(case.dtype, case.device, int(bytes_moved))
        while self._failures < MOST_FAILURES:
            try:
                link = self._links.get(case.threads) or self._start(case.threads)
                measured, _ = link.ask(request, m.ScaleMeasured, min(self._shop.options.timeout_s, LONGEST_S))
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
        self._shop.start_servers(threads)
        options = self._shop.options
        cpus = self._shop.measured_cpus(threads) if options.pinned else self._shop.all_cpus
        link = self._shop.new_template(threads, cpus)
        self._links[threads] = link
        if options.put_first:
            link.put_first()
        return link

    def _end(self, threads: int) -> None:
        link = self._links.pop(threads, None)
        if link is not None:
            link.kill()
