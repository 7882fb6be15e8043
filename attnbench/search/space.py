"""The space of what a backend declares: properties with classes of values, and the points that have them.

A property is what may matter to a kernel: the size of a block, a part of the mask, the order in memory. Its
values are in classes, since a fault that shows at one past a block of 64 shows at one past another block. The
search lets every two classes of different properties meet.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from random import Random
from typing import Any

from attnbench.cases.classes import AS_MANY, KEYS, QUERIES, draw_queries
from attnbench.cases.ids import build_case, rule_word, storage_word
from attnbench.cases.select import Overrides
from attnbench.inputs.kinds import (
    DELIVERIES,
    DROPPED,
    GRADED,
    KEPT_BY_CODES,
    NORMAL,
    SEARCHED,
    SLICED,
    STRESS_INPUTS,
    TRANSPOSED,
    TWO_GRAPHS,
)
from attnbench.plugins.calling import Raised, call
from attnbench.runner.case import refusal
from attnbench.runner.outputs import not_delivered
from attnbench.testing.cases import NO_OPTIONS, device_of
from attnbench.trial.point import Point, Way, called_case
from attnbench.types.backend import Backend
from attnbench.types.batch import Lengths, batch_text
from attnbench.types.case import AUTOCAST, ORDERS, Case
from attnbench.types.device import DEVICES
from attnbench.types.encoding import DTYPE, KEPT, encoding_words, known_encodings
from attnbench.types.errors import BadCase
from attnbench.types.mask import Mask, mask_of
from attnbench.types.mask_base import MaskWord
from attnbench.types.mask_words import WORDS
from attnbench.types.operation import operation_named
from attnbench.types.problem import problems_of
from attnbench.types.rule import Rule
from attnbench.types.storage import DENSE, known_storages, storage_named

Row = Mapping[str, str]
"""A class of each property, by the property's name."""

_FEWEST_NUMBERS = 8
"""Of eight random numbers the RMS is less than a tenth of what is expected once in 10⁷ draws."""
MOST_WORK = 2**25
"""The most work of a point, see :func:`work`, so that hundreds fit into a minute."""
ATTEMPTS = 4
"""How often values are drawn for a row before it counts as impossible."""
MOST_OF_OTHERS = 300
"""The most queries and keys of a sequence beside the one of a row."""
SEEDS = 10**9
PLAIN_SHARE = 0.3
"""How often a property that can be plain is, whatever else it can be."""

HEADS = {
    "one head": ((1, 1),),
    "several heads": ((2, 2), (3, 3), (4, 4), (5, 5)),
    "many heads": ((12, 12), (16, 16)),
    "groups of two heads": ((2, 1), (4, 2), (6, 3)),
    "larger groups": (
        (3, 1), (4, 1), (5, 1), (6, 1), (7, 1), (8, 1), (8, 2), (9, 3), (10, 2), (12, 2), (14, 2),
    ),
}  # fmt: skip
BATCH = {"one batch element": (1,), "batch elements": (2, 3), "many batch elements": (5, 8)}
FEATURES = {
    "few features": (1, 2, 3, 4, 5, 7),
    "an odd number of features": (13, 17, 33, 65),
    "a multiple of 8 features": (8, 24, 40, 48, 80, 96, 112),
    "a power of two of features": (16, 32, 64),
    "128 features": (128,),
    "more than 128 features": (129, 160, 192),
    "256 features": (256,),
}
LATENT_HEAD, LATENT_D, LATENT_DV = "the latent head of published models", 576, 512
"""512 features that stand for keys and values, and 64 rotated ones; asked of backends that take keys and
values as one tensor. Source: DeepSeek-AI 2024, DeepSeek-V2, section 3.1.2.
"""
SIZES = {
    "sizes of 1": (1,),
    "odd sizes": (3, 5, 17),
    "small powers of two": (2, 4, 8),
    "large powers of two": (32, 64, 128, 256),
}
"""Of a storage, as the keys in a page, beside its default."""
KEYLESS, QUERYLESS = "a sequence without keys", "a sequence without queries"
DECODING, UNLIKE = "decoding beside another sequence", "unlike lengths"
SEQUENCES = (UNLIKE, DECODING, KEYLESS, QUERYLESS)
"""The lengths of the other sequences of a batch, which are alike else."""
VALUES_WIDTH = ("values as wide as keys", "narrower values", "wider values")
LAYERS: dict[str, dict[str, Any]] = {
    "multihead": {"E": 40},
    "multihead with biases": {"E": 24, "bias": True},
    "multihead, keys of their own": {"E": 40, "bias": True, "cross": True},
    "multihead without output projection": {"E": 40, "out": False},
    "multihead as wide as its heads": {"wide": True, "bias": True},
}
PLAIN = "attention"


