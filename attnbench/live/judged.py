"""Whether two sides can be measured against each other, by what they say they have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from attnbench.live.facts import Facts
from attnbench.live.imported import INTERPRETERS
from attnbench.live.side import Side
from attnbench.types.errors import BadInput
from attnbench.worker.fingerprint import protocol_fingerprint
from attnbench.worker.not_from import is_code_of


def refuse_what_misleads(base: Side, head: Side, told: Mapping[str, Facts]) -> None:
    """Raise :class:`BadInput` where something else would be measured than what the sides are called.

    That is: a side whose workers say what this process doesn't understand, code that comes from elsewhere
    than its side, and two sides that are the same.
    """
    _refuse_protocol(base, head, told)
    for side in (base, head):
        _refuse_other_code(side, told[side.label])
    one, other = told[base.label], told[head.label]
    if (one.files, one.attnbench, one.versions) == (other.files, other.attnbench, other.versions):
        raise BadInput(
            f"both sides would be the same code: {base.name} and {head.name} have the same plugins from the "
            f"same files and the same libraries"
        )


def notes(side: Side, facts: Facts, known: Iterable[str]) -> Iterator[str]:
    """What a reader must know of a side, one sentence each.

    known: faults of plugins that this environment has anyhow.
    """
    for module, place in facts.elsewhere.items():
        found = f"; {place} is not it" if place else ""
        yield f"{side} has no module {module}{found}"
    for fault in facts.faults:
        if fault not in known:
            hint = "; a worktree has no files that git ignores" if side.tree and "not import" in fault else ""
            yield f"{side} has a plugin with a fault: {fault}{hint}"


def _refuse_protocol(base: Side, head: Side, told: Mapping[str, Facts]) -> None:
    others = [side for side in (base, head) if told[side.label].protocol != protocol_fingerprint()]
    if not others:
        return
    if len({told[side.label].protocol for side in (base, head)}) == 1:
        raise BadInput(
            f"both sides have an attnbench whose workers this one doesn't understand: compare with the "
            f"attnbench of the {head.label} side (from a checkout of {head.name}, or in its environment)"
        )
    raise BadInput(
        f"{others[0]} has an attnbench whose workers this one doesn't understand, so the two can't be "
        f"measured live: use the same attnbench on both sides, or make a run of each and compare their files"
    )


def _refuse_other_code(side: Side, facts: Facts) -> None:
    if "attnbench" in side.own and not is_code_of(facts.attnbench, side.tree):
        raise BadInput(_not_its_own(side, "attnbench", facts.attnbench))
    for module, place in facts.elsewhere.items():
        if place and _has(side, module):
            raise BadInput(_not_its_own(side, module, place))
    for file in facts.strays:
        raise BadInput(_not_its_own(side, "what its plugins need", file))


def _not_its_own(side: Side, what: str, place: str) -> str:
    return f"{side} would import {what} from {place!r}, and not from {side.tree!r}: {INTERPRETERS}"


def _has(side: Side, module: str) -> bool:
    """Whether the side's own tree has a module, whatever would be imported."""
    inner = Path(*module.split("."))
    roots = [Path(path) for path in side.paths if is_code_of(path, side.tree)]
    return any((root / inner).is_dir() or (root / inner).with_suffix(".py").is_file() for root in roots)
