"""Reporters: formats that plugins add to --format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Rows = Sequence[Mapping[str, Any]]
RunFacts = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Reporter:
    """A format for the records of runs, chosen by ``--format NAME``.

    name: the word for --format. summary: what it makes, one line.
    render: ``render(rows, runs)`` gives the text to print. rows: of all records in order, each the object
    that ``--format json`` prints; ``run`` is the ``run_id`` of its run. runs: what else is known of each:
    what its file begins with (``run_id``, ``started``, ``command``, ``protocol``, ``plugins``,
    ``environment``, …), its ``path``, and whether all runs of that are ``finished``.
    """

    name: str
    summary: str
    render: Callable[[Rows, RunFacts], str]
