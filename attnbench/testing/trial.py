"""One backend prepared on one case in this process, and whether its answers stay the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnbench.cases.ids import case_id, parse_case
from attnbench.inputs.draw import EPS, draw_parameters, draw_upstream
from attnbench.inputs.kinds import DELIVERIES, NORMAL, draw_family
from attnbench.ipc.messages import Prepare
from attnbench.ipc.names import ACTIVATIONS, UPSTREAM, parameter_names
from attnbench.types.case import Case
from attnbench.types.extensions import Source
from attnbench.types.rule import Rule
from attnbench.types.status import MEANING
from attnbench.worker.answers import output_of
from attnbench.worker.outputs import to_tensors
from attnbench.worker.prepared import NotPrepared, PreparedBackend, loaded_here, prepare

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.check.gradients import Triple

Parts = dict[str, NDArray[Any]]

ROUNDING = 16.0
"""In units of the dtype's rounding of the largest element: the effect of other orders of summation."""

TWICE = "two calls on the same inputs gave different answers"
AFTER = "after calls on other cases it gave another answer to the same inputs"


@dataclass
class Trial:
    """A prepared backend with inputs. inputs, upstream: copies of the same numbers, in BHLD."""

    held: PreparedBackend
    inputs: Triple
    upstream: Tensor | None

    def call(self) -> Parts:
        """Make one call; return its parts in BHLD and float64. Raises whatever the backend raises."""
        held = self.held
        assert held.inputs is not None
        answer = held.call(*held.inputs)
        parts = {"out": answer} if held.passed is None else dict(zip(held.passed.names, answer, strict=True))
        # Inputs and outputs of a layer have no heads, so both layouts are the same.
        headed = {"out"} if output_of(held, answer) is not None else set()
        headed |= {"q", "k", "v"} if held.case.layer is None else set()
        exchanged = headed if held.backend.layout == "BLHD" else set()
        return {
            name: _wide(x.transpose(1, 2) if name in exchanged and x.dim() == 4 else x)
            for name, x in parts.items()
        }


def _wide(x: Any) -> NDArray[Any]:
    return np.array(x.detach().double().cpu().numpy())


@contextmanager
def surroundings(case: Case) -> Iterator[None]:
    """Set the threads and the mode of torch in which a run makes the calls of a case."""
    import torch

    torch.set_num_threads(case.threads)
    forward = case.pass_ == "forward"
    with torch.inference_mode(forward), torch.set_grad_enabled(not forward):
        yield


def begin(case: Case, backend: str, source: Source, rule_source: Source, family: str = NORMAL) -> Trial:
    """Prepare a backend and give it inputs of a family; call it within :func:`surroundings`.

    Raises:
        NotPrepared: it could not be prepared. Whatever its code raises.
    """
    rule = next(r for r in loaded_here(rule_source).of(Rule) if r.name == case.rule)
    parameters = draw_parameters(case, rule)
    request = Prepare(case_id(case), backend, source, rule_source, (), None)
    held, _ = prepare(request, parameter_names(parameters.rule, parameters.projections))
    stored: dict[str, Any] = dict(
        zip(ACTIVATIONS, draw_family(case, rule, family, case.seed, 0), strict=True)
    )
    if case.pass_ != "forward":
        stored[UPSTREAM] = draw_upstream(case, case.seed, 0)
    held = held.with_inputs(stored, fresh=True, delivery=family if family in DELIVERIES else "")
    tensors = to_tensors(stored, case)
    a, b, c = (tensors[name] for name in ACTIVATIONS)
    return Trial(held, (a, b, c), tensors.get(UPSTREAM))


def unsteady(cases: Sequence[tuple[str, Source]], backend: str, source: Source) -> list[tuple[str, str]]:
    """Return the answers that changed by more than rounding: the case's id, and what changed.

    This process prepares all cases, calls each twice, then calls each again in the opposite order.
    cases: ids with the source of their rule.
    """
    trials = []
    found: list[tuple[str, str]] = []
    for name, rule_source in cases:
        case = parse_case(name)
        with surroundings(case):
            try:
                trial = begin(case, backend, source, rule_source)
            except NotPrepared as refusal:
                if MEANING[refusal.status].declined:
                    continue
                raise
            first = trial.call()
            found += _compared(case, TWICE, first, trial.call())
        trials.append((case, trial, first))
    for case, trial, first in reversed(trials):
        with surroundings(case):
            found += _compared(case, AFTER, first, trial.call())
    return found


def _compared(case: Case, what: str, before: Parts, after: Parts) -> list[tuple[str, str]]:
    for part, old in before.items():
        unit = EPS[case.dtype] * float(np.abs(old).max())
        # Where NaN appears or disappears the difference is NaN, which no rounding explains.
        if not np.allclose(old, after[part], rtol=0, atol=ROUNDING * unit, equal_nan=True):
            where = "" if part == "out" else f" in the gradient of {part}"
            return [(case_id(case), f"{what}{where}")]
    return []
