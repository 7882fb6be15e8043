"""``attnbench capture`` on real programs: counts, the program's own result, and what goes wrong."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
import warnings
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import attnbench
from attnbench.cases.ids import parse_case, short_id
from attnbench.cases.suites import read_suite
from attnbench.programs.suite import captured
from attnbench.programs.tally import Call, Calls
from attnbench.types.errors import BadInput
from attnbench.types.mask import mask_text

EXAMPLES = Path(__file__).parent / "examples"


def capture(folder: Path, *program: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "attnbench", "capture", *options, "--", *program]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


def counts(path: Path) -> dict[str, float]:
    suite = read_suite(path)
    assert suite.counts is not None
    return {short_id(case): count for case, count in zip(suite.cases, suite.counts, strict=True)}


def calls_by_lengths(path: Path) -> dict[str, float]:
    """Forward and backward calls by their lengths, as the programs print them."""
    found: dict[str, float] = {}
    suite = read_suite(path)
    for case, count in zip(suite.cases, suite.counts or (), strict=True):
        for part in ("forward", "backward") if case.pass_ == "both" else ("forward",):
            key = f"{case.Lq}x{case.Lk} {part}"
            found[key] = found.get(key, 0) + count
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["training", "encoder", "flex", "threads", "compiling", "decoder"])
def test_counts_equal_those_of_the_program_itself(name: str, tmp_path: Path) -> None:
    if name == "decoder":
        pytest.importorskip("transformers")
    done = capture(tmp_path, sys.executable, str(EXAMPLES / f"{name}.py"))
    assert done.returncode == 0, done.stderr
    assert calls_by_lengths(tmp_path / "captured.toml") == json.loads(done.stdout)
    if name == "decoder":
        cases = read_suite(tmp_path / "captured.toml").cases
        assert {mask_text(case.mask) for case in cases} == {"causal+window:16", "none"}


TIMED = """
import time, torch
from torch.nn import functional
torch.set_num_threads(1)
x, w = torch.randn(1, 8, 700, 64), torch.randn(700, 700)
begun, calls = time.perf_counter(), 0.0
for _ in range(20):
    call = time.perf_counter()
    functional.scaled_dot_product_attention(x, x, x)
    calls += time.perf_counter() - call
    w @ w @ w
print(calls, calls / (time.perf_counter() - begun))
"""


def test_a_recording_says_how_much_of_the_program_its_attention_takes(tmp_path: Path) -> None:
    """A reader learns before any run whether a faster attention can matter; loading is no part of it."""
    done = capture(tmp_path, sys.executable, "-c", TIMED)
    words = re.search(
        r"calls of attention took (\S+)% of the (\S+) s from the first to the last: no choice saves much",
        done.stderr,
    )
    assert words is not None, done.stderr
    calls_s, share = map(float, done.stdout.split())
    told = read_suite(tmp_path / "captured.toml").share
    assert told is not None
    assert float(words[1]) == pytest.approx(100 * told, abs=1)
    # The program's own clock runs while calls are recorded too.
    assert 0.1 * share < told <= 1.1 * share
    assert 0.1 * calls_s < told * float(words[2]) <= 1.1 * calls_s


ALONE = """
import torch
from torch.nn import functional
torch.set_num_threads(1)
x = torch.randn(1, 8, 500, 64)
for _ in range(8):
    functional.scaled_dot_product_attention(x, x, x)
"""
IN_THREADS = ALONE.replace(
    "for _",
    """
from threading import Thread
other = Thread(target=lambda: functional.scaled_dot_product_attention(x, x, x))
other.start(); other.join()
for _""",
)
IN_PROCESSES = (
    ALONE
    + """
