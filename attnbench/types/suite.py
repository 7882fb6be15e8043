"""Suites: named lists of cases."""

from __future__ import annotations

from dataclasses import dataclass

from attnbench.types.case import Case


@dataclass(frozen=True)
class Suite:
    """A named list of cases.

    summary: one line for ``attnbench list suites``. cases: in the order they are run.
    check_only: cases that are not worth timing: ``run`` refuses the suite, ``check`` takes it.
    compiled: ids' positions of the cases on which compiling backends run; None for all.
    """

    name: str
    summary: str
    cases: tuple[Case, ...]
    check_only: bool = False
    compiled: frozenset[int] | None = None
