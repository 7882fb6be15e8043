"""The conformance kit: what a backend declares, turned into tests with messages that its author can act on.

>>> from attnbench.testing import check_backend
>>> print(check_backend("bmm", large=False))  # doctest: +SKIP
bmm: 31 of 31 cases right; supports() declined 0 of 510 combinations of what it declares

From the shell, of a file: ``attnbench check --plugin my_kernel.py``. As tests of a package, one a case::

    from attnbench.testing import BackendConformance

    class TestMyKernel(BackendConformance):
        backend = "my_kernel"

Cases are combinations of what the backend declares (operations, rules, dtypes, passes) with masks, lengths,
heads and features that kernels get wrong, as far as its ``supports`` takes them: every two meet in some case.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnbench.testing.checking import check_backend, conformance_cases
    from attnbench.testing.choosing import ConformanceCase
    from attnbench.testing.conformance import BackendConformance
    from attnbench.testing.findings import Counts, Finding, NotConforming, Report

__all__ = [
    "BackendConformance",
    "ConformanceCase",
    "Counts",
    "Finding",
    "NotConforming",
    "Report",
    "check_backend",
    "conformance_cases",
]

_HOMES = {
    "BackendConformance": "conformance",
    "ConformanceCase": "choosing",
    "Counts": "findings",
    "Finding": "findings",
    "NotConforming": "findings",
    "Report": "findings",
    "check_backend": "checking",
    "conformance_cases": "checking",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for: the process that looks at a backend needs few."""
    if name in _HOMES:
        return getattr(import_module(f"attnbench.testing.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'attnbench.testing' has no attribute {name!r}")
