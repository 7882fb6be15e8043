"""A user's own numbers, from files; whatever can't be read is one sentence."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from attnbench.types.errors import AttnbenchError
from attnbench.worked.tokens import read_question

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
        ("\ufeff1,2\r\n3,4.5\r\n", ("x1", "x2")),
    ],
)
def test_a_csv_file(tmp_path: Path, text: str, labels: tuple[str, ...]) -> None:
    question = read_question(csv(tmp_path, text))
    np.testing.assert_array_equal(question.q[0], TOKENS)
    assert question.queries == labels


def test_json_and_numpy_files_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "l.json").write_text(json.dumps(TOKENS.tolist()))
    (tmp_path / "o.json").write_text(json.dumps({"tokens": TOKENS.tolist(), "labels": ["a", "b"]}))
    np.save(tmp_path / "n.npy", TOKENS)
    np.savez(tmp_path / "z.npz", tokens=TOKENS)
    np.savez(tmp_path / "w.npz", tokens=TOKENS, labels=["a", "b"])
    for name in ("l.json", "o.json", "n.npy", "z.npz", "w.npz"):
        np.testing.assert_array_equal(read_question(tmp_path / name).v[0], TOKENS)
    assert read_question(tmp_path / "o.json").keys == read_question(tmp_path / "w.npz").keys == ("a", "b")
    assert read_question(tmp_path / "o.json", labels=("c", "d")).keys == ("c", "d")


def test_q_k_and_v_of_their_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    q, k, v = rng.random((2, 4)), rng.random((3, 4)), rng.random((3, 6))
    np.savez(tmp_path / "f.npz", q=q, k=k, v=v)
    question = read_question(tmp_path / "f.npz", heads=2)
    assert (question.q.shape, question.k.shape, question.v.shape) == ((2, 2, 2), (2, 3, 2), (2, 3, 3))
    np.testing.assert_array_equal(question.q[1], q[:, 2:])
    assert (question.queries, question.keys) == (("q1", "q2"), ("k1", "k2", "k3"))


BAD_CSV = [
    ("", "can't be read as csv: it has no rows"),
    ("1,2\n3\n", "can't be read as csv: row 1 has 2 numbers, row 2 has 1: all rows need the same length"),
    ("1,x\n3,4\n", "row 1 has 'x' where a number should be"),
    ("1,nan\n", "have nan in row 1, column 2: finite numbers within"),
    ("a\nb\n", "can't be read as csv: it has no numbers"),
    ("1;2\n3;4\n", "'3;4' has no commas: put one between two numbers"),
    ("l.5,2\n3,4\n", "its first column has words ('l.5') and numbers ('3'): make it all labels or all"),
    (",0,1\n0,5,6\n", "its first column has words ('') and numbers ('0')"),
    ("1,2\n3,1e308\n", "have 1e+308 in row 2, column 2: finite numbers within ±1e+100 are needed"),
]


@pytest.mark.parametrize(("text", "words"), BAD_CSV)
def test_a_csv_file_that_is_none(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(AttnbenchError) as wrong:
        read_question(csv(tmp_path, text))
    assert words in str(wrong.value)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            {"q": [[1]], "k": [[1]]},
            "has 'q' and 'k': tokens, or q, k and v, each a list of rows of numbers, are needed",
        ),
        (3, "it is 3, and should be tokens"),
        ({"tokens": [[1]], "labels": "a"}, "its labels are not a list of words"),
        ({"tokens": [[1]], "labels": ["a", "b"]}, "2 labels for 1 token: give one for each"),
        (
            {"tokens": [[1], [1, 2]]},
            "row 1 has 1 number, row 2 has 2: all rows need the same length",
        ),
        ({"tokens": [["a"]]}, "can't be read as json: row 1 has 'a' where a number should be"),
        ({"tokens": [[10**400]]}, "can't be read as json: "),
        ([1, 2], "row 1 is 1, and should be a list of numbers"),
        ({"tokens": [[1]], "q": [[1]]}, "has 'tokens' and 'q': tokens, or q, k and v"),
        (
            {"tokens": [[1]], "mask": [[1]]},
            "no part 'mask'; there are tokens, q, k, v, labels. --mask",
        ),
        ({"tokens": [[1]], "label": ["a"]}, "t.json': no part 'label'; did you mean 'labels'?"),
        ({"X": [[1]]}, "has 'X': tokens, or q, k and v"),
        ({"q": [[1, 2]], "k": [[1]], "v": [[1]]}, "do not fit: (Lq, D), (Lk, D) and (Lk, Dv) are needed"),
        ({"tokens": [[0.0] * 2000]}, "at most 256 tokens of 1024 features can be explained"),
    ],
)
def test_a_json_file_that_is_none(tmp_path: Path, said: object, words: str) -> None:
    file = tmp_path / "t.json"
    file.write_text(json.dumps(said))
    with pytest.raises(AttnbenchError) as wrong:
        read_question(file)
    assert words in str(wrong.value)


def test_files_that_are_not_there_or_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(AttnbenchError, match="No such file"):
        read_question(tmp_path / "t.csv")
    with pytest.raises(AttnbenchError, match=r"a file that ends in \.csv, \.json, \.npy, \.npz is needed"):
        read_question(tmp_path / "t.txt")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("t.npy", b""),
        ("t.npy", b"\x93NUMPY and no more"),
        ("t.npy", pickle.dumps([[1, 2]])),
        ("t.npz", b"1,2"),
        ("t.npz", b"PK\x03\x04 and no more"),
    ],
)
def test_a_numpy_file_that_is_none(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(AttnbenchError, match=r"it is not a file of np"):
        read_question(tmp_path / name)


def test_objects_in_a_numpy_file_are_not_unpacked(tmp_path: Path) -> None:
    np.save(tmp_path / "o.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    with pytest.raises(AttnbenchError, match="it is not a file of np"):
        read_question(tmp_path / "o.npy")


def test_labels_that_are_numbers(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", tokens=TOKENS, labels=[1.0, 2.0])
    with pytest.raises(AttnbenchError, match="its labels are float64, and should be words"):
        read_question(tmp_path / "t.npz")


def test_json_that_is_nested_too_deep(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text("[" * 100_000)
    with pytest.raises(AttnbenchError, match="is nested too deep"):
        read_question(tmp_path / "t.json")


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_text_of_another_encoding(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"t.{ending}"
    file.write_bytes("1,2".encode("utf-16"))
    with pytest.raises(AttnbenchError, match="isn't text in UTF-8: save it as such"):
        read_question(file)


def test_an_archive_with_a_name_that_is_not_known(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", tokens=TOKENS, token=TOKENS)
    with pytest.raises(AttnbenchError, match=r"t\.npz': no part 'token'; did you mean 'tokens'\?"):
        read_question(tmp_path / "t.npz")


def test_heads_that_do_not_divide_the_features(tmp_path: Path) -> None:
    with pytest.raises(AttnbenchError, match="2 features can't be cut into 3 heads of equal width"):
        read_question(csv(tmp_path, "1,2\n3,4\n"), heads=3)
