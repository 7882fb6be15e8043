"""A search of a plugin: what it finds, what it says, and that a right kernel is left alone."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from attnbench.cli import attnbench
from attnbench.ipc.names import PLAIN
from attnbench.plugins.registry import load_wanted
from attnbench.search import replay
from attnbench.search.process import Judgement, JudgingProcess, JudgingQuestion, first_ready, judges
from attnbench.search.report import with_searches
from attnbench.search.run import Fault, Searched, replayed, search
from attnbench.testing.diagnose import diagnose
from attnbench.testing.diagnosis_process import Look
from attnbench.testing.findings import Counts, Report
from attnbench.trial.judge import ALL_DRAWS, TrialOutcome, in_memory, judge
from attnbench.trial.point import parse_point
from attnbench.trial.shrink import Shrunk, needed
from attnbench.types.case import DTYPES

KERNEL = """
import attnbench
import torch

def prepare(setup):
    case, mask = setup.case, setup.case.mask

    def attend(q, k, v):
        {before}
        rows = torch.arange(case.Lq)[:, None] + case.query_offset
        keys = torch.arange(case.Lk)
        keep = torch.ones(case.Lq, case.Lk, dtype=torch.bool)
        if mask.causal:
            keep &= keys <= rows
        if mask.window{fault}:
            keep &= (rows - keys).abs() < mask.window
        k, v = (x.repeat_interleave(case.group, 1) for x in (k, v))
        scores = (q @ k.mT * case.D**-0.5).masked_fill(~keep, float("-inf"))
        return scores.softmax(-1).nan_to_num(0) @ v

    return attend

def supports(case, rule):
    if case.mask.padding or case.mask.explicit or case.constants or case.layout != "own":
        return "causal masks and windows only"

@attnbench.hookimpl
def attnbench_backends():
    yield attnbench.Backend(
        name="mine", summary="a test", prepare=prepare, supports=supports, rules=("scaled_dot",),
        dtypes=("float32",),
    )
