"""The exit status of a command: the one definition for the code, ``attnbench --help`` and the docs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

UNJUDGED = 4
"""Of a command whose worst outcome is that attnbench could not judge."""

EXIT_STATUS: Mapping[int, str] = {
    0: "all is well, and each backend that --backend or --plugin names succeeded on at least one case",
    1: "a check, a gate or a self-test failed, or the doctor found a problem; also where something of 3 "
    "happened too",
    2: "wrong usage, a file that can't be read or compared, or a fault of a plugin that was named; with "
    "ATTNBENCH_STRICT_PLUGINS, of any plugin",
    3: "a backend crashed, hung, ran out of memory or could not be measured; a named backend succeeded on no "
    "case; attnbench failed; or, with ATTNBENCH_STRICT_PLUGINS, a plugin raised an exception",
    UNJUDGED: "attnbench could not judge a backend, twice: nothing is known of it. 1 and 3 come first",
    130: "interrupted by Ctrl-C",
    141: "the reader of stdout closed it, as in attnbench list cases | head",
}
"""The meaning of each. 2, 130 and 141 end a command before it judges anything."""


def worst(found: Iterable[int]) -> int:
    """Return the exit status where several of 0, 1, 3 and 4 apply.

    A failed check is a result, whatever else failed beside it, so 1 comes first. Last comes 4, which tells
    nothing of a backend.
    """
    several = set(found)
    return next((status for status in (1, 3, UNJUDGED) if status in several), 0)
