"""A search for cases on which a backend is wrong, in the whole space of what it declares.

``attnbench check --plugin`` adds one to its fixed list. :func:`replay` asks one
of its cases again, in a test.
"""

from __future__ import annotations

from pathlib import Path


def replay(point: str, backend: str | Path, name: str | None = None) -> None:
    """Judge a backend again on a case of the search, in a process of its own.

    point: the text that the search prints. backend: the name of an installed one, or the file or module of a
    plugin that brings one. name: of the one to judge, where the plugin brings several.

    Raises:
        AssertionError: it is wrong, fails or declines the case; the text says why.
        BadInput: there is no such backend, or the text names no case.
    """
    from attnbench.search.run import replayed
    from attnbench.testing.judge import located
    from attnbench.trial.point import parse_point

    found = located(backend)
    if name is not None:
        found.registry.backend(name)
    outcome = replayed(parse_point(point), name or found.only(), found.registry)
    if outcome.status != "right":
        raise AssertionError(f"{point}: {outcome.status}: {outcome.problem}")
