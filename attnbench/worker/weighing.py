"""Asking a prepared backend for its attention weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnbench.worker.guarding import check_bands, check_unchanged, keep
from attnbench.worker.held import Held, NotPrepared
from attnbench.worker.names import WEIGHTS
from attnbench.worker.outputs import WrongOutput, check_output
from attnbench.worker.state import nothing_changed
from attnbench.worker.tensors import as_stored

if TYPE_CHECKING:
    from attnbench.worker.shared import Stored


def computed_weights(held: Held) -> dict[str, Stored]:
    """The weights of the inputs that are held, (B, H, Lq, Lk), by the function that the backend declares.

    Raises:
        NotPrepared: it declares none.
        WrongOutput: they aren't what is asked for, or the call changed what it must leave alone.
    """
    case = held.case
    if held.backend.weights is None or case.layer is not None:
        raise NotPrepared("error", f"{held.backend.name} gives no weights of such a case")
    assert held.inputs is not None
    before = keep(held.inputs)
    with nothing_changed("computing the weights"):
        weigh = held.backend.weights(held.setup)
        weights = weigh(*held.inputs[:2])
    check_unchanged(held.inputs, before)
    check_bands(held.buffers)
    try:
        check_output(weights, case, (case.B, case.H, case.Lq, case.Lk), "BHLD")
    except WrongOutput as wrong:
        raise WrongOutput(str(wrong).replace("the output", "what it gives", 1), "weights") from wrong
    return {WEIGHTS: as_stored(weights, case)}
