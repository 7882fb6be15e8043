"""What a worker holds, in this process: layouts, sharing, parameters, and outputs as they are written."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest
import torch
from asked import BUILT_IN_BACKENDS, BUILT_IN_RULES, RULES, attend
from hypothesis import given
from hypothesis import strategies as st

from attnbench.cases.ids import parse_case
from attnbench.inputs.draw import draw_activations, draw_parameters, store
from attnbench.ipc import messages as m
from attnbench.ipc.names import ACTIVATIONS, parameter_names
from attnbench.ipc.shared_memory import anonymous_file, unpack
from attnbench.types.backend import Layout
from attnbench.types.case import DTYPES, output_shape
from attnbench.worker.answers import written
from attnbench.worker.outputs import WrongOutput, in_layout, stored_output, to_tensor
from attnbench.worker.prepared import PreparedBackend, prepare

CASE = parse_case("attention/dot/B2-H3-Lq4-Lk5-D6-Dv7/none/float32")
LAYER = parse_case("multihead/dot/B2-H3-L4-D6-E7/none/float32")


def held(text: str, backend: str | None = "eager") -> PreparedBackend:
    case = parse_case(text)
    drawn = draw_parameters(case, RULES[case.rule])
    source = None if backend is None else BUILT_IN_BACKENDS
    request = m.Prepare(text, backend or "", source, BUILT_IN_RULES, (), None)
    made, ns = prepare(request, parameter_names(drawn.rule, drawn.projections))
    assert ns > 0
    return made


@pytest.mark.parametrize("backend", ["eager", "numpy", None])
def test_a_held_backend_computes_its_case(backend: str | None) -> None:
    """None is the plain reference, which no plugin brings."""
    worker = held("attention/scaled_dot/B2-H4-Hkv2-Lq3-Lk5-D4-Dv6/none/float64", backend)
    arrays = draw_activations(worker.case, worker.rule, 3, 0)
    ready = worker.with_inputs(dict(zip(ACTIVATIONS, arrays, strict=True)), fresh=True)
    assert worker.inputs is None
    assert ready.inputs is not None
    np.testing.assert_allclose(ready.call(*ready.inputs).numpy(), attend(*arrays, scale=0.5), rtol=1e-12)


def test_the_rules_parameters_are_not_the_projections() -> None:
    """Both may have a parameter of one name; each goes to its own."""
    rule, projections = {"w_q": np.zeros(1)}, {"w_q": np.ones(2)}
    named = parameter_names(rule, projections)
    assert {name: array.size for name, array in named.items()} == {"rule.w_q": 1, "w_q": 2}


@given(
    st.sampled_from(DTYPES),
    st.sampled_from(["BHLD", "BLHD"]),
    st.tuples(*[st.integers(1, 4)] * 4),
    st.integers(0, 2**32 - 1),
)
def test_writing_an_output_undoes_the_layout_and_keeps_the_bits(
    dtype: str, layout: Layout, sizes: tuple[int, int, int, int], seed: int
) -> None:
    B, H, L, D = sizes
    case = parse_case(f"attention/dot/B{B}-H{H}-L{L}-D{D}/none/{dtype}")
    stored = store(np.random.default_rng(seed).standard_normal(sizes), case.dtype)
    tensor = in_layout(to_tensor(stored, case), layout)
    assert tuple(tensor.shape) == ((B, L, H, D) if layout == "BLHD" else sizes)
    assert tensor.is_contiguous()
    data = stored_output(tensor, case, output_shape(case), layout)
    fd = anonymous_file()
    try:
        specs, end = written(fd, 0, {"out": data}, dtype)
        assert unpack(fd, specs)["out"].tobytes() == stored.tobytes()
    finally:
        os.close(fd)
    assert specs == (m.ArraySpec("out", dtype, sizes, 0),)
    assert stored.nbytes <= end < stored.nbytes + 64
    assert end % 64 == 0


def test_a_tensor_is_a_copy_of_what_was_stored() -> None:
    stored = np.zeros((2, 3), np.float32)
    to_tensor(stored, CASE).fill_(1)
    assert not stored.any()


def test_an_output_that_is_a_view_is_written_in_its_own_order() -> None:
    for made in (
        torch.arange(2.0 * 3 * 4 * 7).view(2, 4, 3, 7).transpose(1, 2),
        torch.arange(2.0 * 3 * 4 * 14).view(2, 3, 4, 14)[..., ::2],
        torch.ones(2, 3, 4, 7, requires_grad=True) * 2,
    ):
        assert np.array_equal(stored_output(made, CASE, output_shape(CASE), "BHLD"), made.detach().numpy())


@pytest.mark.parametrize(
    ("make", "layout", "words"),
    [
        (lambda x: None, "BHLD", "the output is a NoneType, not a torch.Tensor"),
        (lambda x: (x, x), "BHLD", "the output is a tuple, not a torch.Tensor"),
        (lambda x: x.numpy(), "BHLD", "the output is a ndarray, not a torch.Tensor"),
        (lambda x: x.swapaxes(1, 2), "BHLD", "has shape (2, 4, 3, 7); (2, 3, 4, 7) is asked for"),
        (lambda x: x, "BLHD", "has shape (2, 3, 4, 7); (2, 4, 3, 7) is asked for"),
        (lambda x: x[:1], "BHLD", "has shape (1, 3, 4, 7); (2, 3, 4, 7) is asked for"),
        (lambda x: x.sum(), "BHLD", "has shape (); (2, 3, 4, 7) is asked for"),
        (lambda x: x.bfloat16(), "BHLD", "has dtype bfloat16; float32 is asked for"),
        (lambda x: x.to(torch.complex64), "BHLD", "has dtype complex64; float32 is asked for"),
        (lambda x: x.to("meta"), "BHLD", "is on meta; cpu is asked for"),
    ],
)
def test_what_is_no_output_is_said(
    make: Callable[[torch.Tensor], object], layout: Layout, words: str
) -> None:
    with pytest.raises(WrongOutput) as wrong:
        stored_output(make(torch.zeros(2, 3, 4, 7)), CASE, output_shape(CASE), layout)
    assert words in str(wrong.value)


def test_a_layers_output_has_no_heads_to_exchange() -> None:
    x = torch.arange(2.0 * 4 * 7).view(2, 4, 7)
    assert in_layout(x, "BLHD") is x
    assert np.array_equal(stored_output(x, LAYER, output_shape(LAYER), "BLHD"), x.numpy())