"""


def invoke(*words: str) -> Result:
    """Run a command line in this process."""
    return CliRunner().invoke(attnbench, list(words), prog_name="attnbench")


def written(folder: Path, *, fault: str = "", before: str = "pass") -> Path:
    path = folder / "mine.py"
    path.write_text(KERNEL.format(fault=fault, before=before))
    return path


IGNORED = " and not mask.causal"
"""A window that is ignored under a causal mask; no case of the fixed list has both."""


@pytest.mark.slow
def test_a_fault_of_two_properties_is_found_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, fault=IGNORED)
    (found,) = search("mine", load_wanted(["mine.py"]), 60, 1).failures
    assert found.shrunk.needed == ("a causal mask", "a window of 1")
    assert found.alone
    assert found.outcome.check == "values"
    text = str(found.point)
    with pytest.raises(AssertionError, match="RMS error"):
        replay(text, "mine.py")
    again = invoke("check", "--plugin", "mine.py", "--replay", text)
    assert again.exit_code == 1
    assert again.stdout.startswith("mine: wrong: RMS error")
    written(tmp_path)
    replay(text, "mine.py")
    assert invoke("check", "--plugin", "mine.py", "--replay", text).exit_code == 0


@pytest.mark.slow
def test_the_command_searches_after_the_fixed_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, fault=IGNORED)
    # A part of the fixed list is enough.
    words = ["check", "--plugin", "mine.py", "--shard", "1/30"]
    result = invoke(*words, "--search", "60s", "--search-seed", "1")
    assert result.exit_code == 1
    assert "mine: searched " in result.stdout
    assert "It shows only with a causal mask and a window of 1 together" in result.stdout
    (line,) = [line for line in result.stdout.splitlines() if "--replay" in line]
    assert invoke(*shlex.split(line)[1:]).exit_code == 1
    without = invoke(*words, "--search", "off")
    assert without.exit_code == 0
    assert "searched" not in without.stdout


@pytest.mark.slow
def test_a_right_kernel_is_left_alone_and_the_words_count_what_met(tmp_path: Path) -> None:
    registry = load_wanted([str(written(tmp_path))])
    found = search("mine", registry, 3, 3)
    assert not found.failures
    assert not found.unjudged
    assert 0 < found.met <= found.possible
    assert f"searched {found.asked} further cases" in str(found)
    assert "(seed 3)" in str(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "words"),
    [
        ("import os; os._exit(7)", "it ended its process with status 7"),
        ("while True: pass", "it gave no answer within 1 s"),
    ],
)
def test_what_ends_or_blocks_a_process_is_told_and_the_next_case_is_judged(
    tmp_path: Path, before: str, words: str
) -> None:
    path = written(tmp_path, before=f"if case.Lq == 17:\n            {before}")
    registry = load_wanted([str(path)])
    entry = registry.backends["mine"]
    asked = JudgingQuestion("mine", entry.source, {"scaled_dot": registry.rules["scaled_dot"].source}, ())
    with judges(asked, 1, 1.0) as (one,):
        outcomes = []
        for L in (8, 17, 8):
            one.ask(f"attention/scaled_dot/H1-L{L}-D8")
            first_ready([one])
            outcomes.append(one.answer().outcome)
    status = "late" if "no answer" in words else "error"
    assert [outcome.status for outcome in outcomes] == ["right", status, "right"]
    assert words in outcomes[1].problem


@pytest.mark.slow
@pytest.mark.parametrize(("times", "status"), [(1, "right"), (2, "unjudged")])
def test_a_judge_that_fails_is_asked_again_by_a_new_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int, status: str
) -> None:
    judged = []

    def answer(judge: JudgingProcess) -> Judgement:
        found = answered(judge)
        judged.append(judge.judged)
        return Judgement(TrialOutcome("unjudged", "a slip")) if len(judged) <= times else found

    answered = JudgingProcess.answer
    monkeypatch.setattr(JudgingProcess, "answer", answer)
    registry = load_wanted([str(written(tmp_path))])
    outcome = replayed(parse_point("attention/scaled_dot/H1-L8-D8"), "mine", registry)
    assert outcome.status == status
    assert judged == [1, 1], "each is the first of its process"


WAYS = (
    "grad:no_grad", "grad:enabled", "q:offset", "k:slice", "v:features_outside", "k:same_in_batch",
    "v:same_in_heads", "before:larger", "before:smaller", "before:other_mask", "values:graded",
    "values:strided", "values:sliced", "values:transposed", "values:large_logits",
)  # fmt: skip
WAYS_BACK = (
    "grad:q",
    "grad:k",
    "grad:v",
    "upstream:expanded",
    "upstream:transposed",
    "k:same_in_heads",
    "values:strided",
    "values:sliced",
    "values:two_graphs",
)


@pytest.mark.parametrize(
    "text",
    [
        *(f"attention/scaled_dot/B2-H4-Hkv2-Lq5-Lk7-D8/causal/float32 {way}" for way in WAYS),
        "attention/scaled_dot/B2-H2-L40-D8/causal/float16 values:large_values",
        *(
            f"attention/scaled_dot/B2-H2-L40-D8/causal/{dtype} values:{values}"
            for dtype in DTYPES
            for values in ("far_below", "equal", "subnormal")
        ),
        *(f"attention/scaled_dot/B2-H4-Hkv2-L6-D8/causal/float32/cpu/both {way}" for way in WAYS_BACK),
    ],
)
def test_a_right_backend_is_right_in_every_way_of_calling(text: str) -> None:
    registry = load_wanted()
    source = registry.rules["scaled_dot"].source
    outcome = judge(parse_point(text), "eager", registry.backends["eager"].source, source)
    assert (outcome.status, outcome.problem) == ("right", "")


def test_scores_that_half_precision_cannot_tell_apart_are_no_fault() -> None:
    """Two scores near 56 are 0.27 apart, and bfloat16 rounds each by up to 0.125: one of four rows is off."""
    text = (
        "attention/dot/q1_q1s128-H2-D7/none/bfloat16/cpu/forward/paged/kv=fp8_e4m3:channel/seed243712064 "
        "values:large_logits"
    )
    registry, name = load_wanted(), "dequantise_sdpa"
    sources = registry.backends[name].source, registry.rules["dot"].source
    outcome = judge(parse_point(text), name, *sources, ALL_DRAWS)
    assert (outcome.status, outcome.problem) == ("right", "")


TILED = """
import attnbench
import torch

