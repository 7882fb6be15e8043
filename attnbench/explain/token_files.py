"""Files of a user's own numbers for ``attnbench explain``: CSV, JSON or NumPy."""

from __future__ import annotations

import csv
import json
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from attnbench.explain.examples import Example, checked, cut, example_of, numbered
from attnbench.types.errors import BadFile, BadInput
from attnbench.types.words import clean, count_of, unknown_name

KINDS = (".csv", ".json", ".npy", ".npz")
NAMES = ("tokens", "q", "k", "v", "labels")
_FORMS = "tokens, or q, k and v"


def read_example(path: Path, *, labels: tuple[str, ...] = (), heads: int = 1, seed: int = 0) -> Example:
    """Read inputs from a file. labels: used in place of those of the file.

    ``.csv``: a row for each token, with a label first unless it is a number; a first line without numbers is
    skipped. ``.json``: a list of rows, or an object with ``tokens``, or with ``q``, ``k`` and ``v``, and
    optionally ``labels``. ``.npy``: tokens. ``.npz``: arrays of those names.

    Raises:
        BadFile, BadInput: it can't be read, or has another content.
    """
    where = repr(str(path))
    parts = _read(path)
    unknown = [name for name in parts if name not in NAMES]
    if unknown:
        hint = " Masks are given by --mask." if "mask" in unknown[0] else ""
        raise BadInput(f"{where}: {unknown_name('part', clean(unknown[0]), NAMES)}{hint}")
    own_labels = _labels(parts.pop("labels", ()), where)
    labels = labels or own_labels
    arrays = {name: checked(_array(rows, where), f"{name} of {where}") for name, rows in parts.items()}
    summary = f"the file {where}"
    if list(arrays) == ["tokens"]:
        return example_of(arrays["tokens"], labels=labels, heads=heads, seed=seed, summary=summary)
    if set(arrays) != {"q", "k", "v"}:
        found = " and ".join(map(repr, arrays)) or "nothing"
        raise BadInput(f"{where} has {found}: give {_FORMS}, each a list of rows of numbers")
    q, k, v = (cut(arrays[name], heads) for name in "qkv")
    if q.shape[2] != k.shape[2] or k.shape[1] not in (v.shape[1], q.shape[1]):
        shapes = ", ".join(f"{name} {arrays[name].shape}" for name in "qkv")
        raise BadInput(f"{where}: {shapes} do not fit: give q (Lq, D), k (Lk, D) and v (Lk, Dv)")
    counts = q.shape[1], v.shape[1]
    if labels and len(labels) not in counts:
        given = count_of(len(labels), "label")
        raise BadInput(f"{given} for {counts[0]} queries and {counts[1]} keys: give one label for each")
    queries, keys = (
        labels if len(labels) == count else numbered(letter, count)
        for letter, count in zip("qk", counts, strict=True)
    )
    return Example(q, k, v, queries, keys, seed=seed, summary=summary)


def _read(path: Path) -> dict[str, Any]:
    """Return the parts of a file by name."""
    where, ending = repr(str(path)), path.suffix.lower()
    if ending not in KINDS:
        raise BadInput(f"{where}: give a file that ends in {', '.join(KINDS)}")
    try:
        if ending == ".csv":
            with path.open(newline="", encoding="utf-8-sig") as file:
                return _csv(csv.reader(file))
        if ending == ".json":
            content = json.loads(path.read_text(encoding="utf-8-sig"))
            return content if isinstance(content, dict) else {"tokens": content}
        return _numpy(path)
    except OSError as failure:
        raise BadFile(f"{where}: {failure.strerror or failure}") from None
    except UnicodeDecodeError:
        raise BadFile(f"{where} is not text in UTF-8: save it in that encoding") from None
    except RecursionError:
        raise BadFile(f"{where} is nested too deep: give {_FORMS}") from None
    except (ValueError, csv.Error) as failure:
        raise BadFile(f"{where} can't be read as {ending[1:]}: {failure}") from None


def _csv(lines: Iterable[list[str]]) -> dict[str, Any]:
    rows = [row for row in lines if any(cell.strip() for cell in row)]
    # A first line without any number has the names of the columns.
    if len(rows) > 1 and not any(map(_is_number, rows[0])):
        rows = rows[1:]
    if any(_is_number(row[0]) for row in rows):
        return {"tokens": rows}
    if not any(row[1:] for row in rows):
        raise ValueError("it has no numbers: give a row for each token, with commas between numbers")
    return {"tokens": [row[1:] for row in rows], "labels": [row[0].strip() for row in rows]}


def _numpy(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            return {"tokens": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
    except (ValueError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error):
        # NumPy's own message advises to allow pickles.
        raise ValueError("it is not a file of numbers by np.save or np.savez") from None


def _labels(labels: Any, where: str) -> tuple[str, ...]:
    found = labels.ravel().tolist() if isinstance(labels, np.ndarray) else labels
    if not isinstance(found, list | tuple) or not all(isinstance(label, str) for label in found):
        raise BadFile(f"{where}: its labels are {clean(found)[:40]}: give a list of words")
    return tuple(found)


def _array(rows: Any, where: str) -> Any:
    """Return rows of one length as an array; raises :class:`BadFile` that names the first wrong row."""
    if isinstance(rows, np.ndarray):
        return rows
    if not isinstance(rows, list):
        raise BadFile(f"{where} has {clean(rows)[:40]}: give {_FORMS}, each a list of rows of numbers")
    for at, row in enumerate(rows, 1):
        if not isinstance(row, list) or len(row) != len(rows[0]) or not all(map(_is_number, row)):
            wanted = "a list of numbers" if at == 1 else f"{len(rows[0])} numbers, as many as row 1"
            raise BadFile(f"{where}: row {at} is {clean(row)[:40]}: give {wanted}")
    return np.array(rows, dtype=np.float64)


def _is_number(cell: Any) -> bool:
    try:
        float(cell)
    except (ValueError, TypeError, OverflowError):
        return False
    return True
