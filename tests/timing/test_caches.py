"""The size of the last cache, from folders like Linux's."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnbench.timing.allocator import UNKNOWN_CACHE_BYTES, last_level_cache_bytes


def caches(folder: Path, *sizes: str) -> Path:
    for number, size in enumerate(sizes):
        (folder / f"index{number}").mkdir()
        (folder / f"index{number}" / "size").write_text(size)
    return folder


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        (("32K\n", "32K\n", "512K\n", "32768K\n"), 32 * 1024**2),
        (("48K\n", "2M\n"), 2 * 1024**2),
        (("1G\n",), 1024**3),
        (("65536\n",), 65536),
        (("rubbish\n", "\n", "K\n", "64K\n"), 64 * 1024),
        (("rubbish\n",), UNKNOWN_CACHE_BYTES),
        ((), UNKNOWN_CACHE_BYTES),
    ],
)
def test_the_largest_cache_counts(tmp_path: Path, sizes: tuple[str, ...], expected: int) -> None:
    assert last_level_cache_bytes("cpu", caches(tmp_path, *sizes)) == expected
