"""Tokens of a user, or q, k and v: from arrays, and from files (CSV, JSON or NumPy)."""

from __future__ import annotations

import csv
import json
import re
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnbench.types.errors import BadFile, BadInput
from attnbench.types.words import clean, count_of, unknown_name
from attnbench.worked.steps import Question

if TYPE_CHECKING:
    from attnbench.types.rule import Array

MOST_TOKENS, MOST_FEATURES = 256, 1024
LARGEST = 1e100
"""The largest magnitude of a number: products of two, summed over all features, stay finite."""
KINDS = (".csv", ".json", ".npy", ".npz")
_NAMES, _LABELS = ("tokens", "q", "k", "v"), "labels"
_FORMS = "tokens, or q, k and v, each a list of rows of numbers"


@dataclass(frozen=True)
class _Tokens:
    """The content of a file: tokens, or q, k and v; labels; names of other content."""

    arrays: dict[str, Array]
    labels: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


def question_of(
    tokens: Array,
    *,
    labels: tuple[str, ...] = (),
    heads: int = 1,
    matrices: Mapping[str, Array] | None = None,
    seed: int = 0,
) -> Question:
    """Make self-attention inputs of tokens (L, E): q = X W_q and so on, or X itself without matrices.

    heads: the number of equal parts of q, k and v. labels: one for each token; x1, x2, ... by default.

    Raises:
        BadInput: something is not a number, there are too many numbers, or sizes do not fit.
    """
    tokens = checked(tokens, "the tokens")
    names = labels or tuple(f"x{i}" for i in range(1, len(tokens) + 1))
    if len(names) != len(tokens):
        raise BadInput(
            f"{count_of(len(names), 'label')} for {count_of(len(tokens), 'token')}: give one for each"
        )
    made = {name: tokens @ matrix for name, matrix in (matrices or {}).items()}
    q, k, v = (cut(made.get(name, tokens), heads) for name in ("W_q", "W_k", "W_v"))
    return Question(q, k, v, names, names, tokens=tokens, matrices=dict(matrices or {}), seed=seed)


