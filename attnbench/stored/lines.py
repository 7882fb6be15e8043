"""The lines of a run file with those fields alone that a comparison needs: all else is skipped undecoded.

None can hold itself, so that the garbage collector need not look at hundreds of thousands of them.
"""

from __future__ import annotations

from msgspec import Struct, field

from attnbench.types.record import Status


class SlimBlock(Struct, gc=False):
    """Of the samples of one stretch: how many calls each had, and how long they took."""

    calls: int
    wall_ns: list[int]


class SlimScale(Struct, gc=False):
    """What the machine could do beside a set."""

    gemm_ns: dict[int, list[int]]
    copy_ns: list[int]
    empty_ns: list[float]


class SlimContender(Struct, gc=False):
    """How the processes of a contender came to be: see :class:`attnbench.types.record.Contender`."""

    fresh: bool
    anew: bool = False


class SlimCase(Struct, tag="case", tag_field="kind", gc=False):
    """What a case amounts to, and who was measured on it."""

    case: str
    pairs: int
    flops: float
    bytes_moved: float
    contenders: dict[str, SlimContender] = field(default_factory=dict)


class SlimSet(Struct, tag="set", tag_field="kind", gc=False):
    """The samples of one set."""

    case: str
    index: int
    blocks: dict[str, list[SlimBlock]]
    scale: SlimScale | None = None


class SlimRecord(Struct, tag="record", tag_field="kind", gc=False):
    """What became of a backend on a case."""

    case: str
    rule: str
    backend: str
    status: Status
    reason: str = ""
    ratio: float | None = None
    sets: int = 0


class SlimEnd(Struct, tag="end", tag_field="kind", gc=False):
    """That a run went to its end."""

    finished: str


class SlimManifest(Struct, tag="manifest", tag_field="kind", gc=False):
    """That another run begins."""

    run_id: str


SlimLine = SlimCase | SlimSet | SlimRecord | SlimEnd | SlimManifest
