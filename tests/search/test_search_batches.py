"""The search over batches: storages, their sizes, mixes of lengths and further outputs are properties too."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner, Result

from attnbench import Backend
from attnbench.cli import attnbench
from attnbench.plugins.registry import Registry, load_wanted
from attnbench.search import replay
from attnbench.search.covering import Covering
from attnbench.search.report import with_searches
from attnbench.search.run import Fault, Searched, search
from attnbench.search.space import SEQUENCES, SIZES, Space, space_of
from attnbench.testing.findings import Report
from attnbench.testing.judge import rules_in
from attnbench.trial.judge import TrialOutcome, judge
from attnbench.trial.point import Point, parse_point
from attnbench.trial.shrink import Shrunk, shrink, thresholds
from attnbench.types.batch import parse_batch
from attnbench.types.storage import sizes_of

HEADS_FIRST = """
import torch
from attnbench import Backend, hookimpl

def prepare(setup):
    case = setup.case
    return lambda q, k, v, *lengths: (torch.zeros(len(q), case.H, case.Dv), torch.zeros(case.H, len(q)))

@hookimpl
def attnbench_backends():
    yield Backend(
        name="mine", summary="a test", prepare=prepare, rules=("scaled_dot",), storages=("packed",),
        returns=("lse",),
    )
