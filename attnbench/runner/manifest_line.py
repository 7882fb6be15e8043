"""The first line of a run, by which a file is told to be ours; every reader of run files reads it here."""

from __future__ import annotations

from pathlib import Path

import msgspec

from attnbench.types.errors import BadFile
from attnbench.types.record import FORMAT_VERSION, Manifest

NOT_DECODED = (ValueError, RecursionError)
"""What msgspec raises for bytes that aren't what was asked for: its own errors, and that of bytes which are
no UTF-8, are ``ValueError``; lists within lists without end are the other."""


def manifest_of(path: Path, line: bytes) -> Manifest:
    """The manifest that the first line of a run is.

    Raises:
        BadFile: it is none, of a format that isn't known here, or damaged.
    """
    try:
        head = msgspec.json.decode(line)
    except NOT_DECODED as failure:
        raise BadFile(f"{str(path)!r} is no run of attnbench: its first line is no JSON") from failure
    if not isinstance(head, dict) or head.get("kind") != "manifest" or type(head.get("format")) is not int:
        raise BadFile(f"{str(path)!r} is no run of attnbench: its first line is no manifest")
    if head["format"] < 1:
        raise BadFile(f"{str(path)!r} is no run of attnbench: there is no format {head['format']}")
    if head["format"] > FORMAT_VERSION:
        raise BadFile(
            f"{str(path)!r} has format {head['format']}; this attnbench reads up to {FORMAT_VERSION}: "
            "install a newer attnbench"
        )
    try:
        return msgspec.convert(head, Manifest)
    except msgspec.ValidationError as failure:
        raise BadFile(f"{str(path)!r}: its manifest is damaged ({failure})") from failure
