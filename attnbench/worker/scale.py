"""The scale of the machine, as a worker that holds no backend measures it."""

from __future__ import annotations

from attnbench.timing.scale import measure_scale
from attnbench.worker.messages import MeasureScale, ScaleMeasured


def scale_measured(request: MeasureScale) -> ScaleMeasured:
    """Measure on the cores this process may use, with as many threads as its torch has."""
    return ScaleMeasured(measure_scale(request.dtype, request.device, request.working_set_bytes))
