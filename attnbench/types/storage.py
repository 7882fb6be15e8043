"""Storages: where the numbers of a case lie. A storage moves bits, and never rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from attnbench.types.encoding import encoding_of, is_encoded
from attnbench.types.errors import BadCase
from attnbench.types.operation import TensorSpec, operation_of
from attnbench.types.size import Size
from attnbench.types.words import unknown_name

if TYPE_CHECKING:
    from attnbench.types.case import Case
    from attnbench.types.rule import Rule

    Specs = tuple[TensorSpec, ...]


RUN, KEYS_OF_RUN = "r", 32
"""The letter of an axis of runs of so many neighbouring keys of a sequence. Its last run may be short. A run
lies in a page of its own where pages have as many keys."""


def of_all(spec: TensorSpec) -> bool:
    """Return whether a tensor is one and the same for all sequences of a batch: no axis counts them."""
    return bool(spec.axes) and "b" not in spec.axes


@dataclass(frozen=True)
class Shared:
    """The first keys of a sequence, which are those of another: both are read from the same places."""

    number: int
    """Of the sequence, from 0."""
    first: int
    """The number of the other, which itself shares none of an earlier one."""
    keys: int
    """How many."""


@dataclass(frozen=True)
class Storage:
    """Where the numbers of the problems of a case lie.

    A tensor of the operation comes as its :class:`TensorSpec` in each problem, with the letters of its axes
    and its shape there. The functions must do for any tensor of these letters: inputs, outputs, the gradient
    that comes from above (named ``upstream``) and gradients, also of other dtypes.

    What a storage may choose, as the order of pages, it draws from the seed of the case that ``put``,
    ``take`` and ``plan`` get: a seed of its own for each draw of the check and each repetition of timed
    calls, the same for all tensors of one call. Backends never see it, and it does not follow from the id.
    Shapes must not depend on it.
    """

    name: str
    """A segment of ids."""
    summary: str
    """How numbers lie, one line."""
    tensors: Callable[[Case, Specs], Specs]
    """``tensors(case, specs)`` returns the stored tensors that hold one of the operation."""
    put: Callable[[Case, Specs, Sequence[Any]], Sequence[Any]]
    """``put(case, specs, arrays)`` returns the arrays of these tensors, from one NumPy array a problem."""
    take: Callable[[Case, Specs, Sequence[Any]], Sequence[Any]]
    """``take(case, specs, stored)`` returns one array a problem; it undoes ``put``."""
    changed: Callable[[Case, Specs, Sequence[Any]], str] = lambda case, specs, stored: ""
    """``changed(case, specs, stored)`` says in words what of an output is not as calls must leave it: places
    that hold no number of the case. "" for nothing."""
    planned: Callable[[Case], Specs] = lambda case: ()
    """Tensors that say where numbers lie, as lengths and tables. They follow the inputs in a call."""
    plan: Callable[[Case], Mapping[str, Any]] = lambda case: {}
    """Their arrays by name."""
    shares: Callable[[Case], tuple[Shared, ...]] = lambda case: ()
    """Says which keys and values sequences have in common in a draw; the draw then makes them equal. Not for
    every seed: inputs whose sequences change by themselves have a seed without any."""
    severity: Callable[[Case], int] = lambda case: 0
    """Says how hard what a draw puts into places without a number is for kernels, from 0; only the seeds of
    cases differ. The draws of a check begin with the mildest and end with the hardest."""
    kept: tuple[str, ...] = ()
    """Inputs that a program keeps between calls, as a cache: a backend may convert them."""
    touched: Callable[[Case, Rule], int] | None = None
    """Counts the bytes of inputs that a call must read; None for those of kept queries and keys."""
    used: Callable[[Case], float] = lambda case: 1.0
    """Returns the share of places of the largest inputs that hold numbers: calls touch no others, so cold
    inputs need more copies to fill a cache."""
    sizes: tuple[Size, ...] = ()
    refuses: Callable[[Case], str | None] = lambda case: None
    """Returns the reason why a case can't have this storage, or None."""
    baseline: str = ""
    """The backend that ratios of its cases refer to, unless the user or a suite names one; "" for none."""


DENSE = Storage(
    name="dense",
    summary="one problem, each tensor as the operation has it",
    tensors=lambda case, specs: specs,
    put=lambda case, specs, arrays: arrays,
    take=lambda case, specs, stored: stored,
    baseline="eager",
)


def _numbered(case: Case, specs: Specs) -> Specs:
    return tuple(
        replace(spec, name=f"{number}.{spec.name}", memory=spec.memory and f"{number}.{spec.memory}")
        for number, spec in enumerate(specs)
    )


APART = Storage(
    name="apart",
    summary="a tensor of its own for each sequence: 0.q, 1.q, …, 0.k, 1.k, …",
    tensors=_numbered,
    put=lambda case, specs, arrays: arrays,
    take=lambda case, specs, stored: stored,
)

_BUILT_IN = "attnbench.storages"
# Ids name storages; each process learns the names that its plugins bring.
_known: dict[str, Storage] = {}


def make_storages_known(storages: Iterable[Storage]) -> None:
    """Let cases in this process use these storages."""
    _known.update((storage.name, storage) for storage in storages)


def known_storages() -> Mapping[str, Storage]:
    """Return the storages that cases in this process can use, by name."""
    if DENSE.name not in _known:
        make_storages_known(import_module(_BUILT_IN).attnbench_storages())
    return _known


def storage_named(name: str) -> Storage:
    """Return the storage of that name.

    Raises:
        BadCase: no plugin loaded in this process brings it.
    """
    known = known_storages()
    if name not in known:
        raise BadCase(unknown_name("storage", name, tuple(known)))
    return known[name]


def storage_of(case: Case) -> Storage:
    """Return the storage of a case."""
    return storage_named(case.storage)


def baseline_in(case: Case, named: str) -> str:
    """Return the backend that ratios of a case refer to.

    named: by the run; "" for that of the operation, or else of the encoding or storage.
    """
    own = encoding_of(case).baseline if is_encoded(case) else storage_of(case).baseline
    return named or operation_of(case).baseline or own


def sizes_of(case: Case) -> dict[str, int]:
    """Return the sizes of a case's storage by name: as the case chooses them, else their defaults."""
    return {size.name: size.default for size in storage_of(case).sizes} | dict(case.sizes)
