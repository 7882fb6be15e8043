"""Files of users: read if they are regular ones, as TOML with values that can be shown, or as JSON."""

from __future__ import annotations

import errno
import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attnbench.types.words import clean, printable_json


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """Return the text of a file; raises OSError, also for a pipe or a device, which might never end."""
    check_regular(path)
    return path.read_text(encoding)


def check_regular(path: Path) -> None:
    """Raise OSError if a path is something else than a file or a folder."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "it is not a regular file")


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML, with printable texts; raises ValueError."""
    try:
        content: dict[str, Any] = printable_json(tomllib.loads(text))
        # Hexadecimal numbers may have more digits than Python writes, which is a ValueError too.
        repr(content)
    except RecursionError as failure:
        raise ValueError("nested too deeply") from failure
    return content


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; raises ValueError, also where an object has a key twice or all is nested too deeply."""
    try:
        return json.loads(text, object_pairs_hook=_each_once)
    except RecursionError as failure:
        raise ValueError("nested too deeply") from failure


def _each_once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"an object has the key {clean(key)!r} twice: leave one")
        found[key] = value
    return found
