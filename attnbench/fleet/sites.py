"""Sites: the places of a fleet with the facts of their machines, as ``--where`` chooses them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

import msgspec

from attnbench.fleet.facts import DeviceFacts, kind_of
from attnbench.types.device import DEVICES
from attnbench.types.errors import AttnbenchError, BadInput, MeasuringFailed
from attnbench.types.fleet import Ended, Fleet, Pieces, Place, PlaceLost, Task
from attnbench.types.words import clean


@dataclass(frozen=True)
class Site:
    """A place with the facts of its machine. kind: of its device."""

    place: Place
    facts: DeviceFacts
    kind: str

    @property
    def words(self) -> Mapping[str, str]:
        """What ``--where`` chooses by."""
        gpu = {} if DEVICES[self.place.device].on_host else {"gpu": self.kind}
        return {"place": self.place.name, "cpu": self.facts.cpu, **gpu, **self.place.facts}


def pieces_of(fleet: Fleet, place: Place, task: Task) -> Pieces:
    """Run a task on a place, and yield its pieces.

    Raises:
        PlaceLost: the place went away, or its executor failed.
    """
    try:
        with closing(fleet.run(place, task)) as pieces:
            for piece in pieces:
                if not isinstance(piece, bytes | Ended):
                    raise PlaceLost(f"its executor yields a {type(piece).__name__} where bytes belong")
                yield piece
    except (PlaceLost, AttnbenchError):
        raise
    except Exception as failure:
        raise PlaceLost(f"its executor failed: {type(failure).__name__}: {failure}") from failure


def ask(fleet: Fleet, place: Place, task: Task) -> Ended:
    """Return the end of a task on a place; raises :class:`PlaceLost` if the place went away."""
    for piece in pieces_of(fleet, place, task):
        if isinstance(piece, Ended):
            return piece
    raise PlaceLost("the task ended without a word")


def site_of(fleet: Fleet, place: Place, task: Task) -> Site:
    """Return a place with its facts, which a task reads.

    Raises:
        PlaceLost: it went away. MeasuringFailed, BadInput: attnbench does not run there, or its device is not
            there.
    """
    ended = ask(fleet, place, task)
    if ended.status:
        raise MeasuringFailed(last_line(ended))
    try:
        facts = msgspec.json.decode(ended.stdout, type=DeviceFacts)
    except msgspec.MsgspecError as failure:
        raise MeasuringFailed(f"its facts can't be read: {failure}") from failure
    return Site(place, facts, kind_of(facts, place.device))


def last_line(ended: Ended) -> str:
    """Return why a task failed: the signal that killed it, else its last words.

    The last words of a killed process are of what it did before.
    """
    if ended.status < 0:
        return f"its process was killed by signal {-ended.status}"
    lines = ended.stderr.strip().splitlines() or [f"it ended with status {ended.status}, and said nothing"]
    return clean(lines[-1].removeprefix("attnbench: "))


def sites_of(fleet: Fleet, task: Task, where: Sequence[str], tell: Callable[[str], None]) -> list[Site]:
    """Return the places that answer and that ``where`` chooses; they are asked all at once.

    where: words as ``gpu=H100,A100``: one of these texts is in the fact of this name, in any case. tell: is
    told of places that can't be used.

    Raises:
        BadInput: a word has another form, or leaves no place. MeasuringFailed: no place can be used.
    """
    wanted = [_wanted(word) for word in where]

    def answer(place: Place) -> Site | None:
        try:
            try:
                return site_of(fleet, place, task)
            except PlaceLost:
                # The engine's process was lost, and perhaps not its machine.
                return site_of(fleet, place, task)
        except (PlaceLost, MeasuringFailed, BadInput) as failure:
            tell(f"{place.name} is left out: {clean(str(failure))}")
            return None

    with ThreadPoolExecutor(max(1, len(fleet.places))) as threads:
        sites = [site for site in threads.map(answer, fleet.places) if site is not None]
    if not sites:
        raise MeasuringFailed("no place of the fleet can be used")
    for name, texts in wanted:
        known = {site.words[name] for site in sites if name in site.words}
        sites = [site for site in sites if any(text in site.words.get(name, "").lower() for text in texts)]
        if not sites:
            has = f"{name} can be {', '.join(sorted(known))}" if known else "no place says it"
            raise BadInput(f"--where {name}={','.join(texts)} leaves no place: {has}")
    return sites


def _wanted(word: str) -> tuple[str, list[str]]:
    name, _, texts = word.partition("=")
    if not (name and texts):
        raise BadInput(f"--where {word!r}: give NAME=TEXT, for example gpu=H100 or gpu=H100,A100")
    return name, texts.lower().split(",")
