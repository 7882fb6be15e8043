"""Arrays from NumPy's files, whose headers may say anything: nothing is unpickled, nothing huge is read."""

from __future__ import annotations

import math
import tokenize
import warnings
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from attnbench.types.words import clean
from attnbench.worked.tokens import MOST_FEATURES, MOST_TOKENS

if TYPE_CHECKING:
    from attnbench.types.rule import Array

NAMES = ("tokens", "q", "k", "v")
LABELS = "labels"
_WIDEST_BYTES = 16
"""Of a number; words may be as long as so many numbers as are read."""
_NO_ARCHIVE = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, RuntimeError)
_NO_HEADER = (
    ValueError, TypeError, OverflowError, SyntaxError, tokenize.TokenError, RecursionError, MemoryError,
)  # fmt: skip
"""What reading a broken one can raise: a header is a Python literal to NumPy."""


@dataclass(frozen=True)
class Tokens:
    """What a file has: tokens alone, or q, k and v; labels where it has them; names of what else it has."""

    arrays: dict[str, Array]
    labels: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


def read_npy(path: Path) -> Tokens:
    """Tokens of a ``.npy`` file.

    Raises:
        ValueError: it is no such file, is cut off, has no numbers or too many.
        OSError: it can't be opened.
    """
    with path.open("rb") as file:
        return Tokens({"tokens": _array(file)})


def read_npz(path: Path) -> Tokens:
    """Arrays of a ``.npz`` file by the names tokens, q, k and v, and labels; raises as :func:`read_npy`."""
    try:
        with zipfile.ZipFile(path) as archive:
            there = [name.removesuffix(".npy") for name in archive.namelist()]
            arrays = {}
            for name in NAMES:
                if name in there:
                    with archive.open(f"{name}.npy") as file:
                        arrays[name] = _array(file)
            labels: tuple[str, ...] = ()
            if LABELS in there:
                with archive.open(f"{LABELS}.npy") as file:
                    labels = tuple(map(str, _array(file, kinds="U", what="words").ravel()))
    except _NO_ARCHIVE as failure:
        raise ValueError(f"np.savez didn't write it ({failure})") from None
    return Tokens(arrays, labels, tuple(clean(name) for name in there if name not in (*NAMES, LABELS)))


def _array(file: IO[bytes], kinds: str = "fiub", what: str = "real numbers") -> Array:
    # NumPy takes what has another beginning for a pickle, and would advise to trust it.
    form = np.lib.format
    prefix = form.MAGIC_PREFIX
    if file.read(len(prefix)) != prefix:
        raise ValueError("np.save didn't write it")
    file.seek(0)
    version = form.read_magic(file)
    try:
        header = form.read_array_header_1_0 if version == (1, 0) else form.read_array_header_2_0
        with warnings.catch_warnings():
            # Of a header as Python 2 wrote it.
            warnings.simplefilter("ignore")
            shape, _, dtype = header(file)
    except _NO_HEADER:
        raise ValueError("its header isn't one that np.save writes") from None
    if dtype.kind not in kinds:
        raise ValueError(f"it has {dtype}, and should have {what}")
    if math.prod(shape) * max(dtype.itemsize, _WIDEST_BYTES) > MOST_TOKENS * MOST_FEATURES * _WIDEST_BYTES:
        most = f"at most {MOST_TOKENS} tokens of {MOST_FEATURES} features are read"
        raise ValueError(f"its shape is {shape}: {most}")
    file.seek(0)
    return form.read_array(file, allow_pickle=False)
