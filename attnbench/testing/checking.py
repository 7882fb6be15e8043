"""Checking backends from Python."""

from __future__ import annotations

from pathlib import Path

from attnbench.testing.choosing import ConformanceCase, choose
from attnbench.testing.findings import NotConforming, Report
from attnbench.testing.judging import plan, records_of, reported, rules_in
from attnbench.testing.locating import located
from attnbench.types.backend import Backend
from attnbench.types.errors import BadInput


def check_backend(
    backend: str | Path | Backend,
    *,
    large: bool = True,
    raises: bool = True,
    timeout: float | None = None,
    memory_limit: int | None = None,
) -> Report:
    """Check a backend on the kit's cases: those that it declares and its ``supports`` takes.

    Each is judged as ``attnbench check`` does, in processes of its own, about half a second a case.

    backend: the name of one that is installed; the file or module of a plugin, of which all backends are
        checked (and rules, on a plain backend); or a :class:`~attnbench.Backend`, which must be a name at
        the top of a module.
    large: whether to ask for the few large cases too. raises: False to get a report of failures too.
    timeout: the longest wait for one answer, s. memory_limit: what it may allocate, bytes.

    Raises:
        NotConforming: it has problems, or can't run on this machine, so that nothing was checked; an
            AssertionError with all that was found.
        BadInput: there is no such backend, or it can't be found from another process.
        MeasuringFailed: the machinery could not go on.
    """
    from attnbench.api import make_options

    options = make_options(timeout=timeout, memory_limit=memory_limit, timed=False)
    with located(backend) as found:
        planned = plan(found.registry, found.backends, found.rules)
        records = records_of(planned.cases(large), found.registry, options)
        report = reported(planned, records, found.registry)
    if raises and not report.ok:
        raise NotConforming(report)
    return report


def conformance_cases(backend: str | Path | Backend, *, large: bool = True) -> tuple[ConformanceCase, ...]:
    """The cases that :func:`check_backend` judges a backend on; nothing is computed.

    The same each time for a backend that declares the same and whose ``supports`` takes the same.

    Raises:
        BadInput: there is no such backend, or more than one.
    """
    if isinstance(backend, Backend):
        from attnbench.plugins.registry import load_wanted

        chosen = choose(backend, rules_in(load_wanted()))
    else:
        with located(backend) as found:
            if len(found.backends) != 1:
                raise BadInput(f"{backend} brings {len(found.backends)} backends: name one of them")
            chosen = choose(found.registry.backend(found.backends[0]), rules_in(found.registry))
    return tuple(one for one in chosen.cases if large or not one.large)