def prepare(setup):
    scale = setup.case.D**-0.5

    def attend(q, k, v):
        # The running maximum starts at START, and sums are held in HELD.
        most = torch.full((*q.shape[:-1], 1), START)
        total, out = torch.zeros_like(most), torch.zeros(*q.shape[:-1], v.shape[-1], dtype=HELD)
        for at in range(0, k.shape[2], 16):
            scores = (q.float() @ k[:, :, at : at + 16].float().mT) * scale
            now = torch.maximum(most, scores.amax(-1, keepdim=True))
            weights, again = (scores - now).exp(), (most - now).exp()
            total = total * again + weights.sum(-1, keepdim=True)
            out = (out * again + weights @ v[:, :, at : at + 16].float()).to(HELD)
            most = now
        return (out.float() / total).to(q.dtype)

    return attend

@attnbench.hookimpl
def attnbench_backends():
    yield attnbench.Backend(name="tiled", summary="a test", prepare=prepare, rules=("scaled_dot",))
"""


@pytest.mark.parametrize(
    ("start", "held", "dtype", "values", "status"),
    [
        ("-1e4", "torch.float32", "float32", "far_below", "wrong"),
        ("0.0", "torch.float32", "bfloat16", "far_below", "wrong"),
        ("float('-inf')", "torch.float32", "float32", "far_below", "right"),
        ("float('-inf')", "torch.float16", "float16", "large_values", "wrong"),
        ("float('-inf')", "torch.float32", "float16", "large_values", "right"),
    ],
)
def test_values_that_tiled_kernels_get_wrong(
    tmp_path: Path, start: str, held: str, dtype: str, values: str, status: str
) -> None:
    path = tmp_path / "tiled.py"
    path.write_text(TILED.replace("START", start).replace("HELD", held))
    registry = load_wanted([str(path)])
    point = parse_point(f"attention/scaled_dot/B2-H2-L64-D16/none/{dtype} values:{values}")
    source = registry.rules["scaled_dot"].source
    assert judge(point, "tiled", registry.backends["tiled"].source, source).status == status


LOSING = """
import attnbench
import torch

def prepare(setup):
    scale, sink = setup.case.D**-0.5, setup.scoring.sink.view(-1, 1, 1)

    def attend(q, k, v):
        scores = torch.cat([q @ k.mT * scale, sink.expand(*q.shape[:-1], 1)], -1)
        weights = scores.softmax(-1)
        return weights.masked_fill(weights < LEAST, 0)[..., :-1] @ v

    return attend

@attnbench.hookimpl
def attnbench_backends():
    yield attnbench.Backend(name="losing", summary="a test", prepare=prepare, rules=("sinks",))
"""


# Scores of -90.5 and of -64, beside a sink.
@pytest.mark.parametrize(("D", "least", "status"), [(128, "2**-126", "right"), (64, "1e-27", "wrong")])
def test_weights_may_be_lost_below_the_smallest_normal_number(
    tmp_path: Path, D: int, least: str, status: str
) -> None:
    path = tmp_path / "losing.py"
    path.write_text(LOSING.replace("LEAST", least))
    registry = load_wanted([str(path)])
    source = registry.backends["losing"].source
    found = {
        judge(
            parse_point(f"attention/sinks/H2-L15-D{D}/none/float32/cpu/forward/seed{seed} values:far_below"),
            "losing", source, registry.rules["sinks"].source,
        ).status
        for seed in range(8)
    }  # fmt: skip
    assert (found == {"right"}) == (status == "right")


def test_an_accumulator_that_overflows_float16_is_one_problem_with_its_cause(tmp_path: Path) -> None:
    path = tmp_path / "tiled.py"
    path.write_text(TILED.replace("START", "float('-inf')").replace("HELD", "torch.float16"))
    registry = load_wanted([str(path)])
    shown = "attention/scaled_dot/B2-H2-{}-D16/none/float16"
    source = registry.backends["tiled"].source
    look = Look(shown.format("Lq16-Lk2048"), registry.rules["scaled_dot"].source, ("large_values",))
    known = diagnose(look, "tiled", source)
    assert (
        "the accumulator, or the sum of powers, is kept in half precision”: keep both in float32" in known.do
    )

    # Two sizes that can't be made smaller are one fault.
    wrong = TrialOutcome("wrong", "got -inf", "values")
    points = [parse_point(f"{shown.format(L)} values:large_values") for L in ("L16", "Lq40-Lk21")]
    faults = [Fault(one, wrong, True, Shrunk(one, needed(one), done=True), known=known) for one in points]
    found = Searched("tiled", 1, 60.0, 55, 0, (), 0, 9, 9, 0.3, tuple(faults), 2)
    counts = Counts("tiled", 9, 9, 0, 9)
    report = with_searches(Report((counts,), ()), [found], [str(path)], several=False)
    (finding,) = report.findings
    assert finding.do == (
        f"{known.do} It shows only with the dtype float16, several batch elements, 2 key/value heads and the "
        "stress input large_values together."
    )
    assert len(finding.cases) == 2
    assert str(report).count("not right") == 1
    assert "searched 55 further cases of what it declares in 60 s, 4 of them not right" in str(report)


CALLED = """
import attnbench
import torch

