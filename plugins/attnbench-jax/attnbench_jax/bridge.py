"""Between torch and JAX: the same memory seen from both, and gradients of one as autograd of the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from attnbench_jax.process import configure

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.case import Case

    Arrays = Callable[..., Any]
    Tensors = Callable[..., Tensor]


def to_jax(x: Tensor) -> Any:
    """Return the tensor's memory as a JAX array of one axis; a copy where it is not contiguous.

    Of more axes JAX could see another order: those of length 1 may have any stride, and old versions of torch
    say that it is 1.
    """
    import jax

    return jax.dlpack.from_dlpack(x.detach().contiguous().view(-1))


def to_torch(x: Any) -> Tensor:
    """Wait for the array, then return its memory as a tensor."""
    import torch

    return torch.from_dlpack(x.block_until_ready())


def compiled(function: Arrays, examples: Sequence[Tensor], case: Case) -> Tensors:
    """``function`` of arrays, compiled for tensors like ``examples``, as a function of tensors.

    In the passes ``backward`` and ``both`` its output has a graph that reaches all tensors that require
    gradients: the backward pass is JAX's own, which computes the forward pass once more.
    """
    configure()
    import jax

    shapes = [jax.ShapeDtypeStruct(x.shape, str(x.dtype).removeprefix("torch.")) for x in examples]
    flat = [jax.ShapeDtypeStruct((x.size,), x.dtype) for x in shapes]

    def of_flat(*arrays: Any) -> Any:
        return function(*_shaped(arrays, shapes))

    forward = jax.jit(of_flat).lower(*flat).compile()

    def call(*tensors: Tensor) -> Tensor:
        return to_torch(forward(*map(to_jax, tensors)))

    if case.pass_ == "forward":
        return call
    wanted = tuple(at for at, x in enumerate(examples) if x.requires_grad)
    backward = _gradients(function, shapes, wanted).compile()
    return _with_graph(call, backward, wanted)


def _shaped(arrays: Sequence[Any], shapes: Sequence[Any]) -> list[Any]:
    """Return arrays of one axis with their shapes; inside a compiled function nothing is copied for it."""
    return [array.reshape(one.shape) for array, one in zip(arrays, shapes, strict=True)]


def _gradients(function: Arrays, shapes: Sequence[Any], wanted: Sequence[int]) -> Any:
    """Lower the gradients of the wanted arrays, as a function of the upstream gradient and all arrays."""
    import jax

    shape_of_output = jax.eval_shape(function, *shapes)

    def gradients(*flat: Any) -> tuple[Any, ...]:
        upstream, *arrays = _shaped(flat, [shape_of_output, *shapes])

        def of_wanted(*chosen: Any) -> Any:
            every = list(arrays)
            for at, array in zip(wanted, chosen, strict=True):
                every[at] = array
            return function(*every)

        _, pull_back = jax.vjp(of_wanted, *(arrays[at] for at in wanted))
        result: tuple[Any, ...] = pull_back(upstream)
        return result

    flat = [jax.ShapeDtypeStruct((one.size,), one.dtype) for one in (shape_of_output, *shapes)]
    return jax.jit(gradients).lower(*flat)


def _with_graph(call: Tensors, backward: Arrays, wanted: Sequence[int]) -> Tensors:
    import torch

    class ThroughJax(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *tensors: Tensor) -> Tensor:
            ctx.save_for_backward(*tensors)
            return call(*tensors)

        @staticmethod
        def backward(ctx: Any, *upstreams: Tensor) -> tuple[Tensor | None, ...]:
            (upstream,) = upstreams
            found = backward(to_jax(upstream), *map(to_jax, ctx.saved_tensors))
            each: list[Tensor | None] = [None] * len(ctx.saved_tensors)
            for at, gradient in zip(wanted, found, strict=True):
                each[at] = to_torch(gradient)
            return tuple(each)

    def with_graph(*tensors: Tensor) -> Tensor:
        out: Tensor = ThroughJax.apply(*tensors)
        return out

    return with_graph
