"""The beginning of recording: modules are patched as soon as a program imports them."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnbench.programs.watch import Watch

FOLDER, STEPS = "ATTNBENCH_CAPTURE", "ATTNBENCH_CAPTURE_STEPS"
"""Environment variables of a program that is captured."""

FLEX = "torch.nn.attention.flex_attention"
BY_NAME = {
    "torch.nn.attention.varlen": ("varlen_attn",),
    "flash_attn": ("flash_attn_func", "flash_attn_varlen_func", "flash_attn_with_kvcache"),
    "flash_attn_interface": ("flash_attn_func", "flash_attn_varlen_func", "flash_attn_with_kvcache"),
    "xformers.ops": ("memory_efficient_attention",),
}
"""Functions of libraries, by their modules. Calls that nothing reads are counted by their names alone."""

BATCHED = {
    "transformers.integrations.eager_paged": ("eager_paged_attention_forward",),
    "transformers.integrations.sdpa_attention": ("sdpa_attention_forward",),
}
"""Functions of transformers that get the sequences of its continuous batching one after the other."""

RECURRENCES = (
    "torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule", "chunk_kimi_delta_attention",
    "recurrent_kimi_delta_attention", "mamba2_chunk_scan", "mamba2_selective_state_update",
    "mamba2_split_conv1d_scan_combined", "mamba_selective_scan", "mamba_selective_state_update",
    "mamba_inner_fn",
)  # fmt: skip
"""Functions of the modules of transformers that have models with a state."""


def functions_in(module: str) -> tuple[str, ...]:
    """Return the names of functions to be counted that a module may have; () of most modules."""
    if module.startswith("transformers.models.") and ".modeling_" in module:
        return RECURRENCES
    return BATCHED.get(module) or BY_NAME.get(module, ())


LOST = ".lost"
"""The ending of a mark in the folder: a process whose calls are not recorded, or no longer."""
_MOST_WORDS = 200


def begin() -> None:
    """Record in this process, as its environment says. Until it imports torch, this costs nothing."""
    folder, steps = os.environ.get(FOLDER), os.environ.get(STEPS)
    with suppress(OSError):  # A user of less rights may not look.
        if folder and Path(folder).is_dir():  # Else the recording is over.
            sys.meta_path.insert(0, _Finder(Path(folder), int(steps) if steps else None))


def mark_lost(folder: Path, failure: Exception) -> None:
    """Note that recording failed in this process. The program goes on."""
    words = getattr(failure, "strerror", None) or f"{type(failure).__name__}: {failure}"
    # The text of a link takes neither room on a full disk nor a file descriptor.
    with suppress(OSError, ValueError):  # The recording is over, or no link can be made here.
        (folder / f"{os.getpid()}{LOST}").symlink_to(words[:_MOST_WORDS] or "?")


class _Finder(MetaPathFinder):
    """Finds modules as others do, with loaders that patch them in the end."""

    def __init__(self, folder: Path, steps: int | None) -> None:
        self._folder, self._steps = folder, steps
        self._finding: set[str] = set()
        self._watch: Watch | None = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec that others find for a module with attention functions."""
        if fullname in self._finding or not (fullname in ("torch", FLEX) or functions_in(fullname)):
            return None
        self._finding.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._finding.discard(fullname)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_patch(module: ModuleType) -> None:
                run(module)
                self._patch(module)

            spec.loader.exec_module = run_and_patch  # type: ignore[method-assign]
        return spec

    def _patch(self, module: ModuleType) -> None:
        """Have the calls of a module counted."""
        try:
            from attnbench.programs.watch import Watch

            if self._watch is None:
                self._watch = Watch(self._folder, self._steps)
                if hasattr(os, "register_at_fork"):  # not on Windows
                    os.register_at_fork(after_in_child=self._watch.after_fork)
            self._watch.patch(module)
        except Exception as failure:
            mark_lost(self._folder, failure)
