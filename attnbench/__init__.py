"""attnbench: the attention benchmark whose every number is checked.

Everything public is here: ``run`` and ``load`` for notebooks and scripts, ``hookimpl`` and the
records (``Backend``, ``Rule``, ...) for plugins.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnbench.api import load, resume, run
    from attnbench.hookspecs import hookimpl
    from attnbench.programs.capture import capture
    from attnbench.reports.run import Run
    from attnbench.types.backend import Backend, Setup
    from attnbench.types.case import Case, Layer
    from attnbench.types.errors import (
        AttnbenchError,
        BadCase,
        BadFile,
        BadInput,
        Interrupted,
        MeasuringFailed,
        PluginFailed,
    )
    from attnbench.types.extensions import EnvironmentFact, Metric, Reporter, Suite, VerdictRule
    from attnbench.types.mask import Mask
    from attnbench.types.operation import Operation, TensorSpec
    from attnbench.types.record import Record
    from attnbench.types.rule import Constant, DotForm, Parameter, Rule, Scoring

__version__ = "0.1.0"

__all__ = [
    "AttnbenchError",
    "Backend",
    "BadCase",
    "BadFile",
    "BadInput",
    "Case",
    "Constant",
    "DotForm",
    "EnvironmentFact",
    "Interrupted",
    "Layer",
    "Mask",
    "MeasuringFailed",
    "Metric",
    "Operation",
    "Parameter",
    "PluginFailed",
    "Record",
    "Reporter",
    "Rule",
    "Run",
    "Scoring",
    "Setup",
    "Suite",
    "TensorSpec",
    "VerdictRule",
    "__version__",
    "capture",
    "hookimpl",
    "load",
    "resume",
    "run",
]

_HOMES = {
    "AttnbenchError": "attnbench.types.errors",
    "Backend": "attnbench.types.backend",
    "BadCase": "attnbench.types.errors",
    "BadFile": "attnbench.types.errors",
    "BadInput": "attnbench.types.errors",
    "Case": "attnbench.types.case",
    "Constant": "attnbench.types.rule",
    "DotForm": "attnbench.types.rule",
    "EnvironmentFact": "attnbench.types.extensions",
    "Interrupted": "attnbench.types.errors",
    "Layer": "attnbench.types.case",
    "Mask": "attnbench.types.mask",
    "MeasuringFailed": "attnbench.types.errors",
    "Metric": "attnbench.types.extensions",
    "Operation": "attnbench.types.operation",
    "Parameter": "attnbench.types.rule",
    "PluginFailed": "attnbench.types.errors",
    "Record": "attnbench.types.record",
    "Reporter": "attnbench.types.extensions",
    "Rule": "attnbench.types.rule",
    "Run": "attnbench.reports.run",
    "Scoring": "attnbench.types.rule",
    "Setup": "attnbench.types.backend",
    "Suite": "attnbench.types.extensions",
    "TensorSpec": "attnbench.types.operation",
    "VerdictRule": "attnbench.types.extensions",
    "capture": "attnbench.programs.capture",
    "hookimpl": "attnbench.hookspecs",
    "load": "attnbench.api",
    "resume": "attnbench.api",
    "run": "attnbench.api",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for, so that ``attnbench --help`` stays light."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'attnbench' has no attribute {name!r}")
