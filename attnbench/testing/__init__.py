"""The conformance kit: tests made of a backend's declarations, with messages that its author can act on.

>>> from attnbench.testing import check_backend
>>> print(check_backend("bmm", large=False))  # doctest: +SKIP
bmm: 31 cases checked, all right; supports() declined none

From the shell: ``attnbench check --plugin my_kernel.py``. As tests of a package, one for each case::

    from attnbench.testing import BackendConformance

    class TestMyKernel(BackendConformance):
        backend = "my_kernel"

Cases combine the backend's declarations (operations, rules, dtypes, passes) with masks, lengths, heads and
features that kernels get wrong, as far as its ``supports`` takes them. Every two features meet in some case.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnbench.testing.cases import ConformanceCase
    from attnbench.testing.conformance import BackendConformance
    from attnbench.testing.findings import Counts, Finding, NotConforming, Report
    from attnbench.testing.judge import check_backend, conformance_cases

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


def __getattr__(name: str) -> object:
    """Import a public name at its first use: the process that looks at a backend needs few modules."""
    if name not in __all__:
        raise AttributeError(f"module 'attnbench.testing' has no attribute {name!r}")
    # The first needs pytest. The judge uses all others.
    home = "conformance" if name == "BackendConformance" else "judge"
    return getattr(import_module(f"attnbench.testing.{home}"), name)