import subprocess, sys
code = "import torch; x = torch.ones(1, 2, 4, 8); torch.nn.functional.scaled_dot_product_attention(x, x, x)"
subprocess.run([sys.executable, "-c", code], check=True)
"""
)


def test_a_share_is_told_of_one_thread_alone(tmp_path: Path) -> None:
    """Which of several waits for another, nobody knows. All of the time is a share too."""
    for place, (code, known) in enumerate(((ALONE, True), (IN_THREADS, False), (IN_PROCESSES, False))):
        folder = tmp_path / str(place)
        folder.mkdir()
        told = capture(folder, sys.executable, "-c", code).stderr
        assert ("no choice saves much more" in told) == known, told
        assert (read_suite(folder / "captured.toml").share is not None) == known


def test_no_share_is_told_where_threads_waited_for_other_work(tmp_path: Path) -> None:
    """Two threads wait for each other, and of a tenth of the time a busy machine makes a third."""
    burn = [sys.executable, "-c", "while True: pass"]
    with ExitStack() as after:
        for _ in range(os.cpu_count() or 1):
            other = after.enter_context(subprocess.Popen(burn))
            after.callback(other.kill)
        code = TIMED.replace("set_num_threads(1)", "set_num_threads(2)")
        told = capture(tmp_path, sys.executable, "-c", code).stderr
    assert re.search(r"other processes used \d+% of the cores, and its threads may have waited", told), told
    assert "from the first to the last" not in told
    assert read_suite(tmp_path / "captured.toml").share is None


@pytest.mark.parametrize("layout", ["BHCD", "BCHD"])
def test_the_step_that_fills_a_cache_is_one_of_the_decode(layout: str) -> None:
    q = torch.randn(2, 3, 1, 8)
    cache = torch.randn(2, 3, 64, 8) if layout == "BHCD" else torch.randn(2, 64, 3, 8).transpose(1, 2)
    with attnbench.capture() as calls:
        for length in range(57, 65):
            functional.scaled_dot_product_attention(q, cache[:, :, :length], cache[:, :, :length])
        functional.scaled_dot_product_attention(q, *(torch.randn(2, 2, 3, 80, 8)))
    found = {(one.case.Lk, one.case.layout, one.count) for one in calls.captured.cases}
    assert found == {(57, layout, 4), (64, layout, 4), (80, "BHLD", 1)}


def test_more_threads_than_cores_are_told(tmp_path: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    told = capture(tmp_path, sys.executable, "-c", ALONE, options=("--threads", f"1,{cores + 1}")).stderr
    assert f"a run of {cores + 1} threads needs as many cores" in told


def test_a_window_that_rolls_in_a_full_cache_is_a_case_of_its_own() -> None:
    q, cache = torch.randn(1, 2, 1, 8), torch.randn(1, 2, 64, 8)
    with attnbench.capture() as calls:
        for length in range(57, 72):
            keys = cache[:, :, : min(length, 64)]
            functional.scaled_dot_product_attention(q, keys, keys)
    found = {(one.case.Lk, one.case.layout, one.count) for one in calls.captured.cases}
    assert found == {(57, "BHCD", 3.5), (63, "BHCD", 3.5), (64, "BHLD", 8)}


def test_a_block_without_attention_has_no_suite_to_write(tmp_path: Path) -> None:
    with attnbench.capture() as calls:
        pass
    with pytest.raises(BadInput, match="no attention call was captured"):
        calls.write(tmp_path / "none.toml")
    assert not list(tmp_path.iterdir())


DECODES = """
import sys, torch
from torch.nn import functional
for length in range(60, 60 + int(sys.argv[1])):
    q, k = torch.randn(1, 2, 1, 8), torch.randn(1, 2, length, 8)
    functional.scaled_dot_product_attention(q, k, k)
"""


SLICES = """
import torch
from torch.nn import functional
q, cache = torch.randn(1, 2, 1, 8), torch.randn(1, 2, 512, 8)
for length in range(60, 72):
    keys = cache[:, :, :length]
    functional.scaled_dot_product_attention(q, keys, keys)
"""


def test_a_slice_of_a_longer_cache_has_a_layout(tmp_path: Path) -> None:
    told = capture(tmp_path, sys.executable, "-c", SLICES).stderr
    assert "/BHCD" in told
    assert "no word says" not in told
    assert "serves no decode of over 71 keys" in told


def test_a_recorded_decode_says_at_how_many_keys_a_choice_ends(tmp_path: Path) -> None:
    said = "a choice from it serves no decode of over 71 keys: for more, capture a longer one"
    assert said in capture(tmp_path, sys.executable, "-c", DECODES, "12").stderr
    # Of one length nothing grew: it may be one of keys from elsewhere, as those of an encoder.
    assert "a choice" not in capture(tmp_path, sys.executable, "-c", DECODES, "1").stderr


ENDS = """
import os, signal, torch
q = torch.ones(1, 2, 8, 4)
for _ in range(3):
    torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
