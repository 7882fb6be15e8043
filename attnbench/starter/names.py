"""What a new plugin is called, of one word: its distribution, its module, its backend."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath

from attnbench.types.errors import BadInput

PREFIX = "attnbench-"
LONGEST = 60
_WORD = re.compile(r"[a-z0-9]+(?:[-_.]+[a-z0-9]+)*", re.IGNORECASE | re.ASCII)
"""As the packaging specification has names of distributions.

ASCII, since the Kelvin sign is a k to IGNORECASE, and the long s an s."""


@dataclass(frozen=True)
class Names:
    """What a plugin is called.

    distribution: what pip installs, and the folder. module: what is imported. backend: on command lines.
    """

    distribution: str
    module: str
    backend: str


def names_of(word: str) -> Names:
    """The names that a word means: ``My.Kernel`` is attnbench-my-kernel, attnbench_my_kernel and my_kernel.

    Capitals and runs of ``-``, ``_`` and ``.`` become what pip makes of them; the prefix is added where it
    isn't there.

    Raises:
        BadInput: no distribution can be called so, or nothing is left beside the prefix.
    """
    if "/" in word:
        path = PurePath(word)
        raise BadInput(
            f"name {word!r}: a name is needed, not a path; say where with --into, as in "
            f"attnbench new {path.name or 'my-kernel'} --into {path.parent}"
        )
    if not _WORD.fullmatch(word):
        raise BadInput(
            f"name {word!r}: letters a to z, digits, '-', '_' and '.', beginning and ending with a letter or "
            "digit, as in my-kernel"
        )
    if len(word) > LONGEST:
        raise BadInput(f"name {word!r}: {len(word)} characters; {LONGEST} are the most")
    short = re.sub(r"[-_.]+", "-", word).lower().removeprefix(PREFIX)
    if short == PREFIX.rstrip("-"):
        raise BadInput(f"name {word!r}: that is attnbench itself; name what is new, as in my-kernel")
    backend = short.replace("-", "_")
    return Names(f"{PREFIX}{short}", f"attnbench_{backend}", backend)