def made(scratch, factor):
    def prepare(setup):
        case = setup.case
        kept = torch.empty(case.B, case.H, case.Lq, case.Lk)

        def attend(q, k, v):
            k, v = (x.repeat_interleave(case.group, 1) for x in (k, v))
            if torch.is_autocast_enabled("cpu"):
                q = q * factor
            scores = torch.matmul(q, k.mT, out=kept) if scratch else q @ k.mT
            return (scores * case.D**-0.5).softmax(-1) @ v

        return attend

    return prepare

@attnbench.hookimpl
def attnbench_backends():
    for name, scratch, factor in (("right", False, 1), ("scratch", True, 1), ("doubles", False, 2)):
        yield attnbench.Backend(
            name=name, summary="a test", prepare=made(scratch, factor), rules=("scaled_dot",),
            dtypes=("float32",), passes=("forward", "backward", "both"), concurrent=True,
            autocast=("bfloat16", "float16"),
        )
"""
ASKED = "attention/scaled_dot/B1-H4-Hkv2-L64-D64/none"


def called(folder: Path, name: str, point: str) -> str:
    path = folder / "called.py"
    path.write_text(CALLED)
    registry = load_wanted([str(path)])
    source = registry.rules["scaled_dot"].source
    return judge(parse_point(point), name, registry.backends[name].source, source).status


@pytest.mark.parametrize(
    "way",
    [
        "bfloat16 autocast:on", "float16 autocast:on", "bfloat16 autocast:on values:large_logits",
        "bfloat16/cpu/both autocast:on", "bfloat16 autocast:on k:slice at_once:two_threads",
        "float32 at_once:two_threads", "float32/cpu/both at_once:two_threads",
    ],
)  # fmt: skip
def test_a_right_kernel_is_right_under_autocast_and_beside_another_thread(tmp_path: Path, way: str) -> None:
    assert called(tmp_path, "right", f"{ASKED}/{way}") == "right"


def test_a_kernel_that_is_wrong_under_autocast_alone(tmp_path: Path) -> None:
    assert called(tmp_path, "doubles", f"{ASKED}/float32") == "right"
    assert called(tmp_path, "doubles", f"{ASKED}/bfloat16 autocast:on") == "wrong"


def test_a_kernel_whose_calls_share_memory_is_wrong_beside_another_thread(tmp_path: Path) -> None:
    assert called(tmp_path, "scratch", f"{ASKED}/float32") == "right"
    # Threads meet by chance: one of some tries shows it.
    found = (called(tmp_path, "scratch", f"{ASKED}/float32 at_once:two_threads") for _ in range(20))
    assert any(status == "wrong" for status in found)


PLAINLY = """
import attnbench

def prepare(setup):
    def attend(q, k, v):
        scores = q @ k.mT * setup.case.D**-0.5
        CHANGE
        return scores.softmax(-1) @ v

    return attend

@attnbench.hookimpl
def attnbench_backends():
    yield attnbench.Backend(name="plainly", summary="a test", prepare=prepare, rules=("scaled_dot",))
