"""The libraries that plugins need, with the versions that are installed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, packages_distributions, requires, version
from importlib.util import find_spec

from attnbench.types.words import clean

_NAME = re.compile(r"[A-Za-z0-9._-]+")


def libraries(distributions: Iterable[str], modules: Iterable[str] = ()) -> dict[str, str]:
    """Return the versions of installed libraries that plugins need, by their names.

    distributions: of plugins; what they require counts, without their extras. modules: those that backends
    declare.
    """
    names = {name for distribution in distributions for name in _required_by(distribution)}
    names.update(name for module in modules for name in _providers(module))
    found = {}
    for name in sorted(names - {"attnbench"}):
        try:
            found[re.sub(r"[-_.]+", "-", name).lower()] = clean(version(name))
        except PackageNotFoundError:
            continue
    return found


def _required_by(distribution: str) -> list[str]:
    try:
        lines = requires(distribution) or []
    except PackageNotFoundError:
        # A file, or a module that is not installed.
        return []
    names = [_NAME.match(line) for line in lines if "extra ==" not in line]
    return [name[0] for name in names if name is not None]


def _providers(module: str) -> list[str]:
    """Return the distributions of a module: the one of its name, without looking at all that there are."""
    top = module.partition(".")[0]
    try:
        version(top)
    except PackageNotFoundError:
        return packages_distributions().get(top, []) if find_spec(top) else []
    return [top]
