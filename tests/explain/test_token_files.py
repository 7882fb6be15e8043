"""A user's own numbers, from files; whatever can't be read is one sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attnbench.explained.examples import read_example
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


def test_words_of_the_user_replace_those_of_the_file(tmp_path: Path) -> None:
    assert read_example(csv(tmp_path, "a,1,2\nb,3,4.5\n"), labels=("c", "d")).keys == ("c", "d")


BAD: list[tuple[str, str]] = [
    ("", "can't be read as csv: separate numbers with commas, and give a row for each token"),
    ("0,1\n1,2\n", "row 1 has the numbers that pandas gives to columns: remove it (a token has 0.0)"),
    ("1,nan\n", "have nan in row 1, column 2: give finite numbers within"),
    ("a\nb\n", "can't be read as csv: separate numbers with commas"),
    ("1;2\n3;4\n", "can't be read as csv: separate numbers with commas, not with ';'"),
    ("l.5,2\n3,4\n", "row 1 is l.5, 2: give numbers only"),
    ("1,2\n3\n", "row 2 is 3: give 2 numbers, as many as row 1"),
    ("1,2\n3,1e308\n", "have 1e+308 in row 2, column 2: give finite numbers within ±1e+100"),
    (",".join(["0.5"] * 2000), "give at most 256 tokens of 1024 features"),
]


@pytest.mark.parametrize(("content", "words"), BAD, ids=[content[:20] for content, _ in BAD])
def test_a_file_that_can_not_be_used(tmp_path: Path, content: str, words: str) -> None:
    with pytest.raises(AttnbenchError) as wrong:
        read_example(csv(tmp_path, content))
    assert words in str(wrong.value)


def test_a_file_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("1,2".encode("utf-16"))
    with pytest.raises(AttnbenchError, match="is not text in UTF-8: save it in that encoding"):
        read_example(tmp_path / "t.csv")


def test_labels_fit_the_tokens(tmp_path: Path) -> None:
    with pytest.raises(AttnbenchError, match="1 label for the 2 rows of X: give one label for each"):
        read_example(csv(tmp_path, "1,2\n3,4\n"), labels=("a",))
