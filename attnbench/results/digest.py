"""A digest in every line of a run file, each made from the one before: a changed or missing line is seen.

It guards against accidents, such as an editor, a script or a bad disk. Whoever means to forge a file can make
its digests too.
"""

from __future__ import annotations

import re
from hashlib import sha256

_FIELD = re.compile(rb',"digest":"([0-9a-f]{16})"\}')
_FIELD_BYTES = len(b',"digest":""}') + 16


def with_digest(line: bytes, before: str) -> tuple[bytes, str]:
    """Return a JSON object with its digest as the last field, and the digest.

    before: the digest of the line before, "" for a manifest.
    """
    digest = sha256(before.encode() + line).hexdigest()[:16]
    return line[:-1] + f',"digest":"{digest}"}}'.encode(), digest


def next_digest(line: bytes, before: str | None) -> str | None:
    """Return the digest of a line that was read; None where its run has no digests, as in older files.

    before: of the line before; "" for a manifest.

    Raises:
        ValueError: the line is not as it was written, or does not follow that line.
    """
    line = line.rstrip()
    found = _FIELD.fullmatch(line[-_FIELD_BYTES:])
    if found is None and not before:
        return None
    digest = "" if found is None else found[1].decode()
    if before is None or with_digest(line[:-_FIELD_BYTES] + b"}", before)[1] != digest:
        raise ValueError("changed since it was written, or a line before it is missing; measure again")
    return digest
