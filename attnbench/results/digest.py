"""A digest in every line of a run file, each made from the one before: a changed or missing line is seen.

It guards against accidents, such as an editor, a script or a bad disk. Whoever means to forge a file can make
its digests too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from hashlib import sha256

_FIELD = re.compile(rb',"digest":"([0-9a-f]{16})"\}')
_FIELD_BYTES = len(b',"digest":""}') + 16
_KEY = b'"digest"'
"""Inside a text of JSON these bytes cannot stand: its quotes are escaped."""
CHANGED = "changed or written anew by another program, or a line before it is missing; measure again"


def _digest_of(line: bytes, before: str) -> str:
    return sha256(before.encode() + line).hexdigest()[:16]


def with_digest(line: bytes, before: str) -> tuple[bytes, str]:
    """Return a JSON object with its digest as the last field, and the digest.

    before: the digest of the line before, "" for a manifest.
    """
    digest = _digest_of(line, before)
    return line[:-1] + f',"digest":"{digest}"}}'.encode(), digest


def digested(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of run files with digests made anew, each with a newline at its end."""
    digest = ""
    for line in lines:
        plain = _FIELD.sub(b"}", line.rstrip())
        # Each manifest begins a run.
        before = "" if plain.startswith(b'{"kind":"manifest"') else digest
        written, digest = with_digest(plain, before)
        yield written + b"\n"


def next_digest(line: bytes, before: str | None) -> str | None:
    """Return the digest of a line that was read; None where its run has no digests, as in older files.

    A line with the key ``digest`` anywhere has one: a program that writes JSON anew moves it or adds blanks.

    before: of the line before; "" for a manifest.

    Raises:
        ValueError: the line is not as it was written, or does not follow that line.
    """
    line = line.rstrip()
    found = _FIELD.fullmatch(line[-_FIELD_BYTES:])
    if found is None and not before and _KEY not in line:
        return None
    digest = "" if found is None else found[1].decode()
    if before is None or _digest_of(line[:-_FIELD_BYTES] + b"}", before) != digest:
        raise ValueError(CHANGED)
    return digest
