"""Problems: the dense cases that a case consists of, and the tensors that hold them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import ClassVar

from attnbench.types.batch import batch_text, parse_batch
from attnbench.types.case import LARGEST_SEED, Case
from attnbench.types.encoding import encoding_of, is_encoded
from attnbench.types.operation import TensorSpec, operation_of
from attnbench.types.rule import Rule
from attnbench.types.storage import Storage, storage_of

UPSTREAM = "upstream"
"""The gradient of the output, or the first of several, which come with the inputs in cases with gradients."""


@dataclass(frozen=True)
class ProblemCase(Case):
    """One sequence of a batch as a dense case, with lengths that may be 0."""

    number: int = 0
    """Of the sequence, from 0."""
    cache_seed: int = 0
    """Of what an encoding draws for the cache of all sequences, of its own for each draw."""
    fewest: ClassVar[int] = 0


@lru_cache(maxsize=64)
def problems_of(case: Case) -> tuple[Case, ...]:
    """Return the problems of a case: itself, or one for each sequence of its batch."""
    if not case.batch:
        return (case,)
    own = {field.name: getattr(case, field.name) for field in fields(Case)}
    own |= {"B": 1, "batch": "", "storage": "dense", "sizes": ()}
    return tuple(
        ProblemCase(**own | {"Lq": queries, "Lk": keys, "seed": mixed(case.seed, number), "number": number})
        for number, (queries, keys) in enumerate(parse_batch(case.batch))
    )


def mixed(seed: int, number: int) -> int:
    """Return the seed of a problem: sequences of equal lengths have unlike numbers. Number 0 keeps it."""
    if number == 0:
        return seed
    digest = hashlib.sha256(f"{seed} {number}".encode()).digest()
    return int.from_bytes(digest[:8], "little") & LARGEST_SEED


def chosen(case: Case, numbers: Sequence[int]) -> Case:
    """Return the case of some sequences of a batch, in any order; its seed is that of the first one."""
    lengths = parse_batch(case.batch)
    return replace(with_lengths(case, [lengths[n] for n in numbers]), seed=mixed(case.seed, numbers[0]))


def with_lengths(case: Case, lengths: Sequence[tuple[int, int]]) -> Case:
    """Return a case whose batch has other sequences, by their numbers of queries and keys.

    Raises:
        BadCase: there is no such case.
    """
    Lq, Lk = (max(each) for each in zip(*lengths, strict=True))
    return replace(case, batch=batch_text(tuple(lengths)), B=len(lengths), Lq=Lq, Lk=Lk)


def is_empty(problem: Case) -> bool:
    """Return whether a problem has no query or no key."""
    return problem.Lq == 0 or problem.Lk == 0


Held = tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]
"""A tensor of the operation in each problem, and the stored tensors that hold it."""


def held_inputs(case: Case, rule: Rule, storage: Storage) -> tuple[Held, ...]:
    """Return for each input, as the case encodes it, how it is held."""
    by_problem = [stored_inputs(problem, rule) for problem in problems_of(case)]
    return _held(case, storage, by_problem)


def encoded_specs(case: Case, rule: Rule) -> tuple[TensorSpec, ...]:
    """Return those inputs of the operation that an encoding holds, as the operation has them."""
    operation = operation_of(case)
    return tuple(spec for spec in operation.inputs(case, rule) if spec.name in operation.encoded)


def stored_inputs(problem: Case, rule: Rule) -> tuple[TensorSpec, ...]:
    """Return the inputs of a problem as its encoding holds them; codes and scales follow the others."""
    specs = operation_of(problem).inputs(problem, rule)
    if not is_encoded(problem):
        return specs
    held = encoded_specs(problem, rule)
    others = tuple(spec for spec in specs if spec not in held)
    return (*others, *encoding_of(problem).tensors(problem, held))


def kept_inputs(case: Case, rule: Rule) -> tuple[str, ...]:
    """Return the names of the inputs that a program keeps between calls, so that a backend may convert them.

    Those that the storage keeps, as pages; and what an encoding holds, which is a cache in any storage.
    """
    storage = storage_of(case)
    if not is_encoded(case):
        return storage.kept
    plain = {spec.name for spec in operation_of(case).inputs(case, rule)} - {*operation_of(case).encoded}
    held = (spec for _, stored in held_inputs(case, rule, storage) for spec in stored)
    return (*storage.kept, *(spec.name for spec in held if spec.name not in plain))


def held_outputs(case: Case, storage: Storage) -> tuple[Held, ...]:
    """Return for each output of the operation how it is held."""
    return _held(case, storage, [operation_of(case).outputs(problem) for problem in problems_of(case)])


def graded_outputs(case: Case) -> tuple[TensorSpec, ...]:
    """Return the outputs of the operation that gradients come from."""
    operation = operation_of(case)
    outputs = operation.outputs(case)
    return tuple(spec for spec in outputs if spec.name in operation.graded) or outputs[:1]


def upstream_name(output: str) -> str:
    """Return the name of the gradient of an output that is not the first."""
    return f"{UPSTREAM}_{output}"


def is_upstream(name: str) -> bool:
    """Return whether a name, as ``upstream`` or ``0.upstream``, is that of the gradient of an output."""
    own = name.rpartition(".")[2]
    return own == UPSTREAM or own.startswith(upstream_name(""))


def upstreams_of(case: Case) -> tuple[TensorSpec, ...]:
    """Return the gradients of outputs, in the order of :func:`graded_outputs`."""
    first = operation_of(case).outputs(case)[0]
    return tuple(
        replace(spec, name=UPSTREAM if spec == first else upstream_name(spec.name))
        for spec in graded_outputs(case)
    )


def held_upstreams(case: Case, storage: Storage) -> tuple[Held, ...]:
    """Return for each gradient of an output how it is held."""
    return _held(case, storage, [upstreams_of(problem) for problem in problems_of(case)])


def _held(case: Case, storage: Storage, by_problem: list[tuple[TensorSpec, ...]]) -> tuple[Held, ...]:
    return tuple((specs, storage.tensors(case, specs)) for specs in zip(*by_problem, strict=True))


def call_inputs(case: Case, rule: Rule, storage: Storage | None = None) -> tuple[TensorSpec, ...]:
    """Return the tensors that a call takes, in the order of its arguments. storage: None for the case's."""
    storage = storage or storage_of(case)
    stored = (spec for _, held in held_inputs(case, rule, storage) for spec in held)
    return (*stored, *(replace(spec, ahead=True) for spec in storage.planned(case)))


def call_outputs(case: Case, storage: Storage | None = None) -> tuple[TensorSpec, ...]:
    """Return the tensors that a call returns, in their order. storage: None for the case's."""
    return tuple(spec for _, held in held_outputs(case, storage or storage_of(case)) for spec in held)