"""


@pytest.mark.parametrize(
    ("change", "values"),
    [
        # One of two keys that tie is lost.
        ("scores[..., 1:].masked_fill_(scores[..., 1:] == scores[..., :-1], float('-inf'))", "equal"),
        # The inverse of a tiny number is inf.
        ("unit = v.abs().amax(2, keepdim=True); v = v * (1 / unit) * unit", "subnormal"),
    ],
)
def test_values_that_a_plain_kernel_gets_wrong(tmp_path: Path, change: str, values: str) -> None:
    path = tmp_path / "plainly.py"
    path.write_text(PLAINLY.replace("CHANGE", change))
    registry = load_wanted([str(path)])
    source = registry.rules["scaled_dot"].source
    for asked, status in (("one_hot", "right"), (values, "wrong")):
        point = parse_point(f"attention/scaled_dot/B2-H2-L40-D16/none/float32 values:{asked}")
        assert judge(point, "plainly", registry.backends["plainly"].source, source).status == status


KEEPS_FOR_BACKWARD = """
import attnbench
import torch

class Attend(torch.autograd.Function):
    kept = ()

    @staticmethod
    def forward(ctx, q, k, v):
        weights = (q @ k.mT).softmax(-1)
        Attend.kept = (q, k, v, weights)
        return weights @ v

    @staticmethod
    def backward(ctx, grad):
        q, k, v, weights = Attend.kept
        of_weights = grad @ v.mT
        of_scores = weights * (of_weights - (weights * of_weights).sum(-1, keepdim=True))
        return of_scores @ k, of_scores.mT @ q, weights.mT @ grad

@attnbench.hookimpl
def attnbench_backends():
    yield attnbench.Backend(
        name="keeps", summary="a test", prepare=lambda setup: Attend.apply, rules=("dot",),
        passes=("forward", "backward", "both"),
    )
"""


@pytest.mark.parametrize(("values", "status"), [("strided", "right"), ("two_graphs", "wrong")])
def test_a_kernel_that_keeps_the_inputs_of_its_last_call_for_any_backward(
    tmp_path: Path, values: str, status: str
) -> None:
    path = tmp_path / "keeps.py"
    path.write_text(KEEPS_FOR_BACKWARD)
    registry = load_wanted([str(path)])
    point = parse_point(f"attention/dot/B2-H2-L9-D8/none/float32/cpu/both values:{values}")
    outcome = judge(point, "keeps", registry.backends["keeps"].source, registry.rules["dot"].source)
    assert (outcome.status, outcome.check) == (status, "gradients" if status == "wrong" else "")


@pytest.mark.parametrize(
    ("word", "strides"),
    [
        ("offset", (60, 20, 5, 1)),
        ("slice", (105, 35, 5, 1)),
        ("features_outside", (60, 20, 1, 4)),
        ("same_in_batch", (0, 20, 5, 1)),
        ("same_in_heads", (20, 0, 5, 1)),
        ("expanded", (0, 0, 0, 0)),
        ("transposed", (60, 20, 1, 4)),
        (PLAIN, (60, 20, 5, 1)),
    ],
)
def test_where_tensors_lie(word: str, strides: tuple[int, ...]) -> None:
    import torch

    x = torch.ones(2, 3, 4, 5)
    moved = in_memory(x, word)
    assert moved.stride() == strides
    assert torch.equal(moved, x)
    assert moved.storage_offset() == {"offset": 1, "slice": 5}.get(word, 0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_parts_that_are_merged_by_their_lse_are_right_far_below_zero(dtype: str) -> None:
    """An lse of -16,384 is rounded in float32, which is a relative error of the output."""
    file = str(Path(__file__).parents[1] / "benchmarks" / "right_kernels.py")
    registry = load_wanted([file])
    source, rule = registry.backends["right_decode"].source, registry.rules["scaled_dot"].source
    for seed in range(6):
        case = f"attention/scaled_dot/B1-H1-Lq1-Lk35-D1/none/{dtype}/cpu/forward/seed{seed}"
        outcome = judge(parse_point(f"{case} values:far_below"), "right_decode", source, rule)
        assert outcome.status == "right", outcome.problem
