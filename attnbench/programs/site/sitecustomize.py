"""Begins to record attention calls, in a Python process of a program that ``attnbench capture`` started.

Python imports the first ``sitecustomize`` on its path when it starts; the one that this hides runs as well.
"""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

_here = str(Path(__file__).parent)
_hidden = PathFinder.find_spec("sitecustomize", [place for place in sys.path if place != _here])
if _hidden is not None and _hidden.loader is not None:
    _hidden.loader.exec_module(module_from_spec(_hidden))
try:
    from attnbench.programs.begin import begin
except ImportError:
    pass  # A Python without attnbench.
else:
    begin()
