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
    that ``--format json`` prints. runs: what else is known of each run: what its file begins with
    (``run_id``, ``started``, ``command``, ``protocol``, ``plugins``, ``environment``, …), its ``path``,
    whether all runs of that are ``finished``, and how many ``rows`` are its own, in the order of runs.
    """

    name: str
    summary: str
    render: Callable[[Rows, RunFacts], str]
