"""Inputs that are views, and inputs that require gradients: what a worker makes of them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from asked import BUILT_IN_BACKENDS, BUILT_IN_RULES, RULES
from hypothesis import given
from hypothesis import strategies as st

from attnbench.cases.ids import parse_case
from attnbench.inputs.draw import draw_activations, draw_parameters
from attnbench.ipc import messages as m
from attnbench.ipc.names import ACTIVATIONS, OUT, parameter_names
from attnbench.ipc.shared_memory import Stored
from attnbench.worker.answers import stored_answer
from attnbench.worker.calls import checked_call
from attnbench.worker.guards import BAND_BYTES, between_bands, check_bands
from attnbench.worker.outputs import each_has_a_place, reach_of
from attnbench.worker.prepared import NotPrepared, PreparedBackend, apart, prepare, strides_apart

SMALL = "attention/scaled_dot/B2-H4-Hkv2-Lq3-Lk5-D4-Dv6/causal/float32"
LAYER = "multihead/general/B2-H2-L4-D4-E8-bias/none/float32"

shapes = st.lists(st.integers(1, 5), min_size=3, max_size=4).map(tuple)


def held(text: str, backend: str) -> PreparedBackend:
    case = parse_case(text)
    drawn = draw_parameters(case, RULES[case.rule])
    request = m.Prepare(text, backend, BUILT_IN_BACKENDS, BUILT_IN_RULES, (), None)
    with torch.inference_mode():
        return prepare(request, parameter_names(drawn.rule, drawn.projections))[0]


def drawn(worker: PreparedBackend, index: int = 0) -> dict[str, Stored]:
    inputs = draw_activations(worker.case, worker.rule, 3, index)
    return dict(zip(ACTIVATIONS, inputs, strict=True))


def given_to(worker: PreparedBackend, delivery: str, index: int = 0, guarded: bool = True) -> PreparedBackend:
    """As the serving loop gives inputs: without graphs, unless they require gradients."""
    graphs = delivery == "graded"
    with torch.inference_mode(not graphs), torch.set_grad_enabled(graphs):
        return worker.with_inputs(drawn(worker, index), fresh=False, guarded=guarded, delivery=delivery)


def answer(worker: PreparedBackend) -> Stored:
    graphs = worker.delivery == "graded"
    with torch.inference_mode(not graphs), torch.set_grad_enabled(graphs):
        worker, output, _ = checked_call(worker)
        return np.array(stored_answer(worker, output)[OUT])


@given(shapes)
def test_a_view_apart_has_its_values_and_others_between_them(shape: tuple[int, ...]) -> None:
    values = torch.arange(1.0, 1 + np.prod(shape)).view(shape)
    strides = strides_apart(shape)
    assert each_has_a_place(shape, strides)
    view = apart(values)
    assert torch.equal(view, values)
    assert view.untyped_storage().nbytes() == 4 * reach_of(shape, strides)
    if shape[0] > 1 or shape[-2] > 1:
        assert reach_of(shape, strides) > values.numel()
    inside, buffer = between_bands(values, counted=True, strides=strides)
    assert torch.equal(inside, values)
    check_bands([buffer])
    assert int(buffer.isfinite().sum()) == values.numel(), "all the rest is NaN"
    assert buffer.numel() == 2 * BAND_BYTES // 4 + reach_of(shape, strides)


def test_heads_and_positions_are_exchanged_in_memory() -> None:
    """(B, H, L, D) as the half of a projection (B, L, 2·H·D); (B, L, E) as that of a wider one."""
    packed = torch.zeros(2, 5, 2 * 3 * 4)
    seen = packed[..., : 3 * 4].view(2, 5, 3, 4).transpose(1, 2)
    assert strides_apart((2, 3, 5, 4)) == seen.stride()
    cache = torch.zeros(2, 3, 2 * 5, 4)
    assert strides_apart((2, 5, 3, 4)) == cache[:, :, :5].transpose(1, 2).stride()
    assert strides_apart((2, 5, 8)) == torch.zeros(2, 5, 16)[..., :8].stride()


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("text", [SMALL, LAYER])
@pytest.mark.parametrize("backend", ["eager", "bmm", "per_head_loop", "numpy", "sdpa_math"])
def test_an_answer_is_the_same_however_inputs_arrive(backend: str, text: str, guarded: bool) -> None:
    worker = held(text, backend)
    plainly = answer(given_to(worker, "", guarded=guarded))
    strided = given_to(worker, "strided", guarded=guarded)
    assert not any(x.is_contiguous() for x in strided.inputs or ())
    np.testing.assert_allclose(answer(strided), plainly, rtol=1e-5, atol=1e-6)
    if backend == "numpy":
        with pytest.raises(RuntimeError, match="requires grad"):
            answer(given_to(worker, "graded"))
        return
    graded = given_to(worker, "graded", guarded=guarded)
    assert all(x.requires_grad and not x.is_inference() for x in graded.inputs or ())
    np.testing.assert_allclose(answer(graded), plainly, rtol=1e-5, atol=1e-6)


def test_one_source_that_serves_twice_stays_one() -> None:
    worker = held(LAYER, "eager")
    for delivery in ("strided", "graded"):
        a, b, c = given_to(worker, delivery).inputs or (None, 1, 2)
        assert a is b is c


def test_deliveries_never_share_memory_and_each_is_renewed_in_its_own() -> None:
    worker = held(SMALL, "eager")
    seen = []
    for delivery in ("", "strided", "graded", "", "graded", "strided"):
        worker = given_to(worker, delivery, 0)
        assert worker.delivery == delivery
        places = [x.data_ptr() for x in worker.inputs or ()]
        again = given_to(worker, delivery, 1)
        assert [x.data_ptr() for x in again.inputs or ()] == places
        assert [x.requires_grad for x in again.inputs or ()] == [delivery == "graded"] * 3
        assert torch.equal((again.inputs or ())[0].detach(), torch.from_numpy(drawn(worker, 1)["a"]))
        seen.append(worker)
    for one, other in pairwise(seen):
        assert not {x.data_ptr() for x in one.inputs or ()} & {x.data_ptr() for x in other.inputs or ()}


def test_what_was_prepared_first_is_what_goes_on_after_inputs_that_required_gradients() -> None:
    worker = held(SMALL, "eager")
    graded = given_to(given_to(worker, ""), "graded")
    assert graded.call is not worker.call
    after = given_to(graded, "")
    assert after.call is worker.call
    assert after.setup is worker.setup


def test_who_can_not_have_gradients_of_a_case_says_so() -> None:
    """torch's flash kernel for a CPU gives no gradient of a bias; without gradients it runs the case."""
    worker = held("attention/alibi/B1-H2-L4-D4/none/float32", "sdpa_flash")
    with pytest.raises(NotPrepared, match="computes no gradient of its mask") as refused:
        given_to(worker, "graded")
    assert refused.value.status == "unsupported"