def cut(rows: Array, heads: int) -> Array:
    """Cut (L, heads * D) to (heads, L, D); raises :class:`BadInput` where the width is not a multiple of
    heads."""
    width = rows.shape[1]
    if heads < 1 or width % heads:
        raise BadInput(f"{width} features can't be cut into {heads} heads of equal width")
    return np.ascontiguousarray(rows.reshape(len(rows), heads, width // heads).transpose(1, 0, 2))


def checked(array: Array, what: str) -> Array:
    """Return a small matrix of finite numbers in float64; raises :class:`BadInput` for anything else."""
    array = np.asarray(array)
    if array.dtype.kind not in "fiub":
        raise BadInput(f"{what} have the dtype {array.dtype}: rows of numbers are needed")
    if array.ndim != 2 or 0 in array.shape:
        raise BadInput(f"{what} have shape {array.shape}: (tokens, features) is needed, at least one of each")
    if array.shape[0] > MOST_TOKENS or array.shape[1] > MOST_FEATURES:
        raise BadInput(
            f"{what} have shape {array.shape}: at most {MOST_TOKENS} tokens of {MOST_FEATURES} "
            "features can be explained; use attnbench run for larger inputs"
        )
    array = array.astype(np.float64)
    odd = np.argwhere(~(np.abs(array) <= LARGEST))
    if len(odd):
        row, column = odd[0]
        raise BadInput(
            f"{what} have {array[row, column]:g} in row {row + 1}, column {column + 1}: "
            f"finite numbers within ±{LARGEST:g} are needed"
        )
    return array


def random_tokens(count: int, features: int, seed: int) -> Array:
    """Draw tokens with independent standard normal features, for labels without numbers."""
    return np.random.default_rng(seed).standard_normal((count, features))


def read_question(path: Path, *, labels: tuple[str, ...] = (), heads: int = 1, seed: int = 0) -> Question:
    """Read inputs from a file. labels: override those of the file.

    ``.csv``: a row for each token, with a label first unless it is a number; a first line of names is
    skipped. ``.json``: a list of rows, or an object with ``tokens``, or with ``q``, ``k`` and ``v``, and
    optionally ``labels``. ``.npy``: tokens. ``.npz``: arrays of those names. Other endings are refused.

    Raises:
        BadFile, BadInput: it can't be read, or has another content.
    """
    ending = path.suffix.lower()
    if ending not in KINDS:
        raise BadInput(f"{str(path)!r}: a file that ends in {', '.join(KINDS)} is needed")
    try:
        read = {".csv": _csv, ".json": _json, ".npy": _numpy, ".npz": _numpy}[ending](path)
    except OSError as failure:
        raise BadFile(f"{str(path)!r}: {failure.strerror or failure}") from None
    except UnicodeDecodeError:
        raise BadFile(f"{str(path)!r} isn't text in UTF-8: save it as such") from None
    except RecursionError:
        raise BadFile(f"{str(path)!r} is nested too deep: {_FORMS}, are needed") from None
    except (ValueError, TypeError, OverflowError, csv.Error) as failure:
        raise BadFile(f"{str(path)!r} can't be read as {ending[1:]}: {failure}") from None
    if read.arrays and read.others:
        known = (*_NAMES, _LABELS)
        unknown = unknown_name("part", read.others[0], known)
        raise BadInput(f"{str(path)!r}: {unknown}" + (" --mask masks." if "mask" in read.others[0] else ""))
    labels = labels or read.labels
    missing = [name for name in ("q", "k", "v") if name not in read.arrays]
    if "tokens" in read.arrays and len(missing) == 3:
        tokens = checked(read.arrays["tokens"], f"the tokens of {str(path)!r}")
        return question_of(tokens, labels=labels, heads=heads, seed=seed)
    if "tokens" in read.arrays or missing:
        there = " and ".join(map(repr, (*read.arrays, *read.others))) or "nothing"
        raise BadInput(f"{str(path)!r} has {there}: {_FORMS}, are needed")
    q, k, v = (cut(checked(read.arrays[name], f"{name} of {str(path)!r}"), heads) for name in "qkv")
    if q.shape[2] != k.shape[2] or k.shape[1] not in (v.shape[1], q.shape[1]):
        raise BadInput(
            f"{str(path)!r}: q {read.arrays['q'].shape}, k {read.arrays['k'].shape} and v "
            f"{read.arrays['v'].shape} do not fit: (Lq, D), (Lk, D) and (Lk, Dv) are needed"
        )
    queries = labels if len(labels) == q.shape[1] else tuple(f"q{i}" for i in range(1, q.shape[1] + 1))
    keys = labels if len(labels) == v.shape[1] else tuple(f"k{i}" for i in range(1, v.shape[1] + 1))
    if labels and labels not in (queries, keys):
        raise BadInput(
            f"{count_of(len(labels), 'label')} for {q.shape[1]} queries and {v.shape[1]} keys: "
            "give one for each"
        )
    return Question(q, k, v, queries, keys, seed=seed)


def _csv(path: Path) -> _Tokens:
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = [row for row in csv.reader(file) if any(cell.strip() for cell in row)]
    if not rows:
        raise ValueError("it has no rows")
    if max(map(len, rows)) == 1 and not _is_number(rows[-1][0]) and re.search(r"[;\t ]", rows[-1][0].strip()):
        raise ValueError(f"{clean(rows[-1][0])[:40]!r} has no commas: put one between two numbers")
    # A first line without any number has the names of the columns.
    if len(rows) > 1 and not any(_is_number(cell) for cell in rows[0]):
        rows = rows[1:]
    words = [row[0] for row in rows if not _is_number(row[0])]
    if 0 < len(words) < len(rows):
        number = next(row[0] for row in rows if _is_number(row[0]))
        raise ValueError(
            f"its first column has words ({clean(words[0])[:40]!r}) and numbers ({number!r}): "
            "make it all labels or all numbers"
        )
    numbers = [row[1:] for row in rows] if words else rows
    if not any(numbers):
        raise ValueError("it has no numbers")
    return _Tokens({"tokens": _rows(numbers)}, tuple(row[0].strip() for row in rows) if words else ())


def _is_number(cell: Any) -> bool:
    try:
        float(cell)
    except (ValueError, TypeError):
        return False
    return True


def _json(path: Path) -> _Tokens:
    content: Any = json.loads(path.read_text(encoding="utf-8-sig"))
    if isinstance(content, list):
        return _Tokens({"tokens": _rows(content)})
    if not isinstance(content, dict):
        raise ValueError(f"it is {clean(content)[:40]}, and should be {_FORMS}")
    labels = content.get(_LABELS, [])
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise ValueError("its labels are not a list of words")
    return _Tokens(
        {name: _rows(content[name]) for name in _NAMES if name in content},
        tuple(labels),
        tuple(clean(name) for name in content if name not in (*_NAMES, _LABELS)),
    )


def _numpy(path: Path) -> _Tokens:
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return _Tokens({"tokens": loaded})
            arrays = {name: loaded[name] for name in _NAMES if name in loaded.files}
            labels = loaded[_LABELS].ravel() if _LABELS in loaded.files else np.array([], "U")
            others = tuple(clean(name) for name in loaded.files if name not in (*_NAMES, _LABELS))
    except (ValueError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error):
        # NumPy's own message advises to allow pickles.
        raise ValueError("it is not a file of np.save or np.savez") from None
    if labels.dtype.kind != "U":
        raise ValueError(f"its labels are {labels.dtype}, and should be words")
    return _Tokens(arrays, tuple(map(str, labels)), others)


def _rows(rows: Any) -> Array:
    """Return rows of one length as an array; raises ValueError that names the first row unlike row 1."""
    if not isinstance(rows, list):
        raise ValueError(f"{clean(rows)[:40]} is not a list of rows of numbers")
    for at, row in enumerate(rows, 1):
        if not isinstance(row, list):
            raise ValueError(f"row {at} is {clean(row)[:40]}, and should be a list of numbers")
        if len(row) != len(rows[0]):
            raise ValueError(
                f"row 1 has {count_of(len(rows[0]), 'number')}, row {at} has {len(row)}: "
                "all rows need the same length"
            )
        for cell in row:
            if not _is_number(cell):
                raise ValueError(f"row {at} has {clean(cell)[:40]!r} where a number should be")
    return np.array(rows, dtype=np.float64)