def can_meet(one: str, a: str, other: str, b: str) -> bool:
    """Return whether two classes of two properties can be those of one point; what has no word is plain."""
    both = {one: a, other: b}
    get = both.get
    forward, one_wanted = get("pass") == "forward", get("grad") in ("q", "k", "v")
    moved = bool(get("q") or get("k") or get("v"))
    shared = any((get(name) or "").startswith("same") for name in ("k", "v"))
    delivered = get("values") in DELIVERIES
    if forward and (get("upstream") or one_wanted or get("values") == TWO_GRAPHS):
        return False
    if get("pass") in ("backward", "both") and (
        get("grad") in ("no_grad", "enabled") or get("values") == GRADED
    ):
        return False
    if get("pass") == "backward" and get("grad"):
        return False
    if get("layout") and (moved or get("upstream")):
        return False
    of_values = get("values") and (not delivered or get("values") == SLICED)
    of_heads = moved or one_wanted or get("upstream") or get("layout") or of_values
    if of_heads and both.get("operation", PLAIN) != PLAIN:
        return False
    if get("values") and (shared or get("upstream") == "expanded"):
        # Numbers of such kinds depend on each other.
        return False
    if delivered and (moved or get("grad") or get("upstream")):
        return False
    if get("autocast"):
        # No id says that the numbers of a float mask are those of another dtype.
        added = (get("explicit") or "").startswith("a float mask")
        half = both.get("dtype", AUTOCAST[0]) in AUTOCAST
        if added or not half or get("before") or get("values") == GRADED:
            return False
    if not _stored_together(both) or not _encoded_together(both):
        return False
    if get("returns") and (get("pass") == "backward" or one_wanted or get("autocast")):
        return False
    return not (get("queries") == "fewer queries" and get("keys") == "one key")


def _stored_together(both: Row) -> bool:
    """Return whether two classes can be those of one batch, or of a case without one."""
    get = both.get
    storage = get("storage", "")
    if get("sequences") and get("batch") == "one batch element":
        return False
    if not storage:
        # Of the dense storage alone: a class of another property may be in a batch.
        return "storage" not in both or not (get("sequences") or get("sizes"))
    if get("sizes") and not storage_named(storage).sizes:
        return False
    if not _has_batches(both.get("operation", PLAIN)):
        return False
    if get("layout") or get("padding") or get("at_once"):
        return False
    if get("grad") in ("q", "k", "v") or get("upstream") == "expanded":
        return False
    shared = any((get(name) or "").startswith("same") for name in ("k", "v"))
    return not shared and get("values") not in (SLICED, TRANSPOSED, DROPPED)


def _has_batches(operation: str) -> bool:
    return operation not in LAYERS and bool(operation_named(operation).lengths)


def _encoded_together(both: Row) -> bool:
    """Return whether two classes can be those of one case with encoded keys and values, or of one without."""
    get = both.get
    if not get("kv"):
        return not (get("features") == LATENT_HEAD and "kv" in both)
    if get("features") == LATENT_HEAD and not _is_shared(both["kv"]):
        return False
    if both.get("pass", "forward") != "forward" or not _has_codes(both.get("operation", PLAIN)):
        return False
    ways = ("layout", "q", "k", "v", "grad", "upstream", "autocast")
    return not any(get(name) for name in ways) and get("values") in (None, "", *KEPT_BY_CODES, *KEPT)


def _has_codes(operation: str) -> bool:
    """Return whether an operation reads encoded keys and values, or writes them."""
    return operation == PLAIN or (operation not in LAYERS and operation_named(operation).rounds)


