"""Importing the module of a plugin, by its name or from its file."""

from __future__ import annotations

import hashlib
import importlib
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from attnbench.types.source import Source


def file_digest(content: bytes) -> str:
    """The first digits of the SHA-256 of a plugin's file: its version."""
    return hashlib.sha256(content).hexdigest()[:12]


def refuse_changed(source: Source) -> None:
    """Raise :class:`ImportError` where a file is not what it was when its plugin was first loaded."""
    if file_digest(Path(source.path).read_bytes()) != source.version:
        raise ImportError(f"{source.distribution} has changed since it was loaded first: begin anew")


def import_plugin(source: Source) -> ModuleType:
    """The module of a plugin, imported once in a process. Raises whatever it raises."""
    if not source.path:
        return importlib.import_module(source.module)
    if source.module in sys.modules:
        return sys.modules[source.module]
    folder = str(Path(source.path).parent)
    if folder not in sys.path:
        # Last: what lies beside the file can be imported, and stands before no library.
        sys.path.append(folder)
    refuse_changed(source)
    spec = spec_from_file_location(source.module, source.path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{Path(source.path).name} is no file of Python code")
    module = module_from_spec(spec)
    sys.modules[source.module] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[source.module]
        raise
    return module
