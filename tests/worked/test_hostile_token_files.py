"""Files that claim more than they hold, or aren't what their name says: a sentence, and nothing allocated."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from attnbench.types.errors import BadFile
from attnbench.worked.token_file import read_question


def refused(path: Path) -> str:
    with pytest.raises(BadFile) as wrong:
        read_question(path)
    return str(wrong.value)


def header(shape: str, dtype: str = "<f8") -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (header("(10**7, 10**6)"), "its header isn't one that np.save writes"),
        (header("(10000000, 1000000)"), "its shape is (10000000, 1000000): at most 256 tokens of 1024"),
        (header("(2, 2)", "<U100000"), "and should have real numbers"),
        (header("(2, 2)"), "could only read 0 elements"),
        (header("(2, (2"), "its header isn't one that np.save writes"),
        (header("(2, 2)")[:40], "its header isn't one that np.save writes"),
        (pickle.dumps([[1, 2]]), "np.save didn't write it"),
        (b"", "np.save didn't write it"),
    ],
)
def test_a_numpy_file_that_lies(tmp_path: Path, data: bytes, words: str) -> None:
    file = tmp_path / "t.npy"
    file.write_bytes(data)
    said = refused(file)
    assert words in said
    assert "allow_pickle" not in said


def test_an_archive_whose_array_unpacks_to_more_than_is_read(tmp_path: Path) -> None:
    held = io.BytesIO()
    np.save(held, np.zeros((1025, 1025), np.int8))
    with zipfile.ZipFile(tmp_path / "t.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tokens.npy", held.getvalue())
    assert "its shape is (1025, 1025): at most 256 tokens" in refused(tmp_path / "t.npz")


@pytest.mark.parametrize(
    ("dtype", "words"), [("<U100000000", "its shape is (2,): at most"), ("<f8", "it has float64, and should")]
)
def test_labels_that_lie(tmp_path: Path, dtype: str, words: str) -> None:
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        archive.writestr("labels.npy", header("(2,)", dtype))
    assert words in refused(tmp_path / "t.npz")


@pytest.mark.parametrize("data", [b"1,2", b"PK\x03\x04 and no more"])
def test_an_archive_that_is_none(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "t.npz").write_bytes(data)
    assert "np.savez didn't write it" in refused(tmp_path / "t.npz")


def test_an_archive_with_a_broken_stream(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "t.npz", tokens=np.eye(9))
    data = bytearray((tmp_path / "t.npz").read_bytes())
    # Behind the local header: the first block says that it is of a type that there isn't.
    data[30 + len("tokens.npy") + int.from_bytes(data[28:30], "little")] = 0xFF
    (tmp_path / "t.npz").write_bytes(data)
    assert "np.savez didn't write it (Error -3" in refused(tmp_path / "t.npz")


def test_json_that_is_nested_too_deep(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text("[" * 100_000)
    assert "is nested too deep" in refused(tmp_path / "t.json")


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_text_of_another_encoding(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"t.{ending}"
    file.write_bytes("1,2".encode("utf-16"))
    assert refused(file) == f"{str(file)!r} isn't text in UTF-8: save it as such"


def test_json_with_the_mark_that_windows_puts_first(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps([[1, 2]]), encoding="utf-8-sig")
    question = read_question(tmp_path / "t.json")
    assert question.tokens is not None
    assert question.tokens.tolist() == [[1, 2]]
