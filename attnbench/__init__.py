"""attnbench: the attention benchmark whose every number is checked.

Everything public is here: ``run``, ``load`` and ``explain`` for notebooks and scripts, ``hookimpl`` and the
records (``Backend``, ``Rule``, ...) for plugins.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnbench.api import explain, load, resume, run
    from attnbench.hookspecs import hookimpl
    from attnbench.programs.capture import capture
    from attnbench.reports.run import Run
    from attnbench.types.backend import Backend, Setup
    from attnbench.types.case import Case, Layer
    from attnbench.types.encoding import Encoding
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
    from attnbench.types.fleet import Ended, Executor, Fleet, Place, PlaceLost, Task
    from attnbench.types.mask import Mask
    from attnbench.types.operation import Operation, TensorSpec
    from attnbench.types.record import Record
    from attnbench.types.rule import Constant, DotForm, Parameter, Rule, Scoring
    from attnbench.types.size import Size
    from attnbench.types.storage import Storage

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
    "Encoding",
    "Ended",
    "EnvironmentFact",
    "Executor",
    "Fleet",
    "Interrupted",
    "Layer",
    "Mask",
    "MeasuringFailed",
    "Metric",
    "Operation",
    "Parameter",
    "Place",
    "PlaceLost",
    "PluginFailed",
    "Record",
    "Reporter",
    "Rule",
    "Run",
    "Scoring",
    "Setup",
    "Size",
    "Storage",
    "Suite",
    "Task",
    "TensorSpec",
    "VerdictRule",
    "__version__",
    "capture",
    "explain",
    "hookimpl",
    "load",
    "resume",
    "run",
]

_HOMES = {
    "api": ("explain", "load", "resume", "run"),
    "hookspecs": ("hookimpl",),
    "programs.capture": ("capture",),
    "reports.run": ("Run",),
    "types.backend": ("Backend", "Setup"),
    "types.case": ("Case", "Layer"),
    "types.encoding": ("Encoding",),
    "types.errors": (
        "AttnbenchError", "BadCase", "BadFile", "BadInput", "Interrupted", "MeasuringFailed", "PluginFailed",
    ),
    "types.extensions": ("EnvironmentFact", "Metric", "Reporter", "Suite", "VerdictRule"),
    "types.fleet": ("Ended", "Executor", "Fleet", "Place", "PlaceLost", "Task"),
    "types.mask": ("Mask",),
    "types.operation": ("Operation", "TensorSpec"),
    "types.record": ("Record",),
    "types.rule": ("Constant", "DotForm", "Parameter", "Rule", "Scoring"),
    "types.size": ("Size",),
    "types.storage": ("Storage",),
}  # fmt: skip
"""The public names of each module."""


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for, so that ``attnbench --help`` stays light."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"attnbench.{module}"), name)
    raise AttributeError(f"module 'attnbench' has no attribute {name!r}")
