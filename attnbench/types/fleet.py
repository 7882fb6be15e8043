"""Executors: engines that start attnbench on the devices of many machines, and what passes between both."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from msgspec import Struct


class Task(Struct, frozen=True):
    """One process of Python, in an empty folder of its own.

    words: a module and its arguments, as after ``python -m``. files: the files that the words name, by their
    paths in the folder. follow: the file whose bytes are sent home while it grows; "" for none. variables:
    of the environment, besides those of the machine. dropped: beginnings of the names of variables that the
    engine sets and that the process must not see.
    """

    words: tuple[str, ...]
    files: dict[str, bytes] = {}
    follow: str = ""
    variables: dict[str, str] = {}
    dropped: tuple[str, ...] = ()


class Ended(Struct, frozen=True):
    """The end of a task: the exit status of its process, and what it printed."""

    status: int
    stdout: str
    stderr: str


Pieces = Generator[bytes | Ended, None, None]
"""A message of a task to its home: the bytes of the followed file as they come, then its end."""


@dataclass(frozen=True)
class Place:
    """A device of a machine, which runs one task at a time.

    name: for people, as "node2 gpu0". device: the name of the kind of device that it is for. facts: what the
    engine knows of it, by name, for ``--where``.
    """

    name: str
    device: str
    facts: Mapping[str, str] = field(default_factory=dict)


class PlaceLost(Exception):  # noqa: N818
    """A machine, or the engine's process on it, went away during a task; the text says what is known."""


@dataclass(frozen=True)
class Fleet:
    """The places of an engine, in order.

    run: ``run(place, task)`` runs a task alone on a place. It yields the bytes of the followed file as they
    come, and :class:`Ended` at the end. Raises :class:`PlaceLost`. If the caller stops early, the process
    ends. Tasks of several places run at once, each called from a thread of its own.
    """

    places: tuple[Place, ...]
    run: Callable[[Place, Task], Pieces]


@dataclass(frozen=True)
class Executor:
    """An engine: the value of ``--on``.

    name, summary: its name, and what it is in one line. connect: ``connect(address)`` is a context manager
    that yields a :class:`Fleet`; the address is what follows the name in ``--on NAME:ADDRESS``, or "". At its
    end no task runs any more. It raises :class:`attnbench.BadInput` for an address that can't be used.
    """

    name: str
    summary: str
    connect: Callable[[str], AbstractContextManager[Fleet]]
