"""Small inputs that a rule can be explained on: a user's tokens, and the examples of the tutorials."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnbench.types.errors import BadFile, BadInput
from attnbench.types.files import read_text
from attnbench.types.mask import EVERYTHING, Mask
from attnbench.types.words import clean, count_of, printable

if TYPE_CHECKING:
    from attnbench.types.rule import Array, Rule

MOST_TOKENS, MOST_FEATURES = 256, 1024
LARGEST = 1e100
"""The largest magnitude of a number: products of two, summed over all features, stay finite."""


@dataclass(frozen=True)
class Example:
    """Small inputs of attention, all in float64.

    sources: the name and rows (L, E) that q, that k and that v are made of: X for all in self-attention; X, Y
    and Y in cross-attention; q, k and v themselves. queries, keys: a label for each. rule: the rule that the
    tutorial uses; any other works too. summary: the inputs in words. matrices: W_q, W_k and W_v (E, H·D),
    with b_q, b_k and b_v (1, H·D), that sources are multiplied by; without them q, k and v are the sources.
    W_O and b_O come after the heads: W_O is (H·Dv, any), or has more rows and multiplies [q ; Z]. heads: H,
    the equal parts of q, k and v. dropout: the probability that a weight is set to 0. weighted: show each
    key's weighted value. constants: of the rule. rounded: the weights that the tutorial rounded by hand, (Lq,
    Lk). seed: of the parameters of the rule and of dropout.
    """

    sources: tuple[tuple[str, Array], ...]
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    rule: str = ""
    summary: str = ""
    matrices: Mapping[str, Array] = field(default_factory=dict)
    heads: int = 1
    mask: Mask = EVERYTHING
    dropout: float = 0.0
    weighted: bool = False
    constants: tuple[tuple[str, float], ...] = ()
    rounded: Array | None = None
    seed: int = 0


def example_of(rows: Mapping[str, Any], *, labels: tuple[str, ...] = (), **fields: Any) -> Example:
    """Make inputs of X; of X and Y for keys and values; or of q, k and v.

    labels: one for each row of X, by default x1, x2, ... Rows of other names are numbered.
    fields: of the :class:`Example`.

    Raises:
        BadInput: something is not a number, there are too many numbers, or labels do not fit.
    """
    named = [(name, checked(array, name)) for name, array in rows.items()]
    q, k, v = named if len(named) == 3 else (named[0], named[-1], named[-1])
    queries, keys = (numbered(name.lower(), len(rows)) for name, rows in (q, k))
    if labels and len(labels) != len(queries):
        words = count_of(len(labels), "label"), count_of(len(queries), "row")
        raise BadInput(f"{words[0]} for the {words[1]} of {q[0]}: give one label for each")
    if labels:
        queries = tuple(map(printable, labels))
    return Example((q, k, v), queries, queries if k is q else keys, **fields)


def numbered(letter: str, count: int) -> tuple[str, ...]:
    """Return labels: x1, x2, ..."""
    return tuple(f"{letter}{i}" for i in range(1, count + 1))


def stream(seed: int, what: str) -> np.random.Generator:
    """Return random numbers of their own for each thing that is drawn with a seed."""
    return np.random.default_rng([*what.encode(), seed])


def cut(rows: Array, heads: int) -> Array:
    """Cut (L, heads * D) to (heads, L, D); raises :class:`BadInput` if heads do not divide the width."""
    width = rows.shape[1]
    if width % heads:
        raise BadInput(f"{width} features can't be cut into {heads} heads of equal width")
    return np.ascontiguousarray(rows.reshape(len(rows), heads, width // heads).swapaxes(0, 1))


def _ragged(rows: Any) -> str:
    """Say which row has another length than the first, where rows have one."""
    try:
        lengths = [len(row) for row in rows]
    except TypeError:
        return "give a list of lists, a row for each token"
    odd = next((place for place, length in enumerate(lengths) if length != lengths[0]), None)
    if odd is None:
        return "give a list of lists, a row for each token"
    return f"row 1 has {lengths[0]}, row {odd + 1} has {lengths[odd]}; give each token as many"


def checked(rows: Any, what: str) -> Array:
    """Return a small matrix of finite numbers in float64; raises :class:`BadInput` for anything else."""
    try:
        array = np.asarray(rows)
    except ValueError as failure:
        # Rows of several lengths are no array; neither are texts among them.
        raise BadInput(f"{what} are not rows of numbers, all of one length: {_ragged(rows)}") from failure
    if array.dtype.kind not in "fiub":
        raise BadInput(f"{what} have the dtype {array.dtype}: give rows of numbers")
    if array.ndim != 2 or 0 in array.shape:
        raise BadInput(f"{what} have the shape {array.shape}: give (tokens, features), at least one of each")
    if array.shape[0] > MOST_TOKENS or array.shape[1] > MOST_FEATURES:
        most = f"at most {MOST_TOKENS} tokens of {MOST_FEATURES} features"
        raise BadInput(f"{what} have the shape {array.shape}: give {most}; attnbench run takes larger inputs")
    numbers = np.asarray(array, np.float64)
    odd = np.argwhere(~(np.abs(numbers) <= LARGEST))
    if len(odd):
        row, column = odd[0]
        where = f"{numbers[row, column]:g} in row {row + 1}, column {column + 1}"
        raise BadInput(f"{what} have {where}: give finite numbers within ±{LARGEST:g}")
    return numbers


def with_layer(example: Example, rule: Rule) -> Example:
    """Return an example with the matrices of a layer; if it has none, they are drawn with its seed.

    Raises:
        BadInput: q, k and v are given, or made by matrices of one head.
    """
    if "W_O" in example.matrices:
        return example
    if example.sources[0][0] != "X" or example.matrices:
        raise BadInput("multihead makes q, k and v from tokens by its own matrices: give tokens alone")
    width = example.sources[0][1].shape[1]
    inputs = {letter: rows.shape[1] for letter, (_, rows) in zip("qkv", example.sources, strict=True)}
    inputs["O"] = width * (1 + rule.concatenates)
    sizes = {f"W_{one}": size for one, size in inputs.items()} | {f"b_{one}": 1 for one in inputs}
    drawn = {n: stream(example.seed, n).standard_normal((s, width)) / np.sqrt(s) for n, s in sizes.items()}
    return replace(example, matrices=drawn)


def _concatenate() -> Example:
    rng = np.random.default_rng(0)
    rows = {"q": rng.random((1, 32)), "k": rng.random((1, 32)), "v": rng.random((32, 64))}
    combine = rng.standard_normal((96, 64)) / np.sqrt(96)
    # concat_linear reads only the first key.
    rows["k"] = np.concatenate([rows["k"], rng.random((31, 32))])
    summary = "one query, its key, 32 values, a combine layer"
    return example_of(rows, matrices={"W_O": combine}, rule="concat_linear", summary=summary)


def _matrices(**rows: list[str]) -> dict[str, Array]:
    """Read matrices by name from the digits of their rows."""
    return {name: np.array([[*map(float, row)] for row in digits]) for name, digits in rows.items()}


_TWO_HEADS = _matrices(
    W_q=["10100100", "01001001", "10010010", "00101000"], b_q=["00001000"],
    W_k=["01001000", "10010010", "00100101", "10000010"], b_k=["00010000"],
    W_v=["10200301", "02011000", "00100120", "30010010"], b_v=["00000001"],
    W_O=["1000", "0100", "0010", "0001", "0001", "0010", "0100", "1000"], b_O=["0001"],
)  # fmt: skip
"""The fused matrices of two heads: columns 1 to 4 are those of head 1."""
_ONE_HEAD = _matrices(
    W_q=["101", "100", "001", "011"], W_k=["001", "110", "010", "110"], W_v=["020", "030", "103", "110"],
)  # fmt: skip
_ROUNDED = np.array([[0, 0.5, 0.5], [0, 1, 0], [0, 0.9, 0.1]])
_LAYER: dict[str, Any] = {"matrices": _TWO_HEADS, "heads": 2, "rule": "scaled_dot"}
_EIGHT: dict[str, Any] = {"matrices": _ONE_HEAD, "rule": "dot", "weighted": True, "rounded": _ROUNDED}
_HAND = {"X": [[1, 3, 2], [1, 1, 3], [1, 2, 1]]}
_CROSS = {**_HAND, "Y": [[2, 0, 1], [0, 1, 1]]}
_FIVE = {"X": [[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0], [0, 0, 1, 1], [1, 0.5, 0.5, 0]]}
_THREE = {"X": [[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]]}
_PAIR = {**_THREE, "Y": [[1, 1, 0, 0], [0, 1, 1, 0]]}
EXAMPLES = {
    "self-attention": example_of(_HAND, rule="dot", summary="three tokens, on which dot is softmax(X Xᵀ) X"),
    "cross-attention": example_of(_CROSS, rule="dot", summary="X and Y, on which dot is softmax(X Yᵀ) Y"),
    "five-tokens": example_of(_FIVE, rule="scaled_dot", summary="five tokens of four features"),
    "projections": example_of(_THREE, **_EIGHT, summary="the eight steps: three tokens, W_q, W_k and W_v"),
    "multihead": example_of(_THREE, **_LAYER, summary="the whole layer in integers, two heads"),
    "multihead-cross": example_of(_PAIR, **_LAYER, summary="the same layer; keys and values come from Y"),
    "causal-sentence": example_of(
        {"X": np.random.default_rng(0).standard_normal((4, 4))}, labels=("the", "cat", "sat", "down"),
        mask=Mask(causal="upper_left"), rule="scaled_dot",
        summary="four words; each sees itself and those before",
    ),
    "dropout": example_of(_FIVE, dropout=0.5, rule="scaled_dot", summary="five tokens, weights dropped"),
    "concatenate": _concatenate(),
}  # fmt: skip


def example_for(rule: str) -> str:
    """Return the name of the example that a tutorial uses for a rule; ``five-tokens`` for other rules."""
    return next((name for name, one in EXAMPLES.items() if one.rule == rule), "five-tokens")


def read_example(path: Path, *, labels: tuple[str, ...] = (), **fields: Any) -> Example:
    """Read tokens from a CSV file. labels: used in place of those of the file. fields: of the example.

    There is a row for each token, with a label first unless it is a number. A first line that is without
    numbers, or begins with an empty cell, names columns and is skipped; below an empty cell are labels.

    Raises:
        BadFile, BadInput: it can't be read, or has another content.
    """
    where = repr(str(path))
    if path.suffix.lower() != ".csv":
        raise BadInput(f"{where}: give a file that ends in .csv, with one token per row")
    try:
        own_labels, rows = _csv(csv.reader(io.StringIO(read_text(path, "utf-8-sig"), newline="")))
    except OSError as failure:
        raise BadFile(f"{where}: {failure.strerror or failure}") from None
    except UnicodeDecodeError:
        raise BadFile(f"{where} is not text in UTF-8: save it in that encoding") from None
    except (ValueError, csv.Error) as failure:
        raise BadFile(f"{where} can't be read as csv: {failure}") from None
    for at, row in enumerate(rows, 1):
        if len(row) != len(rows[0]) or not all(map(_is_number, row)):
            wanted = "numbers only" if at == 1 else f"{len(rows[0])} numbers, as many as row 1"
            raise BadFile(f"{where}: row {at} is {clean(', '.join(row))[:40]}: give {wanted}")
    tokens = checked(np.array(rows, dtype=np.float64), f"tokens of {where}")
    return example_of({"X": tokens}, labels=labels or own_labels, summary=f"the file {where}", **fields)


def _csv(lines: Iterable[list[str]]) -> tuple[tuple[str, ...], list[list[str]]]:
    """Return the labels of tokens, () for none, and the cells with their numbers."""
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
        return (), rows
    if not any(row[1:] for row in rows):
        raise ValueError("separate numbers with commas, and give a row for each token: it has no numbers")
    return tuple(row[0].strip() for row in rows), [row[1:] for row in rows]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
