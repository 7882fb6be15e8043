"""Whether all that a run says of its cases can be read."""

from __future__ import annotations

from attnbench.cases.identity import parse_case
from attnbench.runner.run_file import StoredRun
from attnbench.types.errors import BadCase, BadFile


def readable(run: StoredRun) -> StoredRun:
    """The run, all ids of whose cases can be read; of several files it is told which has one that can't.

    Raises:
        BadFile: an id can't be read.
    """
    for text in run.manifest.cases:
        try:
            parse_case(text)
        except BadCase as failure:
            raise BadFile(f"{str(run.path)!r}: {failure}") from failure
    return run
