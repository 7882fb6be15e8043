from __future__ import annotations

import pytest
import torch
from jax_cases import drawn

pytest.importorskip("jax", reason="JAX is not installed")

from attnbench_jax import JAX_TILED
from attnbench_jax.bridge import compiled, to_jax, to_torch
from attnbench_jax.process import configure


def test_memory_is_shared_and_not_copied() -> None:
    configure()
    x = torch.arange(64, dtype=torch.float64).view(8, 8)
    array = to_jax(x)
    assert array.unsafe_buffer_pointer() == x.data_ptr()
    assert str(array.dtype) == "float64"
    back = to_torch(array + 1)
    assert back.dtype == torch.float64
    assert torch.equal(back, x + 1)


def test_views_are_copied_in_their_order() -> None:
    configure()
    x = torch.arange(24.0).view(2, 3, 4).transpose(0, 2)
    assert torch.equal(to_torch(to_jax(x) * 1), x)


def test_an_input_that_wants_no_gradient_gets_none() -> None:
    case = drawn("attention/scaled_dot/H1-L2-D2/both").case
    a, b = torch.ones(3, requires_grad=True), torch.full((3,), 2.0)
    product = compiled(lambda x, y: x * y, (a, b), case)(a, b)
    product.sum().backward()
    assert torch.equal(a.grad, b)


def test_a_forward_pass_builds_no_graph() -> None:
    given = drawn("attention/scaled_dot/H1-L4-D4")
    assert not given.run(JAX_TILED)["out"].requires_grad
