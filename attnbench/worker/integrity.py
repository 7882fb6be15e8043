"""Whether the functions that time and compare are the ones that were there before any plugin was loaded.

A plugin shares its process with what times it. This sees names that lead elsewhere and functions with other
code; what was changed beneath Python the clocks of other processes must show.
"""

from __future__ import annotations

import os
import random
import secrets
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from operator import is_
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from attnbench.timing import cpu, cuda, graphs, memory, rotation, sample, timer, warmup
from attnbench.worker import (
    activity,
    answers,
    evidence,
    flip,
    flipped,
    guarding,
    hooks,
    outputs,
    renewal,
    shared,
    state,
    tensors,
    turns,
)

_OURS: tuple[ModuleType, ...] = (
    sample, cpu, rotation, timer, warmup, memory, cuda, graphs,
    turns, renewal, flip, flipped, evidence, answers, tensors, outputs, guarding,
    state, hooks, activity, shared,
)  # fmt: skip
_CLOCKS = (
    "perf_counter", "perf_counter_ns", "thread_time", "thread_time_ns", "process_time", "process_time_ns",
    "monotonic", "monotonic_ns", "time", "time_ns", "clock_gettime", "clock_gettime_ns",
)  # fmt: skip
_OF_TORCH = ("equal", "allclose", "isclose", "isnan", "empty", "full", "from_numpy", "Tensor")
_OF_CUDA = ("synchronize", "Event", "current_stream", "CUDAGraph", "graph")
_OF_TENSOR = (
    "__torch_function__", "clone", "contiguous", "copy_", "cpu", "data_ptr", "detach", "dtype", "equal",
    "is_inference", "neg_", "numpy", "shape", "stride", "storage_offset", "untyped_storage", "view",
    "_version",
)  # fmt: skip
_OF_THE_SYSTEM = ("pwrite", "eventfd_read", "eventfd_write", "urandom")


@dataclass(frozen=True)
class Reference:
    """What a name stood for: where it is stored, the object, and of a function what it does.

    before: of a class with others above it, where a name would hide the one that is meant.
    """

    place: Mapping[str, object]
    before: tuple[Mapping[str, object], ...]
    name: str
    words: str
    found: object
    does: tuple[object, ...]


@cache
def references() -> tuple[Reference, ...]:
    """What all those names stand for when this is first asked: at the start of a server."""
    return tuple(_refer(*each) for each in _named())


def replaced() -> str:
    """The first name that stands for something else by now, "" for none."""
    for reference in references():
        found = reference.place.get(reference.name)
        if found is not reference.found:
            return reference.words
        if reference.before and any(reference.name in each for each in reference.before):
            return reference.words
        if reference.does and not all(map(is_, _does(found), reference.does)):
            return reference.words
    return ""


def check_integrity(who: str) -> None:
    """Raise :class:`WrongOutput` where ``who`` ("the call") has replaced what times or compares."""
    words = replaced()
    if words:
        raise outputs.WrongOutput(f"{who} replaced {words}")


def _named() -> Iterator[tuple[Any, str, str]]:
    import torch

    for name in _CLOCKS:
        yield time, name, f"time.{name}"
    yield statistics, "median", "statistics.median"
    for name in _OF_THE_SYSTEM:
        yield os, name, f"os.{name}"
    # Which call's inputs change, and when, is drawn by these.
    for name in ("randbelow", "choice", "_sysrand"):
        yield secrets, name, f"secrets.{name}"
    for name in ("getrandbits", "_randbelow"):
        yield random.SystemRandom, name, f"random.SystemRandom.{name}"
    for name in ("allclose", "array_equal", "ascontiguousarray", "isclose", "unique"):
        yield np, name, f"numpy.{name}"
    for name in _OF_TORCH:
        yield torch, name, f"torch.{name}"
    yield torch.testing, "assert_close", "torch.testing.assert_close"
    for name in _OF_CUDA:
        yield torch.cuda, name, f"torch.cuda.{name}"
    for name in _OF_TENSOR:
        yield torch.Tensor, name, f"torch.Tensor.{name}"
    for module in _OURS:
        yield from _of_module(module)


def _of_module(module: ModuleType) -> Iterator[tuple[Any, str, str]]:
    """Every name in a module of ours, and in its own classes."""
    for name, value in vars(module).items():
        if name.startswith("__"):
            continue
        words = f"{module.__name__}.{name}"
        yield module, name, words
        if isinstance(value, type) and value.__module__ == module.__name__:
            for part, inside in vars(value).items():
                if isinstance(inside, FunctionType | staticmethod | property):
                    yield value, part, f"{words}.{part}"


def _refer(owner: Any, name: str, words: str) -> Reference:
    """The name where it is stored, so that a method is the same object each time."""
    places = [vars(each) for each in (owner.__mro__ if isinstance(owner, type) else (owner,))]
    at = next((number for number, each in enumerate(places) if name in each), 0)
    found = places[at].get(name)
    return Reference(places[at], tuple(places[:at]), name, words, found, _does(found))


def _does(found: object) -> tuple[object, ...]:
    function = found.__func__ if isinstance(found, staticmethod) else found
    if not isinstance(function, FunctionType):
        return ()
    return function.__code__, function.__defaults__, function.__closure__
