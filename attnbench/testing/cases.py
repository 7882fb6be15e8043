"""The cases that test a backend: small ones that combine what it declares, and those of larger shapes.

Candidates are made within the declarations; ``supports`` is asked about each; few of those that it takes are
chosen, so that every two features meet. Options of a command narrow the candidates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from random import Random
from typing import Any

from attnbench.cases.covering import Row, covering_rows
from attnbench.cases.ids import build_case, case_id, parse_storage, rule_word, storage_word
from attnbench.cases.select import Overrides
from attnbench.cases.variant import words_matter
from attnbench.plugins.calling import Raised, call
from attnbench.runner.case import refusal
from attnbench.testing.advice import RAISES_NOTHING
from attnbench.testing.findings import Finding
from attnbench.types.backend import Backend
from attnbench.types.case import Case
from attnbench.types.device import CPU, DEVICES
from attnbench.types.encoding import DTYPE, encoding_words, known_encodings
from attnbench.types.errors import BadCase
from attnbench.types.mask import Mask, mask_of, mask_text, parse_mask
from attnbench.types.operation import operation_named
from attnbench.types.rule import Rule
from attnbench.types.storage import storage_named
from attnbench.types.words import clean
from attnbench.worker.failures import no_answer
from attnbench.worker.prepared import missing_modules

MASKS = ("none", "causal", "causal:lower_right", "window:9", "padding", "bool", "float")
MASKS_BY_HEAD = ("bool:per_head", "float:per_head")
STRUCTURED = (
    "causal+window:6+document+chunked:9+first:3",
    "causal:lower_right+reach:9,2+dilated:2+image:3,6,{tail},4+global:1",
    "causal:lower_right+window:12+tree:0,0,1,0,3,5,2+blocks:8+prefix:5",
    "window:5+padding+left_padding+document+global:2",
    "reach:5,2+chunked:9+prefix:3", "reach:*,4+dilated:3", "reach:6,*+document",
    "causal:lower_right+window:7+chunked:9+first:3",
    "causal+window:7+document+prefix:5", "causal+window:7+document+image:3,20,{tail},4",
    "causal+padding+prefix:{Lk}", "causal:lower_right+window:9+left_padding+global:2",
)  # fmt: skip
"""Words for a structure, each in several company: a backend that takes few of these is asked for those that
it declares. tail: where the last four keys begin."""
MOST_STRUCTURED = 5
LENGTHS = ((33, 33), (17, 65), (65, 20), (1, 70))
"""Past a block, fewer queries than keys, more (causal:lower_right leaves some without keys), one query."""
FEATURES = ((16, 16), (64, 64), (13, 13), (8, 24))
FEATURES_OF_LATENT = ((40, 24), (96, 64))
"""Asked besides where an encoding shares its tensor: the values are the first features of the keys."""
FEATURES_OF_MODELS = ((128, 128), (256, 256), (192, 128), (576, 512))
"""Asked where a backend takes no other: kernels may be made for the heads of one model."""
HEADS = ((2, 2), (6, 2), (5, 1))
BATCHES = (3, 1)
"""Three batch elements, since of two every order is its own inverse."""
ONE_SEQUENCE = "q{Lq}s{Lk}"
SEVERAL = "2q{Lq}s{Lk}_q1s{Lk}_q5_q0s9_q{Lk}s{Lq}_q7s0_q1_q1s{before}_q1s{block}_q3s{after}"
"""A sequence of the lengths of a case; and several of them, others, sequences without queries or keys, and
some that end at a block of keys, before it and behind it."""
OF_STEPS = "2q{Lq}_q0_q1_q63_q64_q65_q5"
"""The same of a recurrence, whose kernels mostly take 64 steps at once."""
STEPS = (1, 63, 64, 65)
"""Steps of recurrences that are always asked: one, and those around a chunk. Length 0 stands in batches."""
BLOCK = 16
"""The block of a storage that has no size."""
LAYERS: tuple[dict[str, Any], ...] = (
    {"wide": True, "bias": True},
    {"E": 40},
    {"E": 40, "bias": True, "cross": True},
    {"E": 40, "out": False},
)
"""``wide``: as wide as its heads together, which some layers require."""

SAMPLED, SAMPLED_MORE, FEW = 500, 5000, 40
"""Random combinations besides the covering ones; their number, and where fewer than ``FEW`` are taken."""
MOST, MOST_COMPILED = 30, 5
"""Small cases of a backend, and of one that compiles for seconds a case."""
DROPOUT = 0.2

SHAPES: dict[str, Sequence[Any]] = {
    "lengths": (
        (15, 257), (16, 512), (17, 129), (63, 385), (64, 127), (65, 256), (127, 513), (128, 63), (129, 511),
        (255, 128), (256, 64), (257, 65),
    ),
    "features": tuple((D, D) for D in (16, 32, 64, 80, 96, 112, 128, 256)),
    "heads": ((3, 3), (6, 3), (8, 2), (6, 1), (7, 1), (16, 2)),
    "mask": ("none", "causal:lower_right", "causal"),
}  # fmt: skip
"""The shapes that kernels branch on: blocks of 16 to 512 queries and keys, one more and one less; features
with a path of their own; the number of key/value heads. The size of a block often depends on the features."""
MOST_IN_SHAPE = 2**24
"""The most elements for all pairs in one of these cases: they are many, and each must be quick."""

LARGE: tuple[dict[str, Any], ...] = (
    {"B": 1, "H": 2, "Lq": 2049, "Lk": 2049, "D": 64, "mask": "causal"},
    {"B": 1, "H": 2, "Lq": 16, "Lk": 8192, "D": 64, "mask": "none", "dtype": "bfloat16"},
    {"B": 1, "H": 2, "Lq": 16, "Lk": 8192, "D": 64, "mask": "none", "dtype": "float16"},
    {"B": 1, "H": 1, "Lq": 4097, "Lk": 129, "D": 32, "mask": "none"},
    {"B": 2, "H": 4, "Hkv": 2, "Lq": 1, "Lk": 4097, "D": 64, "mask": "none"},
    {"B": 64, "H": 8, "Lq": 40, "Lk": 40, "D": 32, "mask": "none", "half": True},
    {"B": 1, "H": 2, "Lq": 600, "Lk": 600, "D": 32, "mask": "causal", "pass_": "both"},
)
"""``half``: in a half precision where the backend declares one. ``dtype``: only where it declares this one.
Running sums in half precision lose keys where there are many (``light_keys``)."""
LONG_SELF_ATTENTION = {"H": 1, "Lq": 4097, "Lk": 4097, "mask": "causal"}
"""In place of few queries and many keys, for a kernel that takes as many of both."""
MOST_ELEMENTS = 2**25
"""The most elements that a straightforward form of the rule may hold for all pairs at once."""

NO_OPTIONS = Overrides()


@dataclass(frozen=True)
class PossibleCase:
    """A case and the features that it was made of, by name."""

    case: Case
    features: Row


def device_of(backend: Backend) -> str:
    """Return the device that the kit checks a backend on: the CPU where it can."""
    return CPU.name if CPU.name in backend.devices else backend.devices[0]


def candidates(
    backend: Backend,
    rules: Mapping[str, Rule],
    sampled: int = SAMPLED,
    options: Overrides = NO_OPTIONS,
    *,
    of_models: bool = False,
) -> list[PossibleCase]:
    """Make cases within a backend's declarations, each once; the same declarations give the same cases.

    In the first cases every two features meet; ``sampled`` random combinations follow. rules: by name.
    options: their values stand in place of the declared ones. of_models: with heads of published models, and
    larger pages.
    """
    named = rules_of(backend, rules, options)
    masks = (*MASKS, *(MASKS_BY_HEAD if backend.masks_by_head else ()))
    masks = _masks(options) or masks
    values: dict[str, Sequence[Any]] = {
        "mask": masks,
        "lengths": [pair for pair in LENGTHS if any(possible({"lengths": pair, "mask": m}) for m in masks)],
        "features": (*FEATURES, *FEATURES_OF_MODELS) if of_models else FEATURES,
        "heads": HEADS,
        "layer": variants(backend),
        "dtype": options.dtypes or backend.dtypes,
        "pass": options.passes or backend.passes,
        "B": BATCHES,
        "device": (options.device or device_of(backend),),
    }
    if backend.storages != ("dense",):
        times = (2, 16) if of_models else (2,)
        values["storage"] = tuple(word for name in backend.storages for word in _storage_words(name, times))
    if backend.encodings != (DTYPE.name,):
        values["kv"] = encoding_words(backend.encodings)
    known = known_encodings()
    if any(known[name].shared for name in backend.encodings if name in known):
        values["features"] = (*values["features"], *FEATURES_OF_LATENT)
    if backend.returns:
        values["returns"] = ((), *((name,) for name in backend.returns))
    random = Random(0)
    drawn = [{name: random.choice(choices) for name, choices in values.items()} for _ in range(sampled)]
    rows = [*covering_rows(values, possible), *filter(possible, drawn)]
    found: dict[Case, PossibleCase] = {}
    for number, row in enumerate(rows):
        made = _with_rule(row, named, number, options)
        if made is not None:
            found.setdefault(made.case, made)
    return list(found.values())


def _masks(options: Overrides) -> tuple[str, ...]:
    return tuple(mask_text(mask) for mask in options.masks)


def _fixed(options: Overrides) -> dict[str, Any]:
    """Return the fields that options set in every case."""
    given = {name: getattr(options, name) for name in ("threads", "seed", "cache", "dropout", "layout")}
    return {name: value for name, value in given.items() if value is not None}


def rules_of(backend: Backend, rules: Mapping[str, Rule], options: Overrides = NO_OPTIONS) -> list[Rule]:
    """Return the rules that options name, else those that a backend declares, of those that exist."""
    if options.rules:
        return [rules[name] for name in options.rules]
    names = [name for name in (rules if backend.rules is None else backend.rules) if name in rules]
    kinds = {operation_named(name).kind for name in backend.operations}
    taken = [rules[name] for name in names if rules[name].kind in kinds]
    return [rule for rule in taken if rule.has_dot_form or not backend.needs_dot_form]


def possible(row: Row) -> bool:
    """Return whether a case of these features can detect errors: one query must see several keys."""
    return not (row.get("lengths") == (1, 70) and row.get("mask") == "causal")


def large_cases(
    backend: Backend, rules: Sequence[Rule], options: Overrides = NO_OPTIONS
) -> Iterator[list[Case]]:
    """Yield alternatives for each large case, the most demanding first. The first that is taken counts."""
    masks, there = _masks(options), options.dtypes or backend.dtypes
    for wanted in LARGE[:1] if backend.compiles else LARGE:
        if wanted.get("pass_", "forward") not in (options.passes or backend.passes):
            continue
        if wanted.get("dtype", there[0]) not in there:
            continue
        easier: list[dict[str, Any]] = [{}, {"Hkv": wanted["H"]}, {"Hkv": wanted["H"], "mask": "none"}]
        if "dtype" in wanted:
            easier[1:] = [LONG_SELF_ATTENTION]
        if masks:
            easier = [change | {"mask": mask} for change in easier[:2] for mask in masks]
        made = [_large(backend, rule, wanted | change, options) for change in easier for rule in rules]
        yield [case for case in made if case is not None]


def shape_cases(backend: Backend, rules: Sequence[Rule], options: Overrides = NO_OPTIONS) -> Iterator[Case]:
    """Yield cases in which every two values of :data:`SHAPES` meet, in the precisions of a backend."""
    values = SHAPES | {
        "mask": _masks(options) or SHAPES["mask"],
        "layer": variants(backend)[:1],
        "B": (1,),
        "dtype": options.dtypes or backend.dtypes,
        "device": (options.device or device_of(backend),),
        "pass": options.passes or ("forward",),
    }
    for number, row in enumerate(covering_rows(values, possible)):
        made = _with_rule(row, rules, number, options)
        if made is not None:
            case, rule = made.case, next(rule for rule in rules if rule.name == made.case.rule)
            if case.H * case.Lq * case.Lk * rule.score_elements(case) <= MOST_IN_SHAPE:
                yield case


def variants(backend: Backend) -> list[tuple[str, dict[str, Any]]]:
    """Return the operations of a backend, each with the layers or sizes that it can have.

    Attention comes first.
    """
    names = sorted(backend.operations, key=lambda name: name != "attention")
    return [(name, layer) for name in names for layer in (LAYERS if name == "multihead" else _sizes(name))]


def _sizes(operation: str) -> tuple[dict[str, int], ...]:
    """Return the sizes of an operation as they are, and with others where it has any."""
    others = {size.name: size.other or 2 * size.default for size in operation_named(operation).sizes}
    return ({}, others) if others else ({},)


def _with_rule(row: Row, rules: Sequence[Rule], number: int, options: Overrides) -> PossibleCase | None:
    """Make a case of a row and the next rule that allows it; rules take turns."""
    (D, Dv), (H, Hkv) = row["features"], row["heads"]
    for turn in range(len(rules)):
        rule, mask = rules[(number + turn) % len(rules)], row["mask"]
        sizes = _lengths(row) | {"returns": row.get("returns", ()), "kv": row.get("kv", DTYPE.name)}
        if rule.kind != "scores":
            # A recurrence has one length, and sees what comes before each step. A writer has no queries.
            sizes, mask = sizes | _steps(row), "none"
            H = Hkv if rule.kind == "rounding" else row["heads"][0]
        case = _case(
            rule, row["layer"], **sizes, H=H, Hkv=Hkv, D=D, Dv=Dv, mask=mask,
            dtype=row["dtype"], device=row["device"], pass_=row["pass"], **_fixed(options),
        )  # fmt: skip
        if case is not None:
            return PossibleCase(case, {**row, "rule": rule.name, "operation": case.operation})
    return None


def _lengths(row: Row) -> dict[str, Any]:
    """Return the lengths of a row as fields of a case: those of all sequences, or those of a batch."""
    Lq, Lk = row["lengths"]
    storage = row.get("storage", "dense")
    if storage == "dense":
        return {"B": row["B"], "Lq": Lq, "Lk": Lk}
    name, sizes = parse_storage(storage)
    defaults = {size.name: size.default for size in storage_named(name).sizes}
    block = next(iter((defaults | dict(sizes)).values()), BLOCK)
    batch = ONE_SEQUENCE if row["B"] == 1 else SEVERAL
    around = {"before": block - 1, "block": block, "after": block + 1}
    return {"batch": batch.format(Lq=Lq, Lk=Lk, **around), "storage": storage}


def _steps(row: Row) -> dict[str, Any]:
    """Return the lengths of a row where each step has a query and a key."""
    Lq, _ = row["lengths"]
    if row.get("storage", "dense") == "dense":
        return {"Lk": Lq}
    return {"batch": f"q{Lq}" if row["B"] == 1 else OF_STEPS.format(Lq=Lq)}


def _storage_words(name: str, times: Sequence[int]) -> tuple[str, ...]:
    """Return a storage as ids have it, with its sizes and with so many times these, as some kernels need."""
    sizes = storage_named(name).sizes
    larger = [{size.name: min(factor * size.default, size.most) for size in sizes} for factor in times]
    return (name, *(storage_word(name, one) for one in larger if one))


def _large(backend: Backend, rule: Rule, wanted: dict[str, Any], options: Overrides) -> Case | None:
    sizes = wanted | _fixed(options)
    half = ("bfloat16", "float16") if sizes.pop("half", False) else ()
    there = options.dtypes or backend.dtypes
    dtypes = [dtype for dtype in (*half, "float32", *there) if dtype in there]
    dtype = sizes.pop("dtype", dtypes[0])
    device = options.device or device_of(backend)
    words = encoding_words(backend.encodings)
    kv = DTYPE.name if DTYPE.name in words else words[0]
    case = _case(rule, variants(backend)[0], dtype=dtype, device=device, kv=kv, **sizes)
    if case is None or case.B * case.H * case.Lq * case.Lk * rule.score_elements(case) > MOST_ELEMENTS:
        return None
    return case


def _case(rule: Rule, variant: tuple[str, dict[str, Any]], *, mask: str, **sizes: Any) -> Case | None:
    """Return the case of a rule with these sizes; None where there is no such case."""
    operation, layer = variant
    if layer.get("wide"):
        layer = {"E": sizes["H"] * sizes["D"]} | {name: on for name, on in layer.items() if name != "wide"}
    # A latent head exists with a scale alone.
    for constants in ({}, {one.name: one.example for one in rule.constants}):
        try:
            word = rule_word(rule.name, constants)
            case = build_case(operation=operation, rule=word, mask=parse_mask(mask), **sizes, **layer)
        except BadCase:
            continue
        refused = rule.refuses(case) or (case.pass_ != "forward" and rule.no_gradients(case))
        return None if refused else case
    return None


@dataclass(frozen=True)
class ConformanceCase:
    """A case of the kit. large: one of the shapes of real models, which together take a minute."""

    case: Case
    large: bool = False

    @property
    def id(self) -> str:
        """The id of the case."""
        return case_id(self.case)


@dataclass(frozen=True)
class ChosenCases:
    """The cases of a backend, and what asking ``supports`` has shown: declined of ``asked``; findings.

    none: why options leave no case; "" where they leave some, or where there are none.
    """

    cases: tuple[ConformanceCase, ...]
    declined: int
    asked: int
    findings: tuple[Finding, ...]
    none: str = ""


@dataclass(frozen=True)
class Answer:
    """The answer of ``supports`` about a case. reason: why it declines, None if it takes the case.

    fault: on the answer itself, if it is wrong.
    """

    reason: str | None
    fault: Finding | None = None


def choose(backend: Backend, rules: Mapping[str, Rule], options: Overrides = NO_OPTIONS) -> ChosenCases:
    """Choose cases that a backend takes, in which every two features meet. Computes nothing.

    A rule's cases have constants where the backend takes none without. options: of a command. The cases then
    have their values, as far as the backend declares them.
    """

    def declared(case: Case) -> bool:
        # Devices are looked for when the case runs.
        return refusal(backend, case, rules[case.rule], devices=(case.device,)) is None

    def takes(case: Case) -> bool:
        return declared(case) and ask(backend, case, rules[case.rule]) == Answer(None)

    made = candidates(backend, rules, options=options)
    own = rules_of(backend, rules, options)
    examples = {rule.name: _needed_constants(backend, rule, made, declared) for rule in own}

    def chosen(case: Case) -> Case:
        return replace(case, constants=examples[case.rule]) if examples[case.rule] else case

    made = [replace(one, case=chosen(one.case)) for one in made]
    found = [one for one in made if declared(one.case)]
    asked = [(one, ask(backend, one.case, rules[one.case.rule])) for one in found]
    for of_models in (False, True):
        number = sum(answer.reason is None for _, answer in asked)
        if number >= FEW or (of_models and number):
            break
        known = {one.case for one, _ in asked}
        more = candidates(backend, rules, SAMPLED_MORE, options, of_models=of_models)
        more = [replace(one, case=chosen(one.case)) for one in more]
        more = [one for one in more if one.case not in known and declared(one.case)]
        asked += [(one, ask(backend, one.case, rules[one.case.rule])) for one in more]
    taken = [one for one, answer in asked if answer.reason is None]
    cases = [ConformanceCase(one.case) for one in _covering(taken, backend)]
    cases += [ConformanceCase(case) for case in _with_constants(backend, taken, rules)]
    chosen_already = {one.case for one in cases}
    cases += [
        ConformanceCase(case) for case in _with_steps(backend, taken, takes) if case not in chosen_already
    ]
    if not options.masks:
        cases += [ConformanceCase(case) for case in _with_structures(backend, taken, takes)]
    if options.dropout is None:
        cases += [ConformanceCase(case) for case in _with_dropout(backend, taken, rules)]
    own = own if taken else []
    large: list[Case] = []
    for alternatives in large_cases(backend, own, options):
        large += islice(filter(takes, map(chosen, alternatives)), 1)
    if not backend.compiles:
        large += filter(takes, map(chosen, shape_cases(backend, own, options)))
    cases += [ConformanceCase(case, large=True) for case in large]
    faults = [answer.fault for _, answer in asked if answer.fault]
    none = ""
    if options == NO_OPTIONS:
        faults += _never_taken(backend, rules, asked)
    elif not cases:
        none = _why_none(backend, rules, made, asked)
    return ChosenCases(tuple(cases), len(asked) - len(taken), len(asked), tuple(faults), none)


def _needed_constants(
    backend: Backend, rule: Rule, made: Sequence[PossibleCase], declared: Callable[[Case], bool]
) -> tuple[tuple[str, float], ...]:
    """Return constants for all cases of a rule, where a backend takes none of them without.

    A kernel may be made for the constants of its model. It is asked with each example of the rule alone, then
    with all of them. None are returned where it takes no case with these either.
    """
    examples = sorted((constant.name, constant.example) for constant in rule.constants)
    cases = [one.case for one in made if one.case.rule == rule.name and declared(one.case)]
    for constants in ((), *((one,) for one in examples), tuple(examples)):
        given = (replace(case, constants=constants) if constants else case for case in cases)
        if any(rule.supports(case) is None and ask(backend, case, rule).reason is None for case in given):
            return constants
    return ()


def _why_none(
    backend: Backend,
    rules: Mapping[str, Rule],
    made: Sequence[PossibleCase],
    asked: Sequence[tuple[PossibleCase, Answer]],
) -> str:
    """Say why options leave no case of a backend: outside its declarations, or declined by ``supports``."""
    if asked:
        reasons = Counter(answer.reason for _, answer in asked)
        usual = reasons.most_common(1)[0][0]
        return f"supports() declines all {len(asked)} cases that the options leave; most often: {usual}"
    if not made:
        return "no case has all that the options ask for"
    case = made[0].case
    refused = refusal(backend, case, rules[case.rule], devices=(case.device,))
    return "" if refused is None else refused[1]


def ask(backend: Backend, case: Case, rule: Rule) -> Answer:
    """Return what ``supports`` says of a case, asked twice.

    If it raises, the case counts as taken, and the run then fails. An answer that is neither None nor a
    reason in words declines the case here; a run refuses it with the same words.
    """
    first, again = _ask(backend, case, rule), _ask(backend, case, rule)
    if not first.fault and not again.fault and (first.reason is None) != (again.reason is None):
        problem = "supports() takes a case at the first call and declines it at the second, or the reverse"
        do = "Let its answer depend on the case and the rule alone: several processes call it."
        return Answer(first.reason, _of_declarations(backend, problem, do, case_id(case)))
    return first


def _ask(backend: Backend, case: Case, rule: Rule) -> Answer:
    reason: object = None
    try:
        reason = call(backend.supports, case, rule)
        fault = no_answer(reason)
    except Raised as failure:
        fault = f"raised {failure}"
    words = None if reason is None else clean(reason)
    if not fault:
        return Answer(words)
    return Answer(words, _of_declarations(backend, f"supports() {fault}", RAISES_NOTHING, case_id(case)))


def absent(backend: Backend, device: str | None = None) -> str:
    """Return why a backend can't run on this machine at all; "" where it can.

    device: where; by default as :func:`device_of` says.
    """
    device = device_of(backend) if device is None else device
    if device not in backend.devices:
        return f"runs on {' and '.join(backend.devices)} only"
    if missing := missing_modules(backend):
        return missing
    if not DEVICES[device].on_host:
        import torch

        if not torch.get_device_module(device).is_available():
            return f"this machine has no {DEVICES[device].title}"
    try:
        reason = call(backend.available, device)
    except Raised as failure:
        return f"available() raised {failure}"
    return "" if reason is None else clean(reason)


def _covering(taken: list[PossibleCase], backend: Backend) -> list[PossibleCase]:
    """Return few cases in which every two features meet that can meet, those that cover most first."""
    left = {one.case: _pairs(one) for one in taken}
    missing = frozenset().union(*left.values()) if left else frozenset()
    chosen: list[PossibleCase] = []
    while missing and len(chosen) < (MOST_COMPILED if backend.compiles else MOST):
        # Among equals the first one: covering rows come before random ones.
        best = max(taken, key=lambda one: len(left[one.case] & missing))
        missing -= left[best.case]
        chosen.append(best)
    return chosen


def _pairs(one: PossibleCase) -> frozenset[frozenset[tuple[str, str]]]:
    # Each rule must occur; pairs of a rule with every other feature would take three times the cases.
    features = [(name, str(value)) for name, value in one.features.items() if name != "rule"]
    alone = frozenset([("rule", one.case.rule)])
    return frozenset([alone, *(frozenset(pair) for pair in combinations(features, 2))])


def _with_constants(backend: Backend, taken: list[PossibleCase], rules: Mapping[str, Rule]) -> Iterator[Case]:
    """Yield a case for each rule with constants that a backend takes; one that declines it loses nothing."""
    firsts = {one.case.rule: one.case for one in reversed(taken) if one.case.Lq > 1}
    for case in firsts.values():
        given = sorted((constant.name, constant.example) for constant in rules[case.rule].constants)
        chosen = replace(case, constants=tuple(given))
        if (
            given
            and chosen != case
            and not backend.compiles
            and ask(backend, chosen, rules[case.rule]).reason is None
        ):
            yield chosen


def _with_structures(
    backend: Backend, taken: list[PossibleCase], takes: Callable[[Case], bool]
) -> list[Case]:
    """Return cases of :data:`STRUCTURED` that a backend takes in part, if it can with shared heads.

    Each word decides about a pair. Where the backend declines the words together, its case has one of them,
    with those that are no structure.
    """
    plain = [one.case for one in taken if one.case.pass_ == "forward" and one.case.Lq > 1]
    plain.sort(
        key=lambda case: (
            case.Hkv == case.H, case.operation != "attention", case.dtype != "float32", case.Lk < case.Lq
        )
    )  # fmt: skip
    found: dict[Mask, Case] = {}
    for text in STRUCTURED[:1] if backend.compiles else STRUCTURED:
        # With as many queries as keys both alignments are one; with fewer, no query stands at the first keys.
        cases = sorted(plain, key=lambda case: ("lower_right" in text) == (case.Lq == case.Lk))
        alone: list[Case] = []
        together = []
        for case in cases:
            words = [
                word
                for word in parse_mask(text.format(tail=max(23, case.Lk - 4), Lk=case.Lk)).words
                if not backend.lacks_masks(mask_of([word]))
            ]
            structures = [word for word in words if word.family]
            some = [[other for other in words if other is word or not other.family] for word in structures]
            together += _masked(case, mask_of(words)) if structures else []
            alone += [made for few in some for made in _masked(case, mask_of(few))]
        made = (case for case in (*together, *alone) if takes(case))
        made = (case for case in made if words_matter(case))
        for case in islice(made, 1):
            found.setdefault(case.mask, case)
    return list(found.values())[:MOST_STRUCTURED]


def _with_steps(backend: Backend, taken: list[PossibleCase], takes: Callable[[Case], bool]) -> list[Case]:
    """Return a case of a recurrence for each of :data:`STEPS`, with shared heads if it can; rules in turn."""
    dense = [one.case for one in taken if operation_named(one.case.operation).updates and not one.case.batch]
    rules = list(dict.fromkeys(case.rule for case in dense))
    found: list[Case] = []
    for number, steps in enumerate(STEPS):
        dense.sort(
            key=lambda case: (
                case.pass_ != "forward", (rules.index(case.rule) - number) % len(rules), case.Hkv == case.H
            )
        )  # fmt: skip
        found += islice((made for case in dense if takes(made := replace(case, Lq=steps, Lk=steps))), 1)
    return found


def _masked(case: Case, mask: Mask) -> list[Case]:
    """Return the case with another mask; nothing where it can't have it."""
    try:
        return [replace(case, mask=mask)]
    except BadCase:
        return []