@dataclass(frozen=True)
class Space:
    """What a backend declares. properties: their classes by name; points have one class of each."""

    backend: Backend
    rules: Mapping[str, Rule]
    properties: Mapping[str, tuple[str, ...]]
    device: str
    options: Overrides = NO_OPTIONS

    def row(self, random: Random, fixed: Row) -> dict[str, str] | None:
        """Draw a class for each property that can meet the others; ``fixed`` has some of them, which can.

        None if a property is left without one.
        """
        row = dict(fixed)
        for name in random.sample(list(self.properties), len(self.properties)):
            if name not in row:
                free = [
                    one
                    for one in self.properties[name]
                    if all(can_meet(name, one, other, its) for other, its in row.items())
                ]
                if not free:
                    return None
                row[name] = "" if "" in free and random.random() < PLAIN_SHARE else random.choice(free)
        return {name: row[name] for name in self.properties}

    def point(self, row: Row, random: Random) -> Point | None:
        """Draw values for a row; None where the backend takes no such case, or it is too large here."""
        for _ in range(ATTEMPTS):
            case = self._case(row, random)
            if case is None or (row["autocast"] and case.dtype not in self.backend.autocast):
                continue
            if self._takes(called_case(case, row["autocast"])):
                way = Way(**{field.name: row[field.name] for field in fields(Way)})
                return Point(case, row["values"] or NORMAL, way)
        return None

    def _case(self, row: Row, random: Random) -> Case | None:
        H, Hkv = random.choice(HEADS[row["heads"]])
        B = random.choice(BATCH[row["batch"]])
        Lk = random.choice(KEYS[row["keys"]])
        D = random.choice(_features(row))
        rule = self.rules[row["rule"]]
        # A step has a query and a key.
        Lq = Lk if rule.update is not None else draw_queries(row["queries"], Lk, random)
        if Lq is not None and B * H * Lq * Lk * D > MOST_WORK // 8:
            # The least of each class, and as many features as allow it.
            (H, Hkv), B = HEADS[row["heads"]][0], BATCH[row["batch"]][0]
            D = _features(row)[0]
        Dv = _width(row["values width"], D, random)
        if Lq is None or Dv is None:
            return None
        given = row["constants"] == "constants given"
        constants = {constant.name: constant.example for constant in rule.constants} if given else {}
        layer = dict(LAYERS.get(row["operation"], {}))
        if layer.pop("wide", False):
            layer["E"] = H * D
        operation = "multihead" if row["operation"] in LAYERS else row["operation"]
        lengths: dict[str, Any] = {"B": B, "Lq": Lq, "Lk": Lk}
        if row.get("storage"):
            sequences = _sequences(row, B, (Lq, Lk), random)
            if rule.update is not None:
                sequences = tuple((min(pair), min(pair)) for pair in sequences)
            lengths = {"batch": batch_text(sequences)} | _storage(row, random)
        returned, encoded = row.get("returns"), {"kv": row["kv"]} if row.get("kv") else {}
        try:
            mask = random.choice(self.options.masks) if self.options.masks else _mask(row, B, Lk, random)
            case = build_case(
                operation=operation, rule=rule_word(rule.name, constants), **lengths, H=H, Hkv=Hkv,
                D=D, Dv=Dv, mask=mask, dtype=row["dtype"], device=self.device, pass_=row["pass"],
                layout=self.options.layout or _layout(row["layout"], random),
                threads=self.options.threads or (2 if row["threads"] else 1),
                returns=(returned,) if returned else (), seed=random.randrange(SEEDS), **layer, **encoded,
            )  # fmt: skip
        except BadCase:
            return None
        if rule.supports(case) is not None or work(case, rule) > MOST_WORK or _is_chance(case, rule):
            return None
        return case

    def _takes(self, case: Case) -> bool:
        rule = self.rules[case.rule]
        if refusal(self.backend, case, rule, devices=(case.device,)) is not None:
            return False
        try:
            return call(self.backend.supports, case, rule) is None
        except Raised:
            # It counts as taken; judging it shows the exception.
            return True


def _is_chance(case: Case, rule: Rule) -> bool:
    """Return whether limits of a recurrence hang on chance: a few numbers that cancel are their own scale."""
    if rule.update is None:
        return False
    steps = [one.B * one.Lq for one in problems_of(case) if one.Lq]
    return case.H * case.Dv * min(case.D, *steps) < _FEWEST_NUMBERS


def work(case: Case, rule: Rule) -> float:
    """Return about how many products judging a case takes. The oracle solves float64 in a wider type."""
    of_keys = sum(one.B * one.Lq * one.Lk for one in problems_of(case))
    pairs = of_keys * case.H * (case.D + case.Dv) * max(1, rule.score_elements(case))
    layer = 0
    if case.layer is not None:
        layer = case.B * (case.Lq + case.Lk) * case.layer.E * case.H * (case.D + case.Dv)
    return (pairs + layer) * (1 if case.pass_ == "forward" else 3) * (8 if case.dtype == "float64" else 1)


