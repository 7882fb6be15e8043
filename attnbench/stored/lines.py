"""The lines of a run file as a comparison needs them: of samples, which are nearly all of it, two columns.

The other columns of samples are skipped undecoded; all other lines are decoded whole, so that damage anywhere
in them is found. No slim line can hold itself: the garbage collector need not look at them.
"""

from __future__ import annotations

from msgspec import Struct

from attnbench.types.record import CaseLine, EndLine, Record


class SlimBlock(Struct, gc=False):
    """Of the samples of one stretch: how many calls each had, and how long they took."""

    calls: int
    wall_ns: list[int]


class SlimScale(Struct, gc=False):
    """What the machine could do beside a set."""

    gemm_ns: dict[int, list[int]]
    copy_ns: list[int]
    empty_ns: list[float]


class SlimSet(Struct, tag="set", tag_field="kind", gc=False):
    """The samples of one set."""

    case: str
    index: int
    blocks: dict[str, list[SlimBlock]]
    scale: SlimScale | None = None


class SlimManifest(Struct, tag="manifest", tag_field="kind", gc=False):
    """That another run begins."""

    run_id: str


SlimLine = CaseLine | SlimSet | Record | EndLine | SlimManifest
