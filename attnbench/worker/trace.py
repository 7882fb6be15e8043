"""The operations of one call: those of torch that compute, and on a CUDA device the kernels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from attnbench.types.words import clean, one_line

NOTHING = "no torch operation: computes elsewhere"
"""Stands for what ran where a call has none of torch's operations that compute."""
COMPILED = "compiled code"
"""Stands for what torch.compile generated: on a CPU its kernels have no names that could be told."""
KERNEL = "cuda:"
"""Before the name of a kernel of the device."""
MOST_NAMES, LONGEST_NAME = 64, 100

# They move no numbers: other shapes of the same memory, memory without values, questions.
_VIEWS = frozenset(
    (
        "adjoint", "alias", "as_strided", "broadcast_tensors", "broadcast_to", "chunk", "contiguous",
        "data", "detach", "detach_", "diagonal", "empty", "empty_like", "empty_strided", "expand",
        "expand_as", "flatten", "H", "is_nonzero", "item", "lift_fresh", "_local_scalar_dense", "mH",
        "moveaxis", "movedim", "mT", "narrow", "new_empty", "new_empty_strided", "numpy_T", "permute",
        "ravel", "reshape", "_reshape_alias", "reshape_as", "resize_", "resolve_conj", "resolve_neg",
        "result_type", "scalar_tensor", "select", "select_symint", "set_", "slice", "split",
        "split_with_sizes", "squeeze", "squeeze_", "stride", "swapaxes", "swapdims", "T", "t",
        "tensor_split", "to", "_to_copy", "transpose", "transpose_", "type_as", "unbind", "unflatten",
        "unfold", "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes", "_unsafe_view",
        "unsqueeze", "unsqueeze_", "view", "view_as",
    )
)  # fmt: skip
# They have no kernel of their own: what they call stands for them.
_WRAPPERS = frozenset(
    (
        "bilinear", "clone", "concat", "dropout", "einsum", "full", "full_like", "inner", "linear",
        "log_softmax", "matmul", "new_full", "new_ones", "new_zeros", "ones", "ones_like", "outer",
        "scaled_dot_product_attention", "softmax", "stack", "tensordot", "zeros", "zeros_like",
    )
)  # fmt: skip
# Inside another operation they are its own affair.
_PLUMBING = frozenset(("copy_", "fill_", "zero_", "clone", "full", "zeros", "ones"))
_OPERATION = re.compile(r"\w+::\w+")
_REGION = "Torch-Compiled Region"


@dataclass(frozen=True)
class Op:
    """An operation as torch names it, and those that it called, in order."""

    name: str
    inside: list[Op] = field(default_factory=list)


def what_ran(call: Callable[[], object], device: str) -> tuple[tuple[str, ...], str]:
    """Return the operations of one call, names with counts (``bmm x2``), in order of first appearance.

    The second value says which names are unknown and why, or "". The trace has the operations of the calling
    thread, and of those that torch starts for a backward pass. On a CUDA device the call is made a second
    time, for the names of kernels.

    Raises:
        Exception: whatever the call raises.
    """
    ran, problem = shown(recorded(call)), ""
    if device == "cuda":
        try:
            ran += [KERNEL + kernel_name(name) for name in kernels(call)]
        except Exception as failure:
            problem = f"the names of kernels are not known: {one_line(failure)}"
    return signature(ran), problem


def recorded(call: Callable[[], object]) -> list[Op]:
    """The operations of one call, as torch calls them.

    By torch's older recorder, which starts no thread, writes nothing and takes 1 ms. Its successor takes
    1.5 s at first and leaves a thread behind; a dispatch mode makes torch.compile refuse its own code, and
    sees nothing beneath scaled_dot_product_attention while no graph is built.
    """
    from torch._C._autograd import _disable_profiler_legacy, _enable_profiler_legacy
    from torch._C._profiler import ProfilerConfig, ProfilerState, _ExperimentalConfig

    config = ProfilerConfig(ProfilerState.CPU, False, False, False, False, False, _ExperimentalConfig())
    _enable_profiler_legacy(config)
    try:
        call()
    finally:
        threads = _disable_profiler_legacy()
    return [op for events in threads for op in nested((str(event.kind()), event.name()) for event in events)]


def nested(events: Iterable[tuple[str, str]]) -> list[Op]:
    """Operations from when they began (``push``) and ended (``pop``); other events are none."""
    outermost = Op("")
    open_ops = [outermost]
    for kind, name in events:
        if kind == "push":
            op = Op(name)
            open_ops[-1].inside.append(op)
            open_ops.append(op)
        elif kind == "pop" and len(open_ops) > 1:
            open_ops.pop()
    return outermost.inside


def shown(ops: Sequence[Op], within: str = "") -> list[str]:
    """Names of what computes, in order: no views, and what an operation calls instead of a mere wrapper.

    within: the operation that is shown and that called these.
    """
    names: list[str] = []
    for op in ops:
        if op.name.startswith(_REGION):
            names += [COMPILED, *shown(op.inside)]
            continue
        name = op.name.removeprefix("aten::")
        is_operation = _OPERATION.fullmatch(op.name) and not op.name.startswith("profiler::")
        hidden = name in _VIEWS or name == within or (within and name in _PLUMBING)
        if not is_operation or hidden:
            names += shown(op.inside, within)
        elif name in _WRAPPERS:
            names += shown(op.inside, within) or [name]
        else:
            names += [name, *shown(op.inside, name)]
    return names


def signature(names: Sequence[str]) -> tuple[str, ...]:
    """Each name once, with how often; in words where there is none, and bounded."""
    if not names:
        return (NOTHING,)
    counts = Counter(_short(name) for name in names)
    texts = [name if count == 1 else f"{name} x{count}" for name, count in counts.items()]
    more = len(texts) - MOST_NAMES
    return tuple(texts) if more <= 0 else (*texts[:MOST_NAMES], f"and {more} more")


def _short(name: str) -> str:
    name = clean(name)
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def kernels(call: Callable[[], object]) -> list[str]:
    """The names of the kernels that one call ran on a CUDA device, as the compiler wrote them."""
    import torch
    from torch._C._autograd import DeviceType, _disable_profiler, _enable_profiler, _prepare_profiler
    from torch._C._profiler import ProfilerActivity, ProfilerConfig, ProfilerState, _ExperimentalConfig

    # Without the context manager of torch.profiler, which imports for 1.5 s.
    config = ProfilerConfig(ProfilerState.KINETO, False, False, False, False, False, _ExperimentalConfig())
    both = {ProfilerActivity.CPU, ProfilerActivity.CUDA}
    _prepare_profiler(config, both)
    _enable_profiler(config, both)
    try:
        call()
    finally:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        result = _disable_profiler()
    events = [event for event in result.events() if event.device_type() == DeviceType.CUDA]
    return [event.name() for event in sorted(events, key=lambda event: event.start_ns())]


def kernel_name(text: str) -> str:
    """The name of a kernel without its type, prepared worker arguments and parameters."""
    text = text.replace("(anonymous namespace)::", "")
    bare, depth = "", 0
    for letter in text:
        depth += (letter == "<") - (letter == ">")
        if depth == 0 and letter != ">":
            bare += letter
    bare = bare.partition("(")[0].strip()
    # A copy's name has blanks of its own; of a function the type stands before the name.
    return bare if bare.startswith("Mem") else bare.rpartition(" ")[2] or clean(text)
