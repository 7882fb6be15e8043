"""Two sides of a live comparison: what a backend on one of them is called as a contender."""

from __future__ import annotations

BASE, HEAD = "base", "head"
SIDES = (BASE, HEAD)


def sided(backend: str, side: str) -> str:
    """What a backend on a side is called as a contender, ``eager@head``; its own name where there is none."""
    return f"{backend}@{side}" if side else backend


def parts_of(contender: str) -> tuple[str, str]:
    """The backend and the side of a contender; the side is "" in runs that have none."""
    backend, _, side = contender.partition("@")
    return backend, side


def baseline_of(contender: str, baseline: str) -> str:
    """Whom the ratio of a contender refers to: on a side, to the same backend on the base side."""
    backend, side = parts_of(contender)
    return sided(backend, BASE) if side else baseline
