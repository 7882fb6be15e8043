"""Find the modules of this environment that come from the repository, without importing them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from attnbench.ipc.process import is_code_of
from attnbench.live.repository import Repository
from attnbench.types.errors import BadInput

INTERPRETERS = "install each side in its own environment and name them by --ref-python and --head-python"


@dataclass(frozen=True)
class Imported:
    """A top-level module: its folders, several for a namespace package, or its one file."""

    name: str
    locations: tuple[Path, ...]


def imported(name: str) -> Imported:
    """Find the place that a top-level module is imported from; it has no locations if there is none."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        return Imported(name, ())
    if spec.submodule_search_locations is not None:
        places = list(spec.submodule_search_locations)
    else:
        places = [spec.origin] if spec.has_location and spec.origin else []
    # Editable installs of namespace packages put words on this path that are not folders.
    found = [Path(place).resolve() for place in places if Path(place).exists()]
    return Imported(name, tuple(dict.fromkeys(found)))


def measured_modules(modules: Iterable[str], repository: Repository) -> tuple[Imported, ...]:
    """Return those of some modules that are imported from the repository, without locations elsewhere.

    modules: dotted names of attnbench and of plugins, of which the first part counts. One that is nowhere
    counts if folders of the repository are on the import path.

    Raises:
        BadInput: there is none, so both sides would be the same code; or one can't be imported from a
            checkout, because it has compiled code that git lacks, or another name than its folder.
    """
    everything = [imported(name) for name in dict.fromkeys(module.partition(".")[0] for module in modules)]
    found = []
    for module in everything:
        inside = tuple(
            place
            for place in module.locations
            if is_code_of(place, repository.top) and place != repository.top and repository.holds(place)
        )
        if not module.locations:
            # Deleted in the user's tree, perhaps. A commit may have it in a folder that is searched here.
            searched = [Path(entry or ".").resolve() for entry in sys.path]
            inside = tuple(root / module.name for root in searched if is_code_of(root, repository.top))
        if inside:
            found.append(Imported(module.name, inside))
    if not found:
        raise BadInput(_nothing(everything, repository))
    for module in found:
        _refuse_renamed(module)
        _refuse_compiled(module, repository)
    return tuple(found)


def _nothing(everything: list[Imported], repository: Repository) -> str:
    places = ", ".join(
        f"{module.name} ({', '.join(map(str, module.locations)) or 'not found'})" for module in everything
    )
    return (
        f"both sides would be the same code: no plugin comes from the repository {str(repository.top)!r}. "
        f"There are {places}. Install the project from its folder (pip install -e .), or {INTERPRETERS}"
    )


def _refuse_renamed(module: Imported) -> None:
    for place in module.locations:
        called = place.name if place.is_dir() else place.name.partition(".")[0]
        if called != module.name:
            raise BadInput(
                f"{module.name} is imported from {str(place)!r}, which is not named like the module, so a "
                f"checkout can't supply it: {INTERPRETERS}"
            )


def _refuse_compiled(module: Imported, repository: Repository) -> None:
    for place in module.locations:
        files = [place] if place.is_file() else place.rglob("*")
        compiled = {path for path in files if path.name.endswith((*EXTENSION_SUFFIXES, ".pyd"))}
        lacking = sorted(compiled - repository.tracked(place)) if compiled else []
        if lacking:
            raise BadInput(
                f"{module.name} has compiled code that git doesn't have, so that a checkout would lack it "
                f"({str(lacking[0].relative_to(repository.top))!r}): {INTERPRETERS}"
            )
