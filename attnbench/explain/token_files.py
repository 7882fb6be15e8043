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

from attnbench.explain.examples import Example, checked, example_of
from attnbench.types.errors import BadFile, BadInput
from attnbench.types.files import check_regular
from attnbench.types.words import clean, unknown_name

KINDS = (".csv", ".json", ".npy", ".npz")
NAMES = ("tokens", "context", "q", "k", "v", "labels", "key_labels")
_SHOWN = {"tokens": "X", "context": "Y"}
_FORMS = ({"tokens"}, {"tokens", "context"}, {"q", "k", "v"})
_GIVE = "tokens, or q, k and v"


def read_example(path: Path, *, labels: tuple[str, ...] = (), **fields: Any) -> Example:
    """Read inputs from a file. labels: used in place of those of the file. fields: of the example.

    ``.csv``: a row for each token, with a label first unless it is a number. A first line that is without
    numbers, or begins with an empty cell, names columns and is skipped; below an empty cell are labels.
    ``.json``: a list of rows, or an object with ``tokens``, with ``tokens`` and ``context``, or with ``q``,
    ``k`` and ``v``, and optionally ``labels`` and ``key_labels``. ``.npy``: tokens. ``.npz``: arrays of those
    names.

    Raises:
        BadFile, BadInput: it can't be read, or has another content.
    """
    where = repr(str(path))
    parts = _read(path)
    for name in (name for name in parts if name not in NAMES):
        hint = " Masks are given by --mask." if "mask" in name else ""
        raise BadInput(f"{where}: {unknown_name('part', clean(name), NAMES)}{hint}")
    own_labels, key_labels = (_labels(parts.pop(name, ()), where) for name in ("labels", "key_labels"))
    rows = {name: checked(_array(part, where), f"{name} of {where}") for name, part in parts.items()}
    if set(rows) not in _FORMS:
        found = " and ".join(map(repr, rows)) or "nothing"
        raise BadInput(f"{where} has {found}: give {_GIVE}, each a list of rows of numbers")
    inputs = {_SHOWN.get(name, name): rows[name] for name in NAMES if name in rows}
    summary = f"the file {where}"
    return example_of(inputs, labels=labels or own_labels, key_labels=key_labels, summary=summary, **fields)


def _read(path: Path) -> dict[str, Any]:
    """Return the parts of a file by name."""
    where, ending = repr(str(path)), path.suffix.lower()
    if ending not in KINDS:
        raise BadInput(f"{where}: give a file that ends in {', '.join(KINDS)}")
    try:
        check_regular(path)
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
    except (ValueError, RecursionError, csv.Error) as failure:
        raise BadFile(f"{where} can't be read as {ending[1:]}: {failure}") from None


def _csv(lines: Iterable[list[str]]) -> dict[str, Any]:
    rows = [row for row in lines if any(cell.strip() for cell in row)]
    if any(";" in cell for row in rows for cell in row):
        raise ValueError("separate numbers with commas, not with ';'")
    head = [cell.strip() for cell in rows[0]] if len(rows) > 1 else ["0.0"]
    if head == [str(column) for column in range(len(head))]:
        raise ValueError("row 1 has the numbers that pandas gives to columns: remove it (a token has 0.0)")
    # Names of columns. pandas leaves the cell above its index empty.
    if not head[0] or not any(map(_is_number, head)):
        rows = rows[1:]
    if head[0] and any(_is_number(row[0]) for row in rows):
        return {"tokens": rows}
    if not any(row[1:] for row in rows):
        raise ValueError("separate numbers with commas, and give a row for each token: it has no numbers")
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
        raise BadFile(f"{where} has {clean(rows)[:40]}: give {_GIVE}, each a list of rows of numbers")
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