def space_of(backend: Backend, rules: Mapping[str, Rule], options: Overrides = NO_OPTIONS) -> Space:
    """Return the space of a backend's declarations. rules: those that it computes, by name.

    options: of a command; their values stand in place of the declared ones.
    """
    device = options.device or device_of(backend)
    attention = PLAIN in backend.operations
    layers = tuple(LAYERS) if "multihead" in backend.operations else ()
    others = [name for name in backend.operations if name not in (PLAIN, "multihead")]
    passes = options.passes or backend.passes
    if "both" in passes:
        passes = tuple(one for one in passes if one != "backward")
    graded = "backward" in backend.passes and passes != ("forward",)
    memory = ("", "offset", "slice", "features_outside")
    shared = (*memory, "same_in_batch", "same_in_heads")
    free = attention and not backend.needs_contiguous
    layouts = ("", *ORDERS, "mixed orders") if attention else ("",)
    threads = ("", "2 threads") if (os.cpu_count() or 1) > 1 and DEVICES[device].on_host else ("",)
    modes = ("no_grad", "enabled") if "forward" in passes else ()
    kinds = [name for name in _kinds(backend) if name != NORMAL]
    properties: dict[str, tuple[str, ...]] = {
        "operation": (*([PLAIN] if attention else []), *layers, *others),
        "rule": tuple(rules),
        "constants": ("", "constants given") if any(rule.constants for rule in rules.values()) else ("",),
        "keys": tuple(KEYS),
        "queries": QUERIES,
        "heads": tuple(HEADS),
        "batch": tuple(BATCH),
        "features": tuple(FEATURES),
        "values width": VALUES_WIDTH,
        **_sorts_of_masks(backend),
        "dtype": options.dtypes or tuple(dict.fromkeys((*backend.dtypes, *backend.autocast))),
        "pass": passes,
        "threads": threads,
        "layout": layouts,
        "values": ("", *kinds),
        "grad": ("", *modes, *(("q", "k", "v") if graded else ())),
        "q": memory if free else ("",),
        "k": shared if free else ("",),
        "v": shared if free else ("",),
        "upstream": ("", "expanded", "transposed") if graded and free else ("",),
        "before": ("", "larger", "smaller", "other_mask"),
        "autocast": ("", "on") if backend.autocast else ("",),
        "at_once": ("", "two_threads") if backend.concurrent else ("",),
    }  # fmt: skip
    if all(operation_named(name).updates for name in backend.operations):
        properties |= _OF_RECURRENCES | dict.fromkeys(_sorts_of_masks(backend), ("",))
    if all(operation_named(name).rounds for name in backend.operations):
        # Writers of caches: they read no queries.
        heads = tuple(name for name, of in HEADS.items() if of[0][0] == of[0][1])
        properties |= {"heads": heads} | dict.fromkeys(_sorts_of_masks(backend), ("",))
    chosen = {
        **(dict.fromkeys(map(_family, WORDS.values()), ("",)) if options.masks else {}),
        **({"threads": ("",)} if options.threads else {}),
        **({"layout": ("",)} if options.layout else {}),
    }
    whole = properties | _of_storages(backend) | _of_encodings(backend) | chosen
    return Space(backend, rules, _without_impossible(whole), device, options)


_OF_RECURRENCES = {"queries": (AS_MANY,), "values": ("",), "before": ("", "larger", "smaller")}
"""Of backends that compute recurrences alone; each of their points has all kinds of values."""


def _of_storages(backend: Backend) -> dict[str, tuple[str, ...]]:
    """Return the properties of batches, and of further outputs, for a backend that has any."""
    found: dict[str, tuple[str, ...]] = {}
    if backend.returns:
        found["returns"] = ("", *backend.returns)
    storages = [name for name in backend.storages if name in known_storages()]
    if storages != [DENSE.name]:
        found["storage"] = tuple("" if name == DENSE.name else name for name in storages)
        found["sequences"] = ("", *SEQUENCES)
        sized = any(storage_named(name).sizes for name in storages)
        found["sizes"] = ("", *SIZES) if sized else ("",)
    return found


def _of_encodings(backend: Backend) -> dict[str, tuple[str, ...]]:
    """Return the property of encoded keys and values, for a backend that takes any."""
    words = encoding_words(backend.encodings)
    if words == (DTYPE.name,):
        return {}
    found = {"kv": tuple("" if word == DTYPE.name else word for word in words)}
    if any(map(_is_shared, words)):
        found["features"] = (*FEATURES, LATENT_HEAD)
    return found