scores = (q @ q.transpose(-1, -2)).softmax(-1)
print("out", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_program_that_is_killed_keeps_its_status_and_its_calls(tmp_path: Path) -> None:
    done = capture(tmp_path, sys.executable, "-c", ENDS)
    assert (done.returncode, done.stdout) == (137, "out\n")
    assert "the program ended with status 137" in done.stderr
    assert "1 call: softmax at <string>:6: attention by hand?" in done.stderr
    assert "--backend sdpa_flash --backend bmm --backend eager --out captured.jsonl" in done.stderr
    assert list(counts(tmp_path / "captured.toml").values()) == [3]


def test_a_program_without_attention_is_told_and_nothing_is_written(tmp_path: Path) -> None:
    done = capture(tmp_path, sys.executable, "-c", "print('out'); raise SystemExit(7)")
    assert (done.returncode, done.stdout) == (7, "out\n")
    assert "the program ended with status 7" in done.stderr
    assert "no attention call was captured: nothing was written" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_file_of_somebody_else_is_kept_and_a_missing_program_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("mine")
    kept = capture(tmp_path, sys.executable, "-c", "print('ran')", options=("--out", "mine.toml"))
    assert (kept.returncode, kept.stdout) == (2, "")
    assert "is not a suite that attnbench wrote: name another file, or replace it with --force" in kept.stderr
    nowhere = capture(tmp_path, sys.executable, "-c", "print('ran')", options=("--out", "none/mine.toml"))
    assert (nowhere.returncode, nowhere.stdout) == (2, "")
    assert "there is no folder 'none'; make it, or name another file" in nowhere.stderr
    named = capture(tmp_path, sys.executable, "-c", "print('ran')", options=("--out", "mine"))
    assert (named.returncode, named.stdout) == (2, "")
    assert "'mine': the name of a suite ends with .toml" in named.stderr
    (tmp_path / "train.py").touch()
    assert (
        "'train.py': No such file or directory; is it python train.py?"
        in capture(tmp_path, "train.py").stderr
    )
    missing = capture(tmp_path, "no-such-program")
    assert missing.returncode == 2
    assert "can't start 'no-such-program': No such file or directory" in missing.stderr


@pytest.mark.slow
def test_steps_end_the_recording_and_divide_the_counts(tmp_path: Path) -> None:
    done = capture(tmp_path, sys.executable, str(EXAMPLES / "training.py"), options=("--steps", "2"))
    assert done.returncode == 0
    suite = read_suite(tmp_path / "captured.toml")
    # The call without gradients follows the step: that of the second one was no longer recorded.
    assert dict(zip([case.Lq for case in suite.cases], suite.counts or (), strict=True)) == {24: 3, 1: 0.5}


def in_words(of: attnbench.programs.suite.Captured) -> dict[str, float]:
    threads = f"/threads{torch.get_num_threads()}"
    return {short_id(one.case).removesuffix(threads): one.count for one in of.cases}


def test_a_block_is_captured_and_the_functions_are_put_back() -> None:
    real, softmax = functional.scaled_dot_product_attention, torch.Tensor.softmax
    q, few = torch.randn(2, 8, 16, 32), torch.randn(2, 2, 16, 32)
    with attnbench.capture() as calls:
        functional.scaled_dot_product_attention(q, few, few, enable_gqa=True)
        functional.scaled_dot_product_attention(q, q, q, scale=1.0)
        functional.scaled_dot_product_attention(q, q, q, dropout_p=0.25)
        with torch.autocast("cpu", torch.bfloat16):
            functional.scaled_dot_product_attention(q, q, q, attn_mask=torch.ones(16, 16).tril().bool())
    functional.scaled_dot_product_attention(q, q, q)
    assert (functional.scaled_dot_product_attention, torch.Tensor.softmax) == (real, softmax)
    assert in_words(calls.captured) == {
        "scaled_dot/B2-H8-Hkv2-L16-D32/BHLD": 1,
        "dot/B2-H8-L16-D32/BHLD": 1,
        "scaled_dot/B2-H8-L16-D32/dropout0.25/BHLD": 1,
        "scaled_dot/B2-H8-L16-D32/causal/bfloat16/BHLD": 1,
    }


def test_calls_that_are_computed_again_count_and_refused_ones_do_not() -> None:
    from torch.utils.checkpoint import checkpoint

    q = torch.randn(1, 2, 16, 8, requires_grad=True)
    with attnbench.capture() as calls:
        for _ in range(3):
            attention = functional.scaled_dot_product_attention
            checkpoint(attention, q, q, q, use_reentrant=False).sum().backward()
        with pytest.raises(RuntimeError):
            functional.scaled_dot_product_attention(q, q[..., :4], q)
    assert in_words(calls.captured) == {"scaled_dot/H2-L16-D8/both/BHLD": 3, "scaled_dot/H2-L16-D8/BHLD": 3}


@pytest.mark.parametrize("weights", [False, True])
def test_a_layer_is_one_call_with_its_masks_put_together(weights: bool) -> None:
    layer = nn.MultiheadAttention(32, 4, batch_first=True)
    x = torch.randn(2, 10, 32)
    padded = torch.arange(10) >= torch.tensor([[7], [10]])
    causal = torch.ones(10, 10).triu(1).bool()
    with attnbench.capture() as calls:
        output, _ = layer(x, x, x, key_padding_mask=padded, attn_mask=causal, need_weights=weights)
        output.mean().backward()
    assert in_words(calls.captured) == {"scaled_dot/B2-H4-L10-D8/causal+padding:7,10/both/LBHD": 1}


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_what_no_case_says_is_named_with_its_number_of_calls() -> None:
    from torch.nn.attention import flex_attention as flex

    q = torch.randn(1, 2, 8, 4)

    def bent(score: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return score * 2

    with attnbench.capture() as calls:
        flex.flex_attention(q, q, q, score_mod=bent)
        functional.scaled_dot_product_attention(q[..., :0, :], q, q)
    assert (calls.captured.classified, calls.captured.calls) == (0, 2)
    changed, empty = calls.captured.notes
    assert changed == "1 call: not classified: flex_attention: bent changes the scores"
    assert empty.startswith("1 call: not classified: scaled_dot_product_attention: case ")
    both = ("1 call of flex_attention", "1 call of scaled_dot_product_attention")
    assert calls.captured.without == both, "totals of a step name them"


def call(Lk: int, mask: str = "none", Lq: int = 1, B: int = 2) -> Call:
    return Call("f", B, 4, 4, Lq, Lk, 16, 16, mask, None, "float32", "cpu", None, 0.0, 1, "own")


def test_growing_caches_become_the_ends_of_octaves_that_keep_calls_and_pairs() -> None:
    numbers = {Lk: 10 + (Lk == 110) * 27 for Lk in range(100, 200)}
    counted = {call(Lk): (number, 0) for Lk, number in numbers.items()}
    found = captured(Calls(counted, 0, 0.0), by_step=False)
    counts = {one.case.Lk: one.count for one in found.cases}
    # A cache often ends with a power of two, which gets no case of its own.
    assert list(counts) == [100, 128, 129, 199]
    for first, last in ((100, 128), (129, 199)):
        calls = [(Lk, number) for Lk, number in numbers.items() if first <= Lk <= last]
        assert counts[first] + counts[last] == pytest.approx(sum(number for _, number in calls))
        keys = first * counts[first] + last * counts[last]
        assert keys == pytest.approx(sum(Lk * number for Lk, number in calls))
    assert "[[cases]] # an end of 71 lengths" in found.toml()
    suite = tomllib.loads(found.toml(threads=(1, 2)))["cases"]
    written = [(parse_case(one["id"]).threads, parse_case(one["id"]).Lk, one["count"]) for one in suite]
    assert written == [(n, Lk, float(f"{counts[Lk]:.6g}")) for n in (1, 2) for Lk in counts]


def test_a_program_that_decodes_after_its_prompts_has_two_stages_and_a_step_has_none() -> None:
    both = {call(100, "causal", Lq=100): (4, 0), call(101): (4, 0), call(102): (4, 0)}

    def stages(calls: Calls, *, by_step: bool) -> dict[str, str | None]:
        cases = tomllib.loads(captured(calls, by_step=by_step).toml())["cases"]
        return {
            short_id(parse_case(one["id"])).split("/")[1].split("-", 1)[1]: one.get("stage") for one in cases
        }

    whole = stages(Calls(both, 2, 0.0), by_step=False)
    # The decode of 101 keys has the most work, and stands behind its prompt all the same.
    assert list(whole.values()) == [
        "prefill in the program",
        "decode in the program",
        "decode in the program",
    ]
    assert set(stages(Calls(both, 2, 0.0), by_step=True).values()) == {None}
    assert set(stages(Calls({call(101): (4, 0)}, 0, 0.0), by_step=False).values()) == {None}


def test_batches_of_many_shapes_become_few_cases_with_the_same_pairs() -> None:
    kinds = [call(Lk, Lq=Lq, B=4096 // Lk) for Lq in range(17, 31) for Lk in range(65, 127)]
    kinds += [call(L, f"padding:{L - 3},{L}", L) for L in range(65, 127)]
    found = captured(Calls(dict.fromkeys(kinds, (10, 0)), 0, 0.0), by_step=False)
    plain, padded = found.cases
    pairs = sum(10 * kind.B * kind.Lq * kind.Lk for kind in kinds[:-62])
    case = plain.case
    assert plain.count * case.B * case.Lq * case.Lk == pytest.approx(pairs, rel=0.05)
    assert (padded.count, padded.case.Lq, padded.case.mask.padding) == (620, 97, (94, 97))


def test_a_scale_beyond_those_of_the_rule_is_named_and_left_out() -> None:
    counted = {call(16): (1, 0), replace(call(16), scale=50.0): (2, 0)}
    found = captured(Calls(counted, 0, 0.0), by_step=False)
    assert (found.classified, found.calls, len(found.cases)) == (1, 3, 1)
    assert found.notes == ("2 calls: not classified: f: scale = 50: give 0.0001 to 4",)


@pytest.mark.slow
def test_a_process_that_outlives_the_recording_runs(tmp_path: Path) -> None:
    begin = "from attnbench.programs.begin import begin; begin()"
    program = f"import os; {begin}; os.environ['ATTNBENCH_CAPTURE'] = 'gone'; {begin}; import torch"
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)


def test_paddings_of_many_batches_become_that_nearest_to_the_mean() -> None:
    counted = {call(32, f"padding:{n},32", 32): (1, 1) for n in (3, 30, 9)}
    (one,) = captured(Calls(counted, 3, 0.0), by_step=True).cases
    assert (one.case.mask.padding, one.count) == ((9, 32), 1)


def test_prompts_that_are_padded_on_the_left_decode_in_cases_of_each_octave() -> None:
    q, dropped = torch.ones(3, 2, 1, 4), torch.tensor([0, 3, 7]).view(3, 1, 1, 1)
    with attnbench.capture() as calls:
        for keys in range(17, 33):
            k = torch.ones(3, 2, keys, 4)
            torch.nn.functional.scaled_dot_product_attention(q, k, k, torch.arange(keys) >= dropped)
    found = {(one.case.Lk, mask_text(one.case.mask), one.count) for one in calls.captured.cases}
    assert found == {(17, "left_padding:0,3,7", 8), (32, "left_padding:0,3,7", 8)}


def test_backward_passes_with_dropout_are_measured_without_it() -> None:
    counted = {replace(call(32, Lq=32), dropout=0.5): (5, 3)}
    found = captured(Calls(counted, 0, 0.0), by_step=False)
    assert {short_id(one.case): one.count for one in found.cases} == {
        "scaled_dot/B2-H4-L32-D16/both": 3,
        "scaled_dot/B2-H4-L32-D16/dropout0.5": 2,
    }
    assert found.notes == (
        "3 calls: scaled_dot/B2-H4-L32-D16/dropout0.5: its backward passes are measured without dropout",
    )


def test_layouts_are_those_of_the_memory() -> None:
    x, cached = torch.randn(2, 16, 24), torch.randn(2, 2, 16, 4)
    apart = x.view(2, 16, 6, 4).transpose(1, 2)
    q, k, v = (one.unflatten(-1, (2, 4)).transpose(1, 2) for one in x.split(8, dim=-1))
    packed, copied = (q, k, v), tuple(one.transpose(1, 2).contiguous().transpose(1, 2) for one in (q, k, v))
    with attnbench.capture() as calls:
        functional.scaled_dot_product_attention(*packed)
        functional.scaled_dot_product_attention(*copied)
        functional.scaled_dot_product_attention(copied[0], cached, cached)
        functional.scaled_dot_product_attention(apart[:, ::3], k, v)
    assert in_words(calls.captured) == {
        "scaled_dot/B2-H2-L16-D4/BL3HD": 1,
        "scaled_dot/B2-H2-L16-D4/BLHD": 1,
        "scaled_dot/B2-H2-L16-D4/BLHD_BHLD_BHLD": 1,
        "scaled_dot/B2-H2-L16-D4": 1,
    }
    (note,) = calls.captured.notes
    assert note.endswith("no word says how their inputs lie in memory; they are measured contiguous")


def test_numbers_of_numpy_and_torch_are_scales_and_probabilities() -> None:
    q = torch.randn(1, 2, 16, 8)
    with attnbench.capture() as calls:
        for scale in (0.2, np.float32(0.2), torch.tensor(0.2)):
            functional.scaled_dot_product_attention(q, q, q, scale=scale)
        functional.scaled_dot_product_attention(q, q, q, dropout_p=np.float32(0.1))
    assert in_words(calls.captured) == {
        "scaled_dot@scale=0.2/H2-L16-D8/BHLD": 3,
        "scaled_dot/H2-L16-D8/dropout0.1/BHLD": 1,
    }


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_program_of_torchs_rarer_kinds_runs_as_it_does_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = str(EXAMPLES / "rare.py")
    runpy.run_path(program)
    alone = capsys.readouterr().out
    done = capture(tmp_path, sys.executable, program)
    assert (done.returncode, done.stdout) == (0, alone)
    # torch 2.14 and later refuse it, so there is no call to count.
    refused = "attn_mask should not be set when is_causal" in alone
    for words in ("torch.func hides its batch", "is_causal and a mask at once"):
        said = f"1 call: not classified: scaled_dot_product_attention: {words}" in done.stderr
        assert said != (refused and words.startswith("is_causal"))
    threads = f"/threads{torch.get_num_threads()}" if torch.get_num_threads() > 1 else ""
    assert counts(tmp_path / "captured.toml") == {
        # Keys of the first of four heads lie as those of a cache with room for four times as many.
        f"scaled_dot/B2-H4-Hkv1-L16-D8/BHCD{threads}": 1,
        f"scaled_dot/q5_q9-H4-D8{threads}/packed": 1,
        f"scaled_dot/B2-H4-L16-D8/causal/BHLD{threads}": 1,
        f"scaled_dot/B2-H4-Lq16-Lk20-D8/causal:lower_right/BHLD{threads}": 1,
        f"scaled_dot/H2-L5-D4/BLHD{threads}": 1,
    }


@pytest.mark.parametrize("layer", ["attention", "multihead", "flex"])
def test_masks_are_not_read_while_a_cuda_graph_is_captured(
    layer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading one waits for the device, which would end the program's capture."""
    from torch.nn.attention import flex_attention as flex

    q, mask = torch.randn(1, 2, 16, 8), torch.ones(16, 16).tril().bool()
    multihead = nn.MultiheadAttention(16, 2, batch_first=True)
    x = torch.randn(1, 16, 16)
    block_mask = flex.create_block_mask(lambda b, h, i, j: i >= j, None, None, 16, 16, device="cpu")
    calls = {
        "attention": lambda: functional.scaled_dot_product_attention(q, q, q, attn_mask=mask),
        "multihead": lambda: multihead(x, x, x, attn_mask=~mask, need_weights=True),
        "flex": lambda: flex.flex_attention(q, q, q, block_mask=block_mask),
    }

    def read(*_: object) -> None:
        raise AssertionError("a mask was read")

    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with attnbench.capture() as captured, monkeypatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("numpy", "cpu", "item", "__bool__", "__float__"):
            patch.setattr(torch.Tensor, name, read)
        calls[layer]()
    (note,) = captured.captured.notes
    assert note.endswith("ValueError: its mask can't be read while a CUDA graph is captured")


def test_a_mask_that_was_read_before_is_known_while_a_cuda_graph_is_captured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Programs call what they capture a few times before."""
    q, mask = torch.randn(1, 2, 16, 8), torch.ones(16, 16).tril().bool()
    with attnbench.capture() as calls:
        functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)
        monkeypatch.setattr(torch.Tensor, "is_cuda", True)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)
    assert in_words(calls.captured) == {"scaled_dot/H2-L16-D8/causal/BHLD": 2}


FILLS = """
import os, resource, torch
from torch.nn.functional import scaled_dot_product_attention as attention

def called(length):
    q = torch.ones(1, 2, length, 4, requires_grad=True)
    attention(q, q, q).sum().backward()

called(8)
_full()
for length in range(9, 40):
    called(length)
called(8)
print("out")
"""
SMALL_FILES = "def _full(): resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))"
FULL_FOLDER = """
def _full():
    with open(os.environ["ATTNBENCH_CAPTURE"] + "/filler", "wb", 0) as file:
        try:
            for _ in range(512):  # No more: this must never be a real disk.
                file.write(bytes(4096))
        except OSError:
            pass
"""


@pytest.mark.slow
def test_a_program_goes_on_where_no_file_can_grow(tmp_path: Path) -> None:
    done = capture(tmp_path, sys.executable, "-c", SMALL_FILES + FILLS)
    assert (done.returncode, done.stdout) == (0, "out\n"), done.stderr
    assert "recording failed in 1 of its processes: File too large" in done.stderr
    assert list(counts(tmp_path / "captured.toml").values()) == [1]  # both


@pytest.mark.slow
@pytest.mark.parametrize(("kib", "recorded"), [(100, False), (1100, True)])
def test_a_program_goes_on_where_the_temporary_folder_is_full(
    kib: int, recorded: bool, tmp_path: Path
) -> None:
    """In a file system of its own. A page of a mapped file that gets no room ends a program with SIGBUS."""
    small = tmp_path / "small"
    small.mkdir()
    mount = f"mount -t tmpfs -o size={kib}k tmpfs {small}"
    if subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True, check=False).returncode:
        pytest.skip("no file system of its own can be made here")
    program = tmp_path / "program.py"
    program.write_text(FULL_FOLDER + FILLS)
    command = (
        f"{mount}; TMPDIR={small} exec {sys.executable} -m attnbench capture -- {sys.executable} {program}"
    )
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "out\n"), done.stderr
    assert "recording failed in 1 of its processes: No space left on device" in done.stderr
    assert (tmp_path / "captured.toml").exists() == recorded


def test_a_block_runs_where_there_is_no_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with attnbench.capture() as calls:
        functional.scaled_dot_product_attention(*[torch.ones(1, 2, 8, 4)] * 3)
    assert calls.captured.cases == ()
    assert calls.captured.notes == ("recording failed in 1 of its processes: No such file or directory",)


CLOSES = """
import os, torch
from torch.nn.functional import scaled_dot_product_attention as attention

q = torch.ones(1, 2, 8, 4)
attention(q, q, q)
if os.fork() == 0:
    os.closerange(3, 100)
    mine = [open(f"mine-{n}", "w+") for n in range(50)]
    for length in range(9, 12):
        k = torch.ones(1, 2, length, 4)
        attention(k, k, k)
    if os.fork() == 0:
        for file in mine:
            print("mine", file=file, flush=True)
        os._exit(0)
    os.wait()
    os._exit(0)
os.wait()
assert all(open(f"mine-{n}").read() == "mine\\n" for n in range(50))
os.environ.clear()
"""


@pytest.mark.slow
def test_files_that_a_program_opens_after_closing_all_are_its_own(tmp_path: Path) -> None:
    done = capture(tmp_path, sys.executable, "-c", CLOSES)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert sum(counts(tmp_path / "captured.toml").values()) == 4


@pytest.mark.parametrize(
    ("program", "printed"),
    [("import os; os.environ.clear(); import torch; print(torch.ones(1).softmax(-1).item())", "1.0\n"),
     ("import flash_attn; print(flash_attn.flash_attn_func())", "7\n"),
     ("import torch, io, warnings; warnings.simplefilter('error');"
      "q = torch.ones(1, 1, 2, 2, requires_grad=True);"
      "torch.save(torch.nn.functional.scaled_dot_product_attention(q, q, q), io.BytesIO())", "")],
    ids=["without an environment", "a file named as a library", "outputs are saved"],
)  # fmt: skip
def test_a_program_sees_what_it_sees_alone(program: str, printed: str, tmp_path: Path) -> None:
    (tmp_path / "flash_attn.py").write_text(
        "from functools import partial\nflash_attn_func = partial(int, 7)\n"
    )
    done = capture(tmp_path, sys.executable, "-c", program)
    assert (done.returncode, done.stdout) == (0, printed), done.stderr
