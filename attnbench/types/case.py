"""Cases: one thing to compute, as a frozen value, and the shapes that follow from a case and its rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import ClassVar, Literal, get_args

from attnbench.types.batch import batch_text, parse_batch
from attnbench.types.device import CPU, DEVICES
from attnbench.types.encoding import encoding_of, names_encoding, parse_encoding
from attnbench.types.errors import BadCase
from attnbench.types.mask import EVERYTHING, Mask
from attnbench.types.mask_base import check_choice, check_whole
from attnbench.types.operation import Shape, operation_of
from attnbench.types.rule import Rule
from attnbench.types.size import Chosen, wrong_size
from attnbench.types.storage import storage_named

Dtype = Literal["float64", "float32", "bfloat16", "float16"]
Pass = Literal["forward", "backward", "both"]
CacheMode = Literal["hot", "rotating"]

DTYPES: tuple[Dtype, ...] = get_args(Dtype)
AUTOCAST: tuple[Dtype, ...] = ("bfloat16", "float16")
"""The dtypes that torch.autocast computes in."""
PASSES: tuple[Pass, ...] = get_args(Pass)
NICKNAMES: dict[str, Dtype] = {
    "f64": "float64", "fp64": "float64", "f32": "float32", "fp32": "float32", "bf16": "bfloat16",
    "f16": "float16", "fp16": "float16", "half": "float16",
}  # fmt: skip
"""Other names of dtypes, which are understood on the command line, in ids and in suites."""
CACHE_MODES: tuple[CacheMode, ...] = get_args(CacheMode)
WITH_ROOM = {"BHCD": "BHLD", "BCHD": "BLHD"}
"""Orders of keys and values that are the first positions of a cache with room for more, C in all; behind each
the order without room."""
ORDERS = ("BHLD", "BLHD", "LBHD", "BL3HD", *WITH_ROOM)
"""Orders of elements in memory; in BL3HD q, k and v lie side by side, as one projection makes them."""
LARGEST = 2**31 - 1
"""The largest value of every size."""
LARGEST_SEED = 2**63 - 1

ITEM_BYTES: dict[Dtype, int] = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class Layer:
    """The layer around the heads, of the operation ``multihead``.

    E: width of the model, the last axis of x. bias: whether projections add one. out: whether an output
    projection follows the merged heads. cross: whether keys and values have a source of their own even where
    Lq = Lk.
    """

    E: int
    bias: bool = False
    out: bool = True
    cross: bool = False


@dataclass(frozen=True)
class Case:
    """One thing to compute. The same case has the same bits of input on every machine.

    Sizes: B batch, H query heads, Hkv key/value heads (H is a multiple of it), Lq queries, Lk keys, D
    features of q and k, Dv features of v and of the output.

    constants: numbers of the rule that differ from its defaults, (name, value) in the order of their names.

    layout: in which order the elements of q, k and v lie in memory: one of :data:`ORDERS` for all, or one for
    each, as ``BLHD_BHLD_BHLD``. One of :data:`WITH_ROOM` is for k and v, and q has none. The output then lies
    as q does, with nothing beside it, as torch's function leaves it; a copy that this takes is part of what
    is timed. With ``own`` each backend gets contiguous inputs in the order that it takes, and nothing is
    copied.

    dropout: the probability p of dropout on the weights, 0 for none. After the softmax each weight is set to
    0 with probability p, independently and differently in every call; the others are divided by 1 - p.

    batch: sequences of unlike lengths, as :mod:`attnbench.types.batch` writes them; "" for B equal ones. With
    a batch B is the number of its sequences, and Lq and Lk are the longest lengths: what is computed follows
    from :func:`attnbench.types.problem.problems_of`. storage: the name of the
    :class:`attnbench.types.storage.Storage` that says where their numbers lie; sizes: those of its sizes that
    differ from the defaults, (name, value) in the order of their names.

    returns: further outputs of the operation, as ``("lse",)``. operation_sizes: those of its sizes that
    differ from the defaults, (name, value) in the order of their names.

    kv: how keys and values are held: the name of an :class:`attnbench.types.encoding.Encoding` with the grain
    of its scales, as ``int8:head``; ``dtype`` for numbers of the dtype.

    Raises:
        BadCase: the case can't exist; the text restates the input.
    """

    operation: str
    rule: str
    B: int
    H: int
    Hkv: int
    Lq: int
    Lk: int
    D: int
    Dv: int
    layer: Layer | None = None
    mask: Mask = EVERYTHING
    dtype: Dtype = "float32"
    device: str = CPU.name
    pass_: Pass = "forward"
    cache: CacheMode = "hot"
    threads: int = 1
    seed: int = 0
    dropout: float = 0.0
    layout: str = "own"
    constants: tuple[tuple[str, float], ...] = ()
    batch: str = ""
    storage: str = "dense"
    sizes: Chosen = ()
    returns: tuple[str, ...] = ()
    kv: str = "dtype"
    operation_sizes: Chosen = ()

    fewest: ClassVar[int] = 1
    """The least Lq and Lk."""

    def __post_init__(self) -> None:
        operation = operation_of(self)
        if not isinstance(self.mask, Mask):
            raise BadCase(f'mask = {self.mask!r}: give a Mask, as attnbench.Mask(causal="upper_left")')
        check_choice("dtype", self.dtype, DTYPES)
        check_choice("device", self.device, tuple(DEVICES))
        check_choice("pass", self.pass_, PASSES)
        check_choice("cache mode", self.cache, CACHE_MODES)
        for name in ("B", "H", "Hkv", "Lq", "Lk", "D", "Dv", "threads"):
            least = self.fewest if name in ("Lq", "Lk") else 1
            _check_range(name, getattr(self, name), least, LARGEST, "sizes are")
        if self.layer is not None:
            _check_range("E", self.layer.E, 1, LARGEST, "sizes are")
        _check_range("seed", self.seed, 0, LARGEST_SEED, "a seed is")
        p = self.dropout
        if isinstance(p, bool) or not isinstance(p, int | float) or not 0 <= p < 1:
            raise BadCase(f"dropout = {p!r}: give a probability from 0 to less than 1")
        if p and self.pass_ != "forward":
            raise BadCase(f"dropout = {p!r} works in the forward pass only, not in {self.pass_!r}")
        _check_layout(self.layout)
        names = [name for name, _ in self.constants]
        if names != sorted(set(names)):
            raise BadCase(f"the constants {', '.join(names)}: give each once, in the order of their names")
        for name, value in self.constants:
            if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
                raise BadCase(f"{name} = {value!r}: give a finite number")
        if self.H % self.Hkv:
            raise BadCase(
                f"H = {self.H} is not a multiple of Hkv = {self.Hkv}: "
                "each key/value head serves the same number of query heads"
            )
        _check_returns(self)
        _check_storage(self)
        _check_encoding(self)
        whose = f"the operation {self.operation}"
        refused = wrong_size(whose, operation.sizes, self.operation_sizes) or operation.refuses(self)
        if refused is not None:
            raise BadCase(refused)
        for word in self.mask.words:
            refused = word.refuses(self)
            if refused is not None:
                raise BadCase(refused)

    @property
    def on_host(self) -> bool:
        """Whether calls run in threads of the process that makes them, on memory of the machine."""
        return DEVICES[self.device].on_host

    @property
    def group(self) -> int:
        """The number of query heads that share a key/value head."""
        return self.H // self.Hkv

    @property
    def is_decode(self) -> bool:
        """Whether it is attention of one query, whose keys and values a program finds in no cache."""
        return self.operation == "attention" and self.Lq == 1

    @property
    def is_self_attention(self) -> bool:
        """True if queries, keys and values come from one x (in ``multihead``)."""
        return self.layer is not None and self.Lq == self.Lk and not self.layer.cross

    @property
    def query_offset(self) -> int:
        """The position of query 0 on the key axis; see :meth:`Mask.query_offset`."""
        return self.mask.query_offset(self.Lq, self.Lk)

    def constant(self, name: str, default: float) -> float:
        """Return a constant of the rule, ``default`` where the case chooses none."""
        return dict(self.constants).get(name, default)

    def size(self, name: str) -> int:
        """Return a size of the operation, its default where the case chooses none."""
        default = next(size.default for size in operation_of(self).sizes if size.name == name)
        return dict(self.operation_sizes).get(name, default)

    @property
    def item_bytes(self) -> int:
        """Bytes of one element in the dtype of the case."""
        return ITEM_BYTES[self.dtype]


def orders_of(layout: str) -> tuple[str, ...]:
    """Return the orders of q, k and v that a layout names."""
    words = tuple(layout.split("_"))
    if len(words) > 1:
        return words
    return WITH_ROOM.get(layout, layout), layout, layout


def layout_named(orders: Sequence[str]) -> str:
    """Return the layout with these orders of q, k and v: one word where one says it."""
    return next((word for word in ORDERS if orders_of(word) == tuple(orders)), "_".join(orders))


def _check_layout(layout: str) -> None:
    if layout == "own":
        return
    orders = orders_of(layout)
    if len(orders) != 3 or not set(orders) <= set(ORDERS):
        words = f"give own, one of {', '.join(ORDERS)}, or three for q, k and v, for example BLHD_BHLD_BHLD"
        raise BadCase(f"layout = {layout!r}: {words}")
    if orders[0] in WITH_ROOM:
        raise BadCase(f"layout = {layout!r}: q has no room for more; give {WITH_ROOM[orders[0]]} for it")
    if layout != layout_named(orders):
        raise BadCase(f"layout = {layout!r}: give {layout_named(orders)}, which stands for q, k and v")


def _check_returns(case: Case) -> None:
    if list(case.returns) != sorted(set(case.returns)):
        raise BadCase(f"returns = {case.returns!r}: give each once, in the order of their names")
    if case.returns and case.pass_ == "backward":
        raise BadCase(f"{case.returns[0]} is an output, and the pass 'backward' returns none: take 'both'")
    if case.returns and case.dropout:
        raise BadCase(f"{case.returns[0]} can't be checked with dropout: leave one of them out")


def _check_storage(case: Case) -> None:
    """Raise :class:`BadCase` unless batch, storage and sizes go together."""
    storage = storage_named(case.storage)
    if (refused := wrong_size(f"the storage {storage.name}", storage.sizes, case.sizes)) is not None:
        raise BadCase(refused)
    if not case.batch:
        if case.storage != "dense":
            raise BadCase(f"the storage {case.storage} needs a batch, as 2q16_3q1s64")
        return
    if case.storage == "dense":
        raise BadCase(f"batch = {case.batch!r}: name the storage of its sequences; dense holds equal ones")
    lengths = parse_batch(case.batch)
    if case.batch != batch_text(lengths):
        raise BadCase(f"batch = {case.batch!r}: write {batch_text(lengths)!r}")
    longest = len(lengths), max(q for q, _ in lengths), max(k for _, k in lengths)
    if (case.B, case.Lq, case.Lk) != longest:
        raise BadCase(f"batch = {case.batch!r} has B, Lq, Lk = {longest}, not {(case.B, case.Lq, case.Lk)}")
    for refused in (_of_batches(case), storage.refuses(case)):
        if refused is not None:
            raise BadCase(refused)


def _check_encoding(case: Case) -> None:
    """Raise :class:`BadCase` unless the case can have its encoding."""
    if not names_encoding(case):
        return
    if case.kv != (whole := parse_encoding(case.kv)):
        raise BadCase(f"kv={case.kv}: write {whole!r}")
    for refused in (_of_encodings(case), encoding_of(case).refuses(case)):
        if refused is not None:
            raise BadCase(f"kv={case.kv}: {refused}")


def _of_encodings(case: Case) -> str | None:
    """Return what encoded keys and values can't have, or None."""
    if not (operation_of(case).encoded or operation_of(case).rounds):
        return f"{case.operation} has no keys and values to encode"
    if case.pass_ != "forward":
        return f"codes have no gradients: take the forward pass, not {case.pass_!r}"
    if case.dropout:
        return "codes have no dropout: only inputs in the dtype can be checked with it"
    if case.layout != "own":
        return f"codes and scales have an order of their own, and no layout {case.layout}"
    return None


