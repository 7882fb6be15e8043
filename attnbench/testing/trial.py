"""One backend prepared on one case in this process, to look at what it gives: nothing is judged here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnbench.cases.identity import case_id
from attnbench.inputs.draw import draw_parameters, draw_upstream
from attnbench.inputs.families import DELIVERIES, NORMAL, draw_family
from attnbench.types.case import Case
from attnbench.types.rule import Rule
from attnbench.types.source import Source
from attnbench.worker.answers import output_of
from attnbench.worker.held import Held, loaded_here, prepare
from attnbench.worker.messages import Prepare
from attnbench.worker.names import ACTIVATIONS, UPSTREAM, parameter_names
from attnbench.worker.tensors import to_tensors

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.check.gradients import Triple

Parts = dict[str, NDArray[Any]]


@dataclass
class Trial:
    """A prepared backend with inputs. inputs, upstream: the same numbers in BHLD, of its own."""

    held: Held
    inputs: Triple
    upstream: Tensor | None

    def call(self) -> Parts:
        """What a call gives, in BHLD and float64, by part. Raises whatever it raises."""
        held = self.held
        assert held.inputs is not None
        answer = held.call(*held.inputs)
        blhd = held.backend.layout == "BLHD"
        output = output_of(held, answer)
        parts = {"out": answer} if held.passed is None else dict(zip(held.passed.names, answer, strict=True))
        # A layer's inputs and outputs have no heads, so they have no order of them either.
        headed = {"out"} if output is not None else set()
        headed |= {"q", "k", "v"} if held.case.layer is None else set()
        return {
            name: _wide(x.transpose(1, 2) if blhd and name in headed and x.dim() == 4 else x)
            for name, x in parts.items()
        }


def _wide(x: Any) -> NDArray[Any]:
    return np.array(x.detach().double().cpu().numpy())


@contextmanager
def surroundings(case: Case) -> Iterator[None]:
    """torch's mode in which a case's calls are made in a run, and one thread."""
    import torch

    torch.set_num_threads(case.threads)
    forward = case.pass_ == "forward"
    with torch.inference_mode(forward), torch.set_grad_enabled(not forward):
        yield


def begin(case: Case, backend: str, source: Source, rule_source: Source, family: str = NORMAL) -> Trial:
    """Prepare a backend and give it inputs of a family; within :func:`surroundings`.

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