def _is_shared(word: str) -> bool:
    name, _, _ = word.partition(":")
    return known_encodings()[name].shared


def _without_impossible(properties: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Leave out classes that can't meet the only class of another property."""
    only = {name: classes[0] for name, classes in properties.items() if len(classes) == 1}
    left = {
        name: tuple(
            one
            for one in classes
            if all(name == other or can_meet(name, one, other, its) for other, its in only.items())
        )
        for name, classes in properties.items()
    }
    return {name: classes or properties[name] for name, classes in left.items()}


def _sequences(row: Row, B: int, own: tuple[int, int], random: Random) -> Lengths:
    """Draw the lengths of the sequences of a batch, of which one has those of the row."""
    word = row["sequences"]
    if not word:
        return (own,) * B
    others = [_others_lengths(word, random) for _ in range(B - 1)]
    if word in (KEYLESS, QUERYLESS):
        queries, keys = others[0]
        without = (queries, 0) if word == KEYLESS else (0, keys)
        others[0] = random.choice((without, without, (0, 0)))
    lengths = [own, *others]
    random.shuffle(lengths)
    return tuple(lengths)


def _others_lengths(word: str, random: Random) -> tuple[int, int]:
    """Draw numbers of queries and keys of a further sequence; few, since there are many."""
    keys = random.choice([one for sizes in KEYS.values() for one in sizes if one <= MOST_OF_OTHERS])
    if word == DECODING:
        return 1, keys
    queries = draw_queries(random.choice(QUERIES), keys, random)
    return min(queries or 1, MOST_OF_OTHERS), keys


def _storage(row: Row, random: Random) -> dict[str, Any]:
    """Draw the storage of a row with its sizes, as fields of a case."""
    storage, sizes = storage_named(row["storage"]), {}
    for size in storage.sizes if row["sizes"] else ():
        fitting = [one for one in SIZES[row["sizes"]] if size.least <= one <= size.most]
        sizes[size.name] = random.choice(fitting) if fitting else size.default
    return {"storage": storage_word(storage.name, sizes)}


def _kinds(backend: Backend) -> Iterator[str]:
    """Yield the kinds of values that a backend is given, as a run gives them."""
    # Of where keys lie there is a property of its own.
    left_out = (*not_delivered(backend), TRANSPOSED)
    for family in (*STRESS_INPUTS, *SEARCHED):
        if family.name not in left_out:
            yield family.name


def _features(row: Row) -> tuple[int, ...]:
    return (LATENT_D,) if row["features"] == LATENT_HEAD else FEATURES[row["features"]]


def _width(word: str, D: int, random: Random) -> int | None:
    if D == LATENT_D:
        return LATENT_DV if word == "narrower values" else None
    sizes = sorted(size for sizes in FEATURES.values() for size in sizes)
    if word == "values as wide as keys":
        return D
    others = [size for size in sizes if (size < D if word == "narrower values" else D < size <= 4 * D)]
    return random.choice(others) if others else None


def _layout(word: str, random: Random) -> str:
    if word == "mixed orders":
        return "_".join([*random.sample(("BHLD", "BLHD", "LBHD"), 2), random.choice(ORDERS[:3])])
    return word or "own"


def _mask(row: Row, B: int, Lk: int, random: Random) -> Mask:
    """Draw the words of a mask of the sorts that a row names."""
    words = []
    for word in WORDS.values():
        sort = row[_family(word)]
        if sort in word.sorts:
            words.append(word.of_sort(sort, B, Lk, random))
    return mask_of(words)


def _family(word: type[MaskWord]) -> str:
    """Return the property of a search that has the sorts of a word."""
    return word.family or word.part


def _sorts_of_masks(backend: Backend) -> dict[str, tuple[str, ...]]:
    """Return the sorts of the words that a backend takes, by family; "" for no such word."""
    found: dict[str, tuple[str, ...]] = {}
    for word in WORDS.values():
        sorts = found.get(_family(word), ("",))
        for sort in word.sorts:
            drawn = word.of_sort(sort, 1, 1, Random(0))
            by_head = "h" in drawn.axes and not backend.masks_by_head
            if not by_head and not backend.lacks_masks(mask_of([drawn])):
                sorts = (*sorts, sort)
        found[_family(word)] = sorts
    return found
