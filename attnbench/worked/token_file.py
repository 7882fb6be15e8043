"""A user's own tokens, or q, k and v, from a file: CSV, JSON or NumPy."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnbench.types.errors import BadFile, BadInput
from attnbench.worked.question import Question
from attnbench.worked.tokens import checked, cut, question_of

if TYPE_CHECKING:
    from attnbench.types.rule import Array

KINDS = (".csv", ".json", ".npy", ".npz")
_FORMS = "tokens, or q, k and v, each a list of rows of numbers"


@dataclass(frozen=True)
class Tokens:
    """What a file has: tokens alone, or q, k and v; labels where it has them."""

    arrays: dict[str, Array]
    labels: tuple[str, ...] = ()


def read_question(path: Path, *, labels: tuple[str, ...] = (), heads: int = 1, seed: int = 0) -> Question:
    """The inputs that a file has. labels: instead of the file's.

    ``.csv``: a row for each token, its label first if that is no number; a first line of names is left out.
    ``.json``: a list of rows, or an object with ``tokens``, or with ``q``, ``k`` and ``v``, maybe ``labels``.
    ``.npy``: tokens. ``.npz``: arrays of those names.

    Raises:
        BadFile, BadInput: it can't be read, or isn't such a file; in words.
    """
    ending = path.suffix.lower()
    if ending not in KINDS:
        raise BadInput(f"{str(path)!r}: a file that ends in {', '.join(KINDS)} is needed")
    try:
        read = {".csv": _csv, ".json": _json, ".npy": _numpy, ".npz": _numpy}[ending](path)
    except OSError as failure:
        raise BadFile(f"{str(path)!r}: {failure.strerror or failure}") from None
    except (ValueError, KeyError, TypeError, csv.Error, EOFError) as failure:
        raise BadFile(f"{str(path)!r} can't be read as {ending[1:]}: {failure}") from None
    labels = labels or read.labels
    if "tokens" in read.arrays:
        return question_of(read.arrays["tokens"], labels=labels, heads=heads, seed=seed)
    missing = [name for name in ("q", "k", "v") if name not in read.arrays]
    if missing:
        raise BadInput(f"{str(path)!r} has no {' and no '.join(missing)}: {_FORMS}")
    q, k, v = (cut(checked(read.arrays[name], name), heads) for name in ("q", "k", "v"))
    if q.shape[2] != k.shape[2] or k.shape[1] not in (v.shape[1], q.shape[1]):
        raise BadInput(
            f"{str(path)!r}: q {read.arrays['q'].shape}, k {read.arrays['k'].shape} and v "
            f"{read.arrays['v'].shape} don't fit: (Lq, D), (Lk, D) and (Lk, Dv) are needed"
        )
    queries = labels if len(labels) == q.shape[1] else tuple(f"q{i}" for i in range(1, q.shape[1] + 1))
    keys = labels if len(labels) == v.shape[1] else tuple(f"k{i}" for i in range(1, v.shape[1] + 1))
    if labels and labels not in (queries, keys):
        raise BadInput(
            f"{len(labels)} labels for {q.shape[1]} queries and {v.shape[1]} keys: give one for each"
        )
    return Question(q, k, v, queries, keys, seed=seed)


def _csv(path: Path) -> Tokens:
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = [row for row in csv.reader(file) if any(cell.strip() for cell in row)]
    if not rows:
        raise ValueError("it has no rows")
    # A line in which nothing is a number has the names of the columns.
    if len(rows) > 1 and not any(_is_number(cell) for cell in rows[0]):
        rows = rows[1:]
    labelled = not _is_number(rows[0][0])
    numbers = [row[1:] if labelled else row for row in rows]
    widths = {len(row) for row in numbers}
    if len(widths) > 1:
        raise ValueError(f"its rows have {', '.join(map(str, sorted(widths)))} numbers")
    values = np.array([[float(cell) for cell in row] for row in numbers])
    return Tokens({"tokens": values}, tuple(row[0].strip() for row in rows) if labelled else ())


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _json(path: Path) -> Tokens:
    said: Any = json.loads(path.read_text(encoding="utf-8"))
    if isinstance(said, list):
        return Tokens({"tokens": _rows(said)})
    if not isinstance(said, dict):
        raise ValueError(f"it has {type(said).__name__}, and should have {_FORMS}")
    labels = said.get("labels", [])
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise ValueError("its labels are no list of words")
    return Tokens({n: _rows(said[n]) for n in ("tokens", "q", "k", "v") if n in said}, tuple(labels))


def _rows(rows: Any) -> Array:
    return np.array(rows, dtype=np.float64)


def _numpy(path: Path) -> Tokens:
    read = np.load(path, allow_pickle=False)
    if isinstance(read, np.ndarray):
        return Tokens({"tokens": read})
    with read:
        return Tokens({name: read[name] for name in ("tokens", "q", "k", "v") if name in read.files})
