"""A user's own numbers, from files; whatever can't be read is one sentence."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from attnbench.explain.attention import heads_of
from attnbench.explain.examples import read_example
from attnbench.types.errors import AttnbenchError

TOKENS = np.array([[1.0, 2], [3, 4.5]])


def csv(folder: Path, text: str) -> Path:
    file = folder / "t.csv"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("1,2\n3,4.5\n", ("x1", "x2")),
        ("a,1,2\nb,3,4.5\n", ("a", "b")),
        ("word,one,two\na,1,2\n\nb,3,4.5\n", ("a", "b")),
        (",0,1\na,1,2\nb,3,4.5\n", ("a", "b")),
        (",one,two\n0,1,2\n1,3,4.5\n", ("0", "1")),
        ("one,two\n1,2\n3,4.5\n", ("x1", "x2")),
        ("\ufeff1,2\r\n3,4.5\r\n", ("x1", "x2")),
    ],
)
def test_a_csv_file(tmp_path: Path, text: str, labels: tuple[str, ...]) -> None:
    example = read_example(csv(tmp_path, text))
    np.testing.assert_array_equal(example.sources[0][1], TOKENS)
    assert example.queries == labels


def test_json_and_numpy_files_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "l.json").write_text(json.dumps(TOKENS.tolist()))
    (tmp_path / "o.json").write_text(json.dumps({"tokens": TOKENS.tolist(), "labels": ["a", "b"]}))
    np.save(tmp_path / "n.npy", TOKENS)
    np.savez(tmp_path / "z.npz", tokens=TOKENS)
    np.savez(tmp_path / "w.npz", tokens=TOKENS, labels=["a", "b"])
    for name in ("l.json", "o.json", "n.npy", "z.npz", "w.npz"):
        np.testing.assert_array_equal(read_example(tmp_path / name).sources[2][1], TOKENS)
    assert read_example(tmp_path / "o.json").keys == read_example(tmp_path / "w.npz").keys == ("a", "b")
    assert read_example(tmp_path / "o.json", labels=("c", "d")).keys == ("c", "d")


def test_q_k_and_v_of_their_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    q, k, v = rng.random((2, 4)), rng.random((3, 4)), rng.random((3, 6))
    np.savez(tmp_path / "f.npz", q=q, k=k, v=v)
    example = read_example(tmp_path / "f.npz", heads=2)
    heads = heads_of(example)
    assert [one.shape for one in heads] == [(2, 2, 2), (2, 3, 2), (2, 3, 3)]
    np.testing.assert_array_equal(heads[0][1], q[:, 2:])
    assert (example.queries, example.keys) == (("q1", "q2"), ("k1", "k2", "k3"))


BAD: list[tuple[str, str | bytes | object, str]] = [
    ("t.csv", "", "can't be read as csv: separate numbers with commas, and give a row for each token"),
    (
        "t.csv",
        "0,1\n1,2\n",
        "row 1 has the numbers that pandas gives to columns: remove it (a token has 0.0)",
    ),
    ("t.csv", "1,nan\n", "have nan in row 1, column 2: give finite numbers within"),
    ("t.csv", "a\nb\n", "can't be read as csv: separate numbers with commas"),
    ("t.csv", "1;2\n3;4\n", "can't be read as csv: separate numbers with commas, not with ';'"),
    ("t.csv", "l.5,2\n3,4\n", "row 1 is ['l.5', '2']: give a list of numbers"),
    ("t.csv", "1,2\n3,1e308\n", "have 1e+308 in row 2, column 2: give finite numbers within ±1e+100"),
    ("t.csv", "1,2".encode("utf-16"), "is not text in UTF-8: save it in that encoding"),
    ("t.json", "[" * 100_000, "can't be read as json: nested too deeply"),
    ("t.json", 3, "has 3: give tokens, or q, k and v"),
    ("t.json", {}, "has nothing: give tokens, or q, k and v"),
    ("t.json", {"tokens": [[1]], "labels": "a"}, "its labels are a: give a list of words"),
    (
        "t.json",
        {"tokens": [[1]], "labels": ["a", "b"]},
        "2 labels for the 1 row of X",
    ),
    ("t.json", {"tokens": [[10**400]]}, "give a list of numbers"),
    ("t.json", [1, 2], "row 1 is 1: give a list of numbers"),
    ("t.json", {"tokens": [[1]], "q": [[1]]}, "has 'tokens' and 'q': give tokens, or q, k and v"),
    (
        "t.json",
        {"tokens": [[1]], "mask": [[1]]},
        "labels, key_labels. Masks are given by --mask.",
    ),
    ("t.json", {"tokens": [[1]], "label": ["a"]}, "t.json': no part 'label'; did you mean 'labels'?"),
    ("t.json", {"tokens": [[0.0] * 2000]}, "give at most 256 tokens of 1024 features"),
    ("t.npy", b"", "it is not a file of numbers by np"),
    ("t.npy", b"\x93NUMPY and no more", "it is not a file of numbers by np"),
    ("t.npy", pickle.dumps([[1, 2]]), "it is not a file of numbers by np"),
    ("t.npz", b"1,2", "it is not a file of numbers by np"),
    ("t.npz", b"PK\x03\x04 and no more", "it is not a file of numbers by np"),
]


@pytest.mark.parametrize(("name", "content", "words"), BAD, ids=[f"{n}-{str(c)[:20]!r}" for n, c, _ in BAD])
def test_a_file_that_can_not_be_used(tmp_path: Path, name: str, content: object, words: str) -> None:
    if not isinstance(content, str | bytes):
        content = json.dumps(content)
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(AttnbenchError) as wrong:
        read_example(tmp_path / name)
    assert words in str(wrong.value)


def test_archives_that_can_not_be_used(tmp_path: Path) -> None:
    np.save(tmp_path / "o.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    with pytest.raises(AttnbenchError, match="it is not a file of numbers by np"):
        read_example(tmp_path / "o.npy")
    np.savez(tmp_path / "t.npz", tokens=TOKENS, labels=[1.0, 2.0])
    with pytest.raises(AttnbenchError, match=r"its labels are \[1.0, 2.0\]: give a list of words"):
        read_example(tmp_path / "t.npz")


def test_labels_of_keys_and_a_context(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    parts = {"tokens": [[1, 2], [3, 4]], "labels": ["a", "b"], "key_labels": ["c", "d"]}
    file.write_text(json.dumps(parts))
    assert (read_example(file).queries, read_example(file).keys) == (("a", "b"), ("c", "d"))
    file.write_text(json.dumps(parts | {"context": [[1, 2], [3, 4], [5, 6]], "key_labels": ["c", "d", "e"]}))
    example = read_example(file)
    assert [(name, len(rows)) for name, rows in example.sources] == [("X", 2), ("Y", 3), ("Y", 3)]
    assert example.keys == ("c", "d", "e")
    qkv = {"q": [[1, 2]], "k": [[1, 2], [3, 4]], "v": [[1], [2]], "labels": ["a"], "key_labels": ["c", "d"]}
    file.write_text(json.dumps(qkv))
    assert (read_example(file).queries, read_example(file).keys) == (("a",), ("c", "d"))
    file.write_text(json.dumps(qkv | {"key_labels": ["c"]}))
    with pytest.raises(AttnbenchError, match="1 label for the 2 rows of k: give one label for each"):
        read_example(file)