def _with_dropout(backend: Backend, taken: list[PossibleCase], rules: Mapping[str, Rule]) -> list[Case]:
    for one in taken if backend.dropout else ():
        if one.case.pass_ == "forward" and one.case.Lq > 1 and one.case.dtype in ("float32", "bfloat16"):
            case = replace(one.case, dropout=DROPOUT)
            if ask(backend, case, rules[case.rule]).reason is None:
                return [case]
    return []


def _never_taken(
    backend: Backend, rules: Mapping[str, Rule], asked: list[tuple[PossibleCase, Answer]]
) -> list[Finding]:
    """Return findings on what is declared, and declined by ``supports`` wherever it occurs."""
    found = [
        _of_declarations(
            backend,
            f"it declares the rule {name!r}, but no loaded plugin brings this rule",
            "Bring the rule too (attnbench_rules), load the plugin that brings it, or remove it from rules.",
        )
        for name in backend.rules or ()
        if name not in rules
    ]
    if found and not asked:
        # Without a rule there was no case to ask about: supports() is not at fault.
        return found
    reasons = Counter(answer.reason for _, answer in asked if answer.reason)
    if all(answer.reason is not None for _, answer in asked):
        usual = f" (most often: {reasons.most_common(1)[0][0]})" if reasons else ""
        problem = f"supports() declined all {len(asked)} combinations of its declarations{usual}"
        do = "Return None for the cases that it can run; the kit's small cases have 1 to 70 queries and keys."
        return [*found, _of_declarations(backend, f"{problem}, so nothing could be checked", do)]
    for field, feature, wanted in (
        ("operations", "operation", backend.operations),
        ("rules", "rule", backend.rules or ()),
        ("dtypes", "dtype", backend.dtypes),
        ("passes", "pass", backend.passes),
    ):
        for value in wanted:
            answers = [answer.reason for one, answer in asked if one.features[feature] == value]
            if answers and None not in answers:
                problem = f"it declares {value!r} among its {field}, but supports() declines every such case"
                do = f"Remove {value!r} from {field}, or return None for such cases."
                found.append(_of_declarations(backend, f"{problem}: {answers[0]}", do))
    return found


def _of_declarations(backend: Backend, problem: str, do: str, *cases: str) -> Finding:
    return Finding(backend.name, problem, do, cases, about="declarations", check="supports")
