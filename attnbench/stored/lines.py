"""The lines of a run file with those fields alone that a comparison needs: all else is skipped undecoded."""

from __future__ import annotations

from msgspec import Struct, field

from attnbench.types.record import Status


class SlimBlock(Struct):
    """Of the samples of one stretch: how many calls each had, and how long they took."""

    calls: int
    wall_ns: list[int]


class SlimScale(Struct):
    """What the machine could do beside a set."""

    gemm_ns: dict[int, list[int]]
    copy_ns: list[int]
    empty_ns: list[float]


class SlimContender(Struct):
    """How the processes of a contender came to be: see :class:`attnbench.types.record.Contender`."""

    fresh: bool
    anew: bool = False


class SlimCase(Struct, tag="case", tag_field="kind"):
    """What a case amounts to, and who was measured on it."""

    case: str
    pairs: int
    flops: float
    bytes_moved: float
    contenders: dict[str, SlimContender] = field(default_factory=dict)


class SlimSet(Struct, tag="set", tag_field="kind"):
    """The samples of one set."""

    case: str
    index: int
    blocks: dict[str, list[SlimBlock]]
    scale: SlimScale | None = None


class SlimRecord(Struct, tag="record", tag_field="kind"):
    """What became of a backend on a case."""

    case: str
    rule: str
    backend: str
    status: Status
    reason: str = ""
    ratio: float | None = None


class SlimEnd(Struct, tag="end", tag_field="kind"):
    """That a run went to its end."""

    finished: str


class SlimManifest(Struct, tag="manifest", tag_field="kind"):
    """That another run begins."""

    run_id: str


SlimLine = SlimCase | SlimSet | SlimRecord | SlimEnd | SlimManifest
