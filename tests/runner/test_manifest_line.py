"""Every reader of run files takes the same first lines, and refuses the others in the same words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attnbench.results.format import read_runs
from attnbench.results.read import read_ours
from attnbench.types.errors import BadFile

READERS: tuple[Callable[[Path], Any], ...] = (read_runs, read_ours)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"not json", "is not a run of attnbench: its first line is not JSON"),
        (b"\xff\xfe{", "is not a run of attnbench: its first line is not JSON"),
        (b'{"kind":"manifest","format":1,"run_id":"\xff"}', "its first line is not JSON"),
        (b"\xef\xbb\xbf{}", "its first line is not JSON"),
        (b"[" * 200_000, "its first line is not JSON"),
        (b'"manifest"', "its first line is not a manifest"),
        (b'{"kind":"manifest"}', "its first line is not a manifest"),
        (b'{"kind":"manifest","format":true}', "its first line is not a manifest"),
        (b'{"kind":"manifest","format":1.0}', "its first line is not a manifest"),
        (b'{"kind":"manifest","format":0}', "is not a run of attnbench: there is no format 0"),
        (b'{"kind":"manifest","format":99}', "has format 99; this attnbench reads up to 1: install a newer"),
        (b'{"kind":"manifest","format":1}', "its manifest is damaged (Object missing required field"),
    ],
)
def test_what_is_no_manifest_is_refused_alike(
    tmp_path: Path, read: Callable[[Path], Any], line: bytes, says: str
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(line + b"\n")
    with pytest.raises(BadFile) as refused:
        read(path)
    assert says in str(refused.value)
    assert str(path) in str(refused.value)
