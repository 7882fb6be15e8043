"""Other signs of inputs between two timed calls: at any call, without a pause; all as before in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from asked import BUILT_IN_BACKENDS, OUTSPOKEN, Asked, answer, stretch

from attnbench.worker import messages as m

New = Callable[[str], Asked]

SMALL = "attention/dot/B2-H2-Lq3-Lk5-D4-Dv4/none/float32"
ROTATING = "attention/dot/B2-H8-L64-D64/none/float32/cpu/forward/rotating"
LAYER = "multihead/dot/B2-H2-L5-D4-E8/none/float32"


def kept_of(worker: Asked, draw: int, calls: int, samples: int) -> list[tuple[m.KeptOutput, np.ndarray]]:
    """What is kept of a stretch in which the inputs of another draw come."""
    stretch(worker, draw, calls, samples, warm_calls=1)
    return worker.kept()


@pytest.mark.parametrize("case", [SMALL, ROTATING])
@pytest.mark.parametrize("backend", ["eager", "heads_last"])
def test_what_is_kept_is_the_answer_to_the_inputs_that_are_named(
    template: New, case: str, backend: str
) -> None:
    """Before, after and between: and what comes after the opposite inputs is as it was."""
    worker = template(case)
    worker.prepare(backend, BUILT_IN_BACKENDS if backend == "eager" else OUTSPOKEN)
    flipped = 0
    for begins in (0, 2, 4, 6):
        worker.give(begins)
        for each, output in kept_of(worker, begins + 1, calls=3, samples=4):
            right = answer(worker, begins + each.renewed, each.flipped)
            np.testing.assert_allclose(output, right, rtol=1e-4, atol=1e-5)
            flipped += each.flipped is not None
    # Not where both were to come in the last turn, which is one stretch in sixteen.
    assert flipped >= 2


def test_any_turn_may_be_the_one(template: New) -> None:
    worker = template(SMALL)
    worker.prepare("eager", BUILT_IN_BACKENDS)
    seen: Counter[int] = Counter()
    for _ in range(60):
        worker.give(0)
        seen.update(each.turn for each, _ in kept_of(worker, 1, calls=2, samples=3) if each.flipped)
    assert set(seen) == {0, 1, 2}


@pytest.mark.parametrize(
    ("case", "flips"),
    [
        (LAYER, True),
        (f"{LAYER.replace('E8', 'E8-bias')}", False),
        (LAYER.replace("dot", "additive"), False),
        (SMALL.replace("dot", "additive"), True),
    ],
)
def test_only_where_the_opposite_gives_the_opposite(template: New, case: str, flips: bool) -> None:
    worker = template(case)
    worker.prepare("eager", BUILT_IN_BACKENDS)
    found = False
    for _ in range(6):
        worker.give(0)
        found |= any(each.flipped for each, _ in kept_of(worker, 1, calls=2, samples=3))
    assert found == flips


def test_a_sample_with_the_opposite_in_it_has_as_many_calls(template: New) -> None:
    worker = template(SMALL)
    worker.prepare("counts_calls")
    worker.give(0)
    for each, output in kept_of(worker, 1, calls=5, samples=4):
        assert set(output.ravel()) == {each.turn * (1 + 5) + 1 + each.call + 1}
