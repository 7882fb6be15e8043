from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import pytest
import torch
from solved import solved

pytest.importorskip("jax", reason="JAX is not installed")

from attnbench_jax import JAX_DOT_PRODUCT_ATTENTION, JAX_TILED, attnbench_backends
from attnbench_jax.bridge import compiled, to_jax, to_torch
from attnbench_jax.process import _environment_as_it_was, configure


def test_the_environment_is_as_it_was_however_an_import_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SET_BY_AN_IMPORT", raising=False)
    for failure in (None, ImportError("half installed")):
        with contextlib.suppress(ImportError), _environment_as_it_was():
            os.environ["SET_BY_AN_IMPORT"] = "1"
            if failure is not None:
                raise failure
        assert "SET_BY_AN_IMPORT" not in os.environ


def test_what_jax_is_told_of_the_process() -> None:
    configure()
    import jax

    assert jax.config.jax_enable_x64
    # Else a call returns before it has computed, on a thread that no run pins.
    assert jax.config.values["jax_cpu_enable_async_dispatch"] is False


def test_memory_is_shared_and_not_copied() -> None:
    configure()
    x = torch.arange(64, dtype=torch.float64).view(8, 8)
    array = to_jax(x)
    assert array.unsafe_buffer_pointer() == x.data_ptr()
    assert str(array.dtype) == "float64"
    back = to_torch(array + 1)
    assert back.dtype == torch.float64
    assert torch.equal(back, x.view(-1) + 1)


def test_views_are_copied_in_their_order() -> None:
    configure()
    x = torch.arange(24.0).view(2, 3, 4).transpose(0, 2)
    assert torch.equal(to_torch(to_jax(x) * 1), x.flatten())


def test_axes_of_one_element_keep_their_place() -> None:
    case = solved("attention/scaled_dot/H1-L2-D2").case
    x = torch.arange(24.0).view(1, 3, 2, 4)
    assert torch.equal(compiled(lambda one: one * 2, (x,), case)(x), x * 2)
    y = torch.arange(6.0).view(3, 2).t()[None]  # contiguous, though its first stride says nothing
    assert torch.equal(compiled(lambda one: one * 2, (y,), case)(y), y * 2)


def test_an_input_that_wants_no_gradient_gets_none() -> None:
    case = solved("attention/scaled_dot/H1-L2-D2/both").case
    a, b = torch.ones(3, requires_grad=True), torch.full((3,), 2.0)
    product = compiled(lambda x, y: x * y, (a, b), case)(a, b)
    product.sum().backward()
    assert torch.equal(a.grad, b)


def test_a_forward_pass_builds_no_graph() -> None:
    case = solved("attention/scaled_dot/H1-L4-D4")
    q, k, v = (x.transpose(1, 2).contiguous() for x in case.inputs)
    assert not JAX_TILED.prepare(case.setup)(q, k, v).requires_grad


def test_what_it_brings() -> None:
    assert tuple(attnbench_backends()) == (JAX_DOT_PRODUCT_ATTENTION, JAX_TILED)
    for backend in attnbench_backends():
        assert backend.requires == ("jax", "jaxlib")
        assert not backend.forkable
        assert backend.layout == "BLHD"


def test_importing_it_imports_nothing_heavy() -> None:
    code = "import sys, attnbench_jax; print(sorted({'jax', 'torch', 'scipy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