def _of_batches(case: Case) -> str | None:
    """Return what a batch can't have, or None."""
    if case.dropout:
        return "a batch has no dropout: only equal sequences can be checked with it"
    if case.layout != "own":
        return f"a batch has a storage, and no layout {case.layout}"
    if not case.mask.ignores("b") and case.mask.lengths(case) is not None:
        return "a batch says how long its sequences are: leave out padding"
    return None


def _check_range(name: str, value: int, least: int, most: int, words: str) -> None:
    check_whole(name, value)
    if value < least:
        raise BadCase(f"{name} = {value}: {words} {least} or more")
    if value > most:
        raise BadCase(f"{name} = {value}: {words} {most} or less")


def activation_shapes(case: Case, rule: Rule) -> tuple[Shape, ...]:
    """Return the shapes of the inputs, in the order of a call's arguments."""
    return tuple(spec.shape for spec in operation_of(case).inputs(case, rule))


def output_shape(case: Case) -> Shape:
    """Return the shape of the output, the first where there are several."""
    return operation_of(case).outputs(case)[0].shape


def projection_shapes(case: Case, rule: Rule) -> dict[str, Shape]:
    """Return the shapes of the operation's parameters by name."""
    return {spec.name: spec.shape for spec in operation_of(case).parameters(case, rule)}


def rule_parameter_shapes(case: Case, rule: Rule) -> dict[str, Shape]:
    """Return the shapes of the rule's parameters by name, each with the head axis first."""
    return {p.name: (case.H, *p.shape) for p in rule.parameters(case)}
