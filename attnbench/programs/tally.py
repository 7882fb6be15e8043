"""Attention calls and their numbers, in files that survive the end of the process that wrote them."""

from __future__ import annotations

import json
import mmap
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import mkstemp

from attnbench.programs.begin import LOST
from attnbench.types.words import clean


@dataclass(frozen=True)
class Call:
    """The facts that calls of one case have in common.

    function: the name of what was called. B … Dv: as in a case. mask: as in an id. kept: of an explicit mask,
    about the share of pairs that it keeps. scale: None for 1/√D. dropout: its probability. threads: of
    the process, on a CPU. layout: as in a case, "" where no word says how the inputs lie in memory.
    operation, batch, storage: as in an id. rule: as in an id, "" for the one that the scale says.
    """

    function: str
    B: int
    H: int
    Hkv: int
    Lq: int
    Lk: int
    D: int
    Dv: int
    mask: str
    kept: float | None
    dtype: str
    device: str
    scale: float | None
    dropout: float
    threads: int
    layout: str
    operation: str = "attention"
    rule: str = ""
    batch: str = ""
    storage: str = "dense"


@dataclass(frozen=True)
class Unclassified:
    """Calls that no case can say. why: in words. by_hand: softmax outside of an attention function."""

    function: str
    why: str
    by_hand: bool = False


Kind = Call | Unclassified


@dataclass(frozen=True)
class Calls:
    """All that processes counted.

    counted: by kind, how often it ran forward, and how often backward. steps: of optimizers, over all
    processes. recording_s: time that recording took, over all processes. lost: for each process in which
    recording failed, why. forward_s: time that the forward calls of attention functions took, from call to
    return, over all threads; between_s: time from the first of them to the return of the last, without that
    of recording; 0 where several threads or processes made them.
    """

    counted: Mapping[Kind, tuple[int, int]]
    steps: int
    recording_s: float
    lost: tuple[str, ...] = ()
    forward_s: float = 0.0
    between_s: float = 0.0


_STEPS, RECORDING_NS, _FORWARD_NS, _BEGUN_NS, _ENDED_NS, _SEVERAL, _HEAD = range(7)
"""Places of numbers; the kinds of calls follow."""
_MOST = 1 << 16
"""Kinds of calls in one process; further ones are counted as the last one, which says so."""
_TOO_MANY = Unclassified("attention", f"more than {_MOST} kinds of calls")
_LINES, _NUMBERS = ".calls", ".numbers"


class CallTally:
    """The calls of one process; safe in threads.

    Each kind is a line of one file. Its numbers are in another file that is mapped into memory, so that the
    system keeps them however the process ends.

    Raises:
        OSError: there is no room for the files. :meth:`place` raises it too.
    """

    def __init__(self, folder: Path) -> None:
        handle, name = mkstemp(suffix=_NUMBERS, prefix=f"{os.getpid()}-", dir=folder)
        with os.fdopen(handle, "w+b") as file:
            # Written, not only made as long: where the disk gets full, a page without room would end the
            # program with SIGBUS.
            file.write(bytes(8 * (_HEAD + 2 * _MOST)))
            file.flush()
            self._numbers = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
        self._lines = Path(name).with_suffix(_LINES)
        self._lines.touch()
        self._places: dict[Kind, int] = {}
        self._caller: int | None = None
        self._lock = threading.RLock()  # A signal may come while it is held, and its handler may call.

    def place(self, kind: Kind) -> int:
        """Return the place of a kind's calls; that of their backward passes is the next one."""
        with self._lock:
            if kind not in self._places and len(self._places) >= _MOST - 1:
                kind = _TOO_MANY
            if kind not in self._places:
                # It may raise, before anything changed.
                line = json.dumps({type(kind).__name__: asdict(kind)})
                # Opened for each: a program that closes all files may have got the number of an open one.
                with self._lines.open("ab", buffering=0) as file:
                    file.write(f"{line}\n".encode())
                self._places[kind] = _HEAD + 2 * len(self._places)
            return self._places[kind]

    def step(self) -> int:
        """Count a step of an optimizer, and return how many there were."""
        self.add(_STEPS)
        return self._numbers[_STEPS]

    def took(self, begun_ns: int, ended_ns: int) -> None:
        """Note when a forward call of this thread began and ended, by a clock of this process."""
        with self._lock:
            self._caller = self._caller or threading.get_ident()
            self._numbers[_SEVERAL] |= self._caller != threading.get_ident()
            self._numbers[_FORWARD_NS] += ended_ns - begun_ns
            self._numbers[_BEGUN_NS] = min(self._numbers[_BEGUN_NS] or begun_ns, begun_ns)
            self._numbers[_ENDED_NS] = max(self._numbers[_ENDED_NS], ended_ns)

    def add(self, place: int, number: int = 1) -> None:
        """Add to the number at a place."""
        with self._lock:
            self._numbers[place] += number


def read_calls(folder: Path) -> Calls:
    """Return what the processes of a program wrote, the same kinds of calls together."""
    found: dict[Kind, tuple[int, int]] = {}
    steps = recording_ns = forward_ns = between_ns = callers = 0
    for path in sorted(folder.glob(f"*{_LINES}")):
        numbers = memoryview(path.with_suffix(_NUMBERS).read_bytes()).cast("q")
        steps += numbers[_STEPS]
        recording_ns += numbers[RECORDING_NS]
        forward_ns += numbers[_FORWARD_NS]
        between_ns += max(0, numbers[_ENDED_NS] - numbers[_BEGUN_NS] - numbers[RECORDING_NS])
        callers += (numbers[_ENDED_NS] > 0) + numbers[_SEVERAL]
        for at, kind in enumerate(_kinds(path.read_text(encoding="utf-8"))):
            forward, backward = found.get(kind, (0, 0))
            place = _HEAD + 2 * at
            found[kind] = forward + numbers[place], backward + numbers[place + 1]
    lost = tuple(clean(str(path.readlink())) for path in sorted(folder.glob(f"*{LOST}")))
    # Of several threads and processes nobody knows which of them wait for others.
    between_s = between_ns / 1e9 if callers == 1 else 0.0
    return Calls(found, steps, recording_ns / 1e9, lost, forward_ns / 1e9, between_s)


def _kinds(text: str) -> Iterator[Kind]:
    for line in text.splitlines(keepends=True):
        if line.endswith("\n"):  # Else the process was killed while it wrote it, and nothing was counted.
            (name, values), *_ = json.loads(line).items()
            # Texts come from the program: names of functions and files, messages.
            values = {key: clean(value) if isinstance(value, str) else value for key, value in values.items()}
            yield (Call if name == "Call" else Unclassified)(**values)
