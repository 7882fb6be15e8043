"""The operations of one call: those of torch that compute, and on a CUDA device the kernels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from attnbench.types.device import DEVICES
from attnbench.types.words import clean, one_line

NOTHING = "no torch operation: computes elsewhere"
"""Stands for a call without any operation of torch that computes."""
COMPILED = "compiled code"
"""Stands for what torch.compile generated: on a CPU its kernels have no names."""
KERNEL = "cuda:"
"""The prefix of the name of a kernel of the device."""
MOST_NAMES, LONGEST_NAME = 64, 100

# They compute nothing: other shapes of the same memory, memory without values, queries.
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
# They have no kernel of their own: the operations that they call stand for them.
_WRAPPERS = frozenset(
    (
        "bilinear", "clone", "concat", "dropout", "einsum", "full", "full_like", "inner", "linear",
        "log_softmax", "matmul", "new_full", "new_ones", "new_zeros", "ones", "ones_like", "outer",
        "scaled_dot_product_attention", "softmax", "stack", "tensordot", "zeros", "zeros_like",
    )
)  # fmt: skip
# Inside another operation they are left out.
_PLUMBING = frozenset(("copy_", "fill_", "zero_", "clone", "full", "zeros", "ones"))
_OPERATION = re.compile(r"\w+::\w+")
_REGION = "Torch-Compiled Region"


def what_ran(call: Callable[[], object], device: str) -> tuple[tuple[str, ...], str]:
    """Return the operations of one call, names with counts (``bmm x2``), in order of first appearance.

    The second value says which names are unknown and why, or "". The trace has the operations of the calling
    thread, and of those that torch starts for a backward pass. On a CUDA device a second call gives the names
    of kernels.

    Raises:
        Exception: whatever the call raises.
    """
    ran, problem = recorded(call), ""
    if not DEVICES[device].on_host:
        try:
            ran += [KERNEL + kernel_name(name) for name in kernels(call)]
        except Exception as failure:
            problem = f"the names of kernels are not known: {one_line(failure)}"
    return signature(ran), problem


def recorded(call: Callable[[], object]) -> list[str]:
    """Return the operations of one call that compute, by torch's older recorder.

    It starts no thread, writes nothing and takes 1 ms. Its successor takes 1.5 s at first and leaves a thread
    behind. A dispatch mode makes torch.compile refuse its own code, and sees nothing inside of
    scaled_dot_product_attention while no graph is built.
    """
    from torch._C._autograd import _disable_profiler_legacy, _enable_profiler_legacy
    from torch._C._profiler import ProfilerConfig, ProfilerState, _ExperimentalConfig

    config = ProfilerConfig(ProfilerState.CPU, False, False, False, False, False, _ExperimentalConfig())
    _enable_profiler_legacy(config)
    try:
        call()
    finally:
        threads = _disable_profiler_legacy()
    return [name for events in threads for name in _shown((str(e.kind()), e.name()) for e in events)]


def _shown(events: Iterable[tuple[str, str]]) -> list[str]:
    """Return the names of the operations that compute, in the order in which they began (``push``).

    Views are left out. A wrapper stands only for itself if nothing that it calls is shown.
    """
    names: list[str] = []
    # For each operation under way: the shown one that it is part of, its name if a wrapper, names before it.
    running: list[tuple[str, str, int]] = []
    for kind, full_name in events:
        if kind == "push":
            within = running[-1][0] if running else ""
            name = full_name.removeprefix("aten::")
            is_operation = _OPERATION.fullmatch(full_name) and not full_name.startswith("profiler::")
            if full_name.startswith(_REGION):
                names.append(COMPILED)
                running.append(("", "", 0))
            elif not is_operation or name in _VIEWS or name == within or (within and name in _PLUMBING):
                running.append((within, "", 0))
            elif name in _WRAPPERS:
                running.append((within, name, len(names)))
            else:
                names.append(name)
                running.append((name, "", 0))
        elif kind == "pop" and running:
            _, wrapper, before = running.pop()
            if wrapper and len(names) == before:
                names.append(wrapper)
    return names


def signature(names: Sequence[str]) -> tuple[str, ...]:
    """Return each name once with its count; :data:`NOTHING` for no name, and a bounded number of names."""
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
    """Return the names of the kernels that one call ran on a CUDA device, as the compiler wrote them."""
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
    """Return the name of a kernel without its type, template arguments and parameters."""
    text = text.replace("(anonymous namespace)::", "")
    bare, depth = "", 0
    for letter in text:
        depth += (letter == "<") - (letter == ">")
        if depth == 0 and letter != ">":
            bare += letter
    bare = bare.partition("(")[0].strip()
    # A copy's name has blanks of its own; the type of a function stands before its name.
    return bare if bare.startswith("Mem") else bare.rpartition(" ")[2] or clean(text)