"""

MUTANTS = str(Path(__file__).parent.parent / "benchmarks" / "batch_mutants.py")


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_wanted([MUTANTS])


def space_for(registry: Registry, **declared: object) -> Space:
    backend = Backend(
        name="mine",
        summary="a test",
        prepare=lambda setup: lambda q, k, v: v,
        rules=("scaled_dot",),
        **declared,
    )  # type: ignore[arg-type]
    return space_of(backend, {"scaled_dot": rules_in(registry)["scaled_dot"]})


def drawn_points(space: Space, count: int) -> list[Point]:
    covering = Covering(space, Random(1))
    points = []
    for _ in range(count):
        drawn = covering.draw()
        assert drawn is not None
        covering.count(drawn.row)
        points.append(drawn.point)
    return points


def test_mixes_of_lengths_sizes_storages_and_outputs_meet(registry: Registry) -> None:
    space = space_for(
        registry, storages=("dense", "packed", "paged"), returns=("lse",), passes=("forward", "both")
    )
    assert space.properties["sequences"] == ("", *SEQUENCES)
    assert space.properties["sizes"] == ("", *SIZES)
    points = drawn_points(space, 120)
    cases = [point.case for point in points]
    assert {case.storage for case in cases} == {"dense", "packed", "paged"}
    batches = [parse_batch(case.batch) for case in cases if case.batch]
    assert any(queries > 0 and keys == 0 for lengths in batches for queries, keys in lengths)
    assert any(queries == 0 < keys for lengths in batches for queries, keys in lengths)
    assert any(len(set(lengths)) > 2 for lengths in batches)
    paged = [case for case in cases if case.storage == "paged"]
    assert {sizes_of(case)["page"] for case in paged} >= {1, 16}
    assert any({keys for _, keys in parse_batch(case.batch)} & {sizes_of(case)["page"]} for case in paged)
    for one, other in combinations((["packed", "paged"], [(), ("lse",)]), 2):
        assert {(case.storage, case.returns) for case in cases} >= {(a, b) for a in one for b in other}
    assert any(case.pass_ == "both" and case.storage == "packed" for case in cases)
    assert any(point.way.q and point.case.batch for point in points)


def test_a_kernel_for_the_latent_head_of_published_models_is_searched(registry: Registry) -> None:
    backend = Backend(
        name="mine", summary="a test", prepare=lambda setup: lambda *inputs: inputs, rules=("scaled_dot",),
        supports=lambda case, rule: None if (case.D, case.Dv) == (576, 512) else "another head",
        storages=("paged",), encodings=("latent",),
    )  # fmt: skip
    covering = Covering(space_of(backend, {"scaled_dot": registry.rules["scaled_dot"].record}), Random(1))
    assert {drawn.point.case.kv for _ in range(5) if (drawn := covering.draw())} == {"latent"}


def test_writers_of_caches_are_searched(registry: Registry) -> None:
    space = space_of(
        registry.backends["torch_quantise"].record, {"nearest": registry.rules["nearest"].record}
    )
    covering = Covering(space, Random(1))
    cases = [drawn.point.case for _ in range(5) if (drawn := covering.draw())]
    assert len(cases) == 5
    assert all(case.mask.is_none and case.Hkv == case.H and case.kv != "dtype" for case in cases)


def test_a_search_that_asked_nothing_says_so() -> None:
    nothing = Searched("mine", 1, 60.0, 0, 0, (), 0, 0, 0, 0.0, ())
    assert str(nothing) == "mine: NOT searched: supports() takes no case that a search draws"


def test_a_backend_of_equal_lengths_alone_is_asked_for_no_batch(registry: Registry) -> None:
    properties = space_for(registry).properties
    assert not {"storage", "sequences", "sizes", "returns"} & set(properties)


def test_of_packed_inputs_alone_no_layout_is_asked(registry: Registry) -> None:
    properties = space_for(registry, storages=("packed",)).properties
    assert properties["storage"] == ("packed",)
    assert properties["layout"] == ("",)
    assert properties["padding"] == ("",)


RIGHT = (
    "attention/scaled_dot/3q33s65-H4-Hkv2-D16/causal:lower_right/float32/cpu/forward/packed q:slice k:slice",
    "attention/scaled_dot/q0s5_q7s0_q40-H4-D16/window:9/bfloat16/cpu/both/packed upstream:transposed",
    "attention/softcap/q1s64_q9s33-H6-Hkv2-D8-Dv24/causal/float16/cpu/forward/paged:3 before:larger",
    "attention/scaled_dot/2q1s129-H4-D8/none/float32/cpu/forward/paged:1 values:far_below v:slice",
    "attention/scaled_dot/q17_q1s40-H2-D16/bool:per_head/float32/cpu/forward/packed/lse"
    " values:large_logits v:offset",
    "attention/scaled_dot/q17_q1s40-H2-D16/none/float32/cpu/forward/paged/lse values:graded before:smaller",
    # The bias is rounded to the dtype of the case, and the logarithms are as far off.
    "attention/alibi/q0_q300s256-H12-D3/none/bfloat16/cpu/forward/paged:2/lse",
    "attention/alibi/q256s129-H12-D16-Dv4/causal/float16/cpu/forward/packed/lse",
)


@pytest.mark.parametrize("text", RIGHT)
def test_a_right_kernel_is_right_whatever_the_batch_and_the_way(registry: Registry, text: str) -> None:
    assert outcome(registry, "batch_mutants_right", text) in (("right", ""), ("declined", NO_GRADIENTS))


NO_GRADIENTS = "a paged cache has no gradients: take the storage packed"


def outcome(registry: Registry, backend: str, text: str) -> tuple[str, str]:
    point = parse_point(text)
    source = registry.backends[backend].source
    found = judge(point, backend, source, registry.rules[point.case.rule].source)
    return found.status, found.problem


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("groups_of_single_slots", "scaled_dot/2q9-H4-Hkv2-D8/none/float32/cpu/forward/paged:1"),
        ("slot_behind_last", "scaled_dot/2q1s32-H4-Hkv2-D8/none/float32/cpu/forward/paged"),
        ("lse_of_nothing", "scaled_dot/q9_q3s0-H1-D8/none/float32/cpu/forward/packed/lse"),
        ("lse_in_half", "scaled_dot/q9-H1-D8/none/bfloat16/cpu/forward/packed/lse"),
        ("queries_as_contiguous", "scaled_dot/q9-H4-Hkv2-D8/none/float32/cpu/forward/packed q:slice"),
        ("distances_by_longest", "alibi/q9s65_q17-H2-D8/none/float32/cpu/forward/packed"),
    ],
)
def test_a_fault_of_a_batch_is_wrong(registry: Registry, name: str, text: str) -> None:
    status, problem = outcome(registry, f"mutant_{name}", f"attention/{text}")
    assert status == "wrong"
    assert "sequence " in problem


def test_of_several_outputs_the_one_of_another_form_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(HEADS_FIRST)
    status, problem = outcome(load_wanted([str(file)]), "mine", "attention/scaled_dot/2q9-H2-D8/packed/lse")
    assert (status, problem) == ("wrong", "the output 'lse' has shape (2, 18); (18, 2) is asked for")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("attention/scaled_dot/H1-L1-D8", "takes packed and paged inputs, not dense"),
        ("attention/dot/q9-H1-D8/packed", "computes scaled_dot, alibi and softcap, not dot"),
        (
            "attention/scaled_dot/q9-H1-D8/float64/packed",
            "computes in float32, bfloat16 and float16, not float64",
        ),
    ],
)
def test_what_a_backend_does_not_declare_is_declined(registry: Registry, text: str, reason: str) -> None:
    """Shrinking would leave the declarations else, and blame the backend for what it never claimed."""
    assert outcome(registry, "batch_mutants_right", text) == ("declined", reason)


LARGE = parse_point(
    "attention/alibi/q0s9_3q33s257_q65_q5s0-H12-Hkv3-D64-Dv32/causal:lower_right+window:300/bfloat16/cpu/forward"
    "/paged:32/lse values:large_logits q:slice before:larger"
)


def unlike_alignments(point: Point) -> bool:
    case = point.case
    lengths = parse_batch(case.batch) if case.batch else ()
    return case.mask.causal == "lower_right" and len({keys - queries for queries, keys in lengths}) > 1


def small_pages(point: Point) -> bool:
    return point.case.storage == "paged" and sizes_of(point.case)["page"] > 5 and point.case.group > 1


def long_sequence(point: Point) -> bool:
    return bool(point.case.batch) and any(q and k > 64 for q, k in parse_batch(point.case.batch))


def returned(point: Point) -> bool:
    return point.case.returns == ("lse",)


@pytest.mark.parametrize(
    ("is_wrong", "smallest", "since"),
    [
        (unlike_alignments, "scaled_dot/q0s1_q1-H1-D1/causal:lower_right/float32/cpu/forward/paged", ""),
        (small_pages, "scaled_dot/q1-H2-Hkv1-D1/none/float32/cpu/forward/paged", ""),
        (long_sequence, "scaled_dot/q65-H1-D1/none/float32/cpu/forward/paged", "from Lq = Lk = 65 on"),
        (returned, "scaled_dot/B1-H1-Lq1-Lk1-D1/none/float32/cpu/forward/lse", ""),
    ],
)
def test_a_batch_is_made_small(is_wrong: Callable[[Point], bool], smallest: str, since: str) -> None:
    found = shrink(LARGE, is_wrong)
    assert found.done
    assert str(found.point) == f"attention/{smallest}"
    assert thresholds(found.point, is_wrong) == since


def test_what_a_batch_needs_is_said_in_words() -> None:
    words = shrink(LARGE, unlike_alignments).needed
    assert words == (
        "a causal mask aligned at the lower right",
        "the storage paged",
        "several sequences",
        "unlike lengths",
        "a sequence without queries",
    )


@pytest.mark.slow
@pytest.mark.nightly
def test_a_search_finds_a_fault_of_pages_and_groups(registry: Registry) -> None:
    found = search("mutant_groups_of_single_slots", registry, 120, 1)
    assert any({"the storage paged", "page = 1"} <= set(one.shrunk.needed) for one in found.failures)
    assert "searched 0 further cases" not in str(found)


def replayed(*words: str) -> Result:
    """Ask a case again by the command line, in this process."""
    command = ["check", *words, "--replay", CASE]
    return CliRunner().invoke(attnbench, command, prog_name="attnbench")


CASE = "attention/scaled_dot/q9-H4-Hkv2-D8/none/float32/cpu/forward/packed q:slice"
WRONG, ITS = "mutant_queries_as_contiguous", "batch_mutants_right"


@pytest.mark.slow
def test_of_a_plugin_with_several_backends_one_is_named_to_ask_again() -> None:
    assert replayed("--plugin", MUTANTS, "--backend", ITS).exit_code == 0
    wrong = replayed("--plugin", MUTANTS, "--backend", WRONG)
    assert wrong.exit_code == 1
    assert wrong.stdout.startswith(f"{WRONG}: wrong: sequence 0")
    with pytest.raises(AssertionError, match="sequence 0"):
        replay(CASE, MUTANTS, WRONG)
    replay(CASE, "per_sequence")


def test_asking_again_needs_one_backend() -> None:
    assert "name one of them" in replayed("--plugin", MUTANTS).stderr
    assert "--replay needs the --plugin or the --backend" in replayed().stderr
    assert "give no others" in replayed("--backend", ITS, "--backend", WRONG).stderr


def test_what_a_search_prints_names_the_backend_of_several(registry: Registry) -> None:
    point = parse_point(CASE)
    fault = Fault(point, TrialOutcome("wrong", "off", "values"), True, Shrunk(point, ("pages",), done=True))
    found = Searched(WRONG, 1, 60.0, 9, 0, (), 0, 8, 9, 0.5, (fault,))
    for several, backend in ((True, f" --backend {WRONG}"), (False, "")):
        (finding,) = with_searches(Report((), ()), [found], ["mine.py"], several=several).findings
        command, test = finding.again
        assert command == f"attnbench check --plugin mine.py{backend} --replay '{CASE}'"
        named = f", '{WRONG}'" if several else ""
        assert test.endswith(f"replay('{CASE}', 'mine.py'{named})")
