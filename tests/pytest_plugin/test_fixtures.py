"""The fixtures in a user's tests."""

from __future__ import annotations

import ctypes
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

pytest_plugins = ("pytester",)
pytestmark = pytest.mark.usefixtures("not_in_xdist")

FAST = ("--benchmark-max-time=0.02", "--benchmark-min-rounds=30", "--benchmark-json=out.json")
SENTENCE = "on attention/dot/B1-H2-Lq16-Lk16-D8/none/float32/cpu/forward: "
DOCUMENT = Path(__file__).parents[2] / "docs" / "pytest.md"


class Sessions:
    """Runs a test module; gives the result, and the stored benchmarks by backend."""

    def __init__(self, in_process: Any) -> None:
        self._in_process = in_process

    def run(self, text: str, *words: str) -> tuple[pytest.RunResult, dict[str, dict[str, Any]]]:
        pytester = self._in_process.pytester
        pytester.makepyfile("import pytest\n" + text)
        result = self._in_process(*words)
        path = pytester.path / "out.json"
        stored = json.loads(path.read_text())["benchmarks"] if path.exists() and path.stat().st_size else []
        return result, {each["extra_info"]["backend"]: each for each in stored}


@pytest.fixture
def sessions(in_process: Any) -> Sessions:
    return Sessions(in_process)


def blas_threads() -> set[int]:
    """The threads of each OpenBLAS in this process; none if NumPy has another BLAS."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    files = {line.split()[-1] for line in lines if "openblas" in line}
    names = (
        "scipy_openblas_get_num_threads64_",
        "scipy_openblas_get_num_threads",
        "openblas_get_num_threads",
    )
    loaded = [ctypes.CDLL(file) for file in files]
    return {int(library[name]()) for library in loaded for name in names if hasattr(library, name)}


TIMED = "benchmark(attnbench_backend)"


def marked(*backends: str, body: str = TIMED) -> str:
    return (
        f'@pytest.mark.attnbench("attention/dot/H2-L16-D8", backends={list(backends)})\n'
        f"def test_it(benchmark, attnbench_backend):\n    {body}\n"
    )


def untimed(backend: str) -> str:
    return marked(backend, body="attnbench_backend()").replace("benchmark, ", "")


def documented_keys() -> set[str]:
    table = DOCUMENT.read_text().partition("| key |")[2].partition("\n\n")[0]
    return set(re.findall(r"`(\w+)`", re.sub(r"\|[^|]*\|$", "|", table, flags=re.MULTILINE))) - {"ok"}


RIGHT = ("honest", "bmm", "chooses_its_kernel")
WRONG_LAST = {
    "wrong_after_a_while": "in the last output of the test: ",
    "remembers": "in the output of a call after the inputs changed in place: ",
    "gives_no_tensor": "in the last output of the test: the output is a NoneType, not a torch.Tensor",
}
NOT_TIMED = {
    "wrong_from_the_start": f"{SENTENCE}mismatch: ",
    "cant_prepare_here": f"{SENTENCE}error: in the process of the tests: preparation raised",
}


@pytest.mark.slow
def test_right_backends_are_timed_and_wrong_ones_fail(sessions: Sessions) -> None:
    threads = torch.get_num_threads()
    result, stored = sessions.run(marked(*RIGHT, *WRONG_LAST, *NOT_TIMED, "raises_here"), *FAST)
    result.assert_outcomes(passed=3, failed=6)
    lines = result.stdout.str()
    for backend in RIGHT:
        info = stored[backend]["extra_info"]
        assert (info["status"], info["reason"], info["rule"]) == ("ok", "", "dot")
        assert info["case"] == "attention/dot/B1-H2-Lq16-Lk16-D8/none/float32/cpu/forward"
        assert (info["dtype"], info["device"], info["threads"]) == ("float32", "cpu", 1)
        assert info["calls"] >= 30
        assert info["verified_calls"] == 2
        assert 0 <= info["error_budget"] < 2
        median_s = stored[backend]["stats"]["median"]
        assert info["tflops"] == pytest.approx(2 * 16 * 16 * (8 + 8) * 2 / median_s / 1e12)
        assert info["gbps"] == pytest.approx(4 * 2 * 16 * 8 * 4 / median_s / 1e9)
        assert stored[backend]["group"] == "dot/H2-L16-D8"
        assert stored[backend]["name"] == f"test_it[dot/H2-L16-D8-{backend}]"
        assert set(info) | {"notes", "kernel_of"} == documented_keys()
    for backend, reason in WRONG_LAST.items():
        assert f"{backend} {SENTENCE}mismatch: {reason}" in lines
        info = stored[backend]["extra_info"]
        assert (info["status"], info["verified_calls"]) == ("mismatch", 0)
        assert info["reason"].startswith(reason)
        assert "tflops" not in info
    for backend, sentence in NOT_TIMED.items():
        assert f"{backend} {sentence}" in lines
    assert "ValueError: not so often" in lines
    assert set(stored) == {*RIGHT, *WRONG_LAST}
    # Settings that a test needs do not stay for the next one.
    assert torch.get_num_threads() == threads
    assert torch.backends.cuda.math_sdp_enabled()
    assert not torch.is_inference_mode_enabled()


def test_a_time_of_too_many_threads_is_suspect(sessions: Sessions) -> None:
    result, stored = sessions.run(marked("works_elsewhere"), *FAST, "-W", "always::pytest.PytestWarning")
    result.assert_outcomes(passed=1, warnings=1)
    info = stored["works_elsewhere"]["extra_info"]
    assert (info["status"], info["verified_calls"]) == ("suspect", 2)
    assert info["reason"].startswith("more threads worked than the case allows (1 thread; ")
    assert "suspect: more threads worked than the case allows" in result.stdout.str()


def test_blas_has_the_threads_of_the_case(sessions: Sessions) -> None:
    """NumPy's OpenBLAS took all cores, and its times were thousands of times too long on busy ones."""
    numbers = blas_threads()
    result, _ = sessions.run(
        f"from {__name__} import blas_threads\n"
        + marked("honest", body="attnbench_backend(); assert blas_threads() <= {1}").replace(
            "benchmark, ", ""
        )
    )
    result.assert_outcomes(passed=1)
    assert blas_threads() == numbers


def test_outputs_are_checked_without_timing_too(sessions: Sessions) -> None:
    result, _ = sessions.run(untimed("remembers"))
    result.assert_outcomes(failed=1)
    assert "in the output of a call after the inputs changed in place" in result.stdout.str()
    assert "Traceback" not in result.stdout.str()


def test_ctrl_c_while_a_backend_prepares_ends_the_session(sessions: Sessions) -> None:
    with pytest.raises(KeyboardInterrupt):
        sessions.run(untimed("interrupted_in_preparation"))


def test_an_unsupported_case_is_skipped_with_the_reason(sessions: Sessions) -> None:
    text = marked("honest", "sdpa_cudnn").replace("L16-D8", "L16-D8/causal")
    result, stored = sessions.run(text, *FAST)
    result.assert_outcomes(skipped=2)
    lines = result.stdout.str()
    # attnbench asks the first one; the second declares it.
    assert f"honest {SENTENCE}unsupported: no masks".replace("/none/", "/causal/") in lines
    assert "sdpa_cudnn: unavailable: runs on cuda only" in lines
    assert stored == {}


def test_ways_to_use_the_fixtures(sessions: Sessions) -> None:
    text = """
import torch

pytestmark = pytest.mark.attnbench("attention/dot/H2-L16-D8", backends="honest")

@pytest.fixture
def shape(attnbench_backend):
    return attnbench_backend.inputs[0].shape

def test_with_its_inputs(benchmark, attnbench_backend):
    benchmark(attnbench_backend, *attnbench_backend.inputs)

def test_pedantic(benchmark, attnbench_backend):
    benchmark.pedantic(attnbench_backend, rounds=20)

def test_through_another_function(benchmark, attnbench_backend):
    benchmark.extra_info = {"mine": 1}
    benchmark(lambda: attnbench_backend().sum())

def test_without_a_clock(attnbench_backend, attnbench_case, shape):
    assert shape == (1, 2, 16, 8)
    assert attnbench_backend.case is attnbench_case
    assert attnbench_backend.backend == "honest"
    assert torch.get_num_threads() == 1
    assert torch.is_inference_mode_enabled()
    for _ in range(9):
        output = attnbench_backend()
    output.clone().add_(1)

def test_of_a_case(attnbench_case):
    assert attnbench_case.rule == "dot"

def test_without_fixtures():
    pass
"""
    result, _ = sessions.run(text, *FAST)
    result.assert_outcomes(passed=6)
    stored = json.loads((Path("out.json")).read_text())["benchmarks"]
    assert [each["extra_info"]["status"] for each in stored] == ["ok", "ok", "ok"]
    assert stored[2]["extra_info"]["mine"] == 1


OTHER = "the test passed its own tensors, so the output cannot be verified"


@pytest.mark.parametrize(
    ("body", "outcome", "reason"),
    [
        (f"{TIMED}; attnbench_backend(*(x + 1 for x in attnbench_backend.inputs))", "failed", OTHER),
        (f"{TIMED}; attnbench_backend(attnbench_backend.inputs[0])", "failed", OTHER),
        (f"{TIMED}; assert 1 == 2", "failed", "the test did not finish: AssertionError"),
        ("benchmark(lambda: 1)", "passed", "the test did not call the backend"),
    ],
)
def test_a_test_that_does_not_finish_or_calls_nothing_is_an_error_in_the_json(
    sessions: Sessions, body: str, outcome: str, reason: str
) -> None:
    result, stored = sessions.run(marked("honest", body=body), *FAST)
    result.assert_outcomes(**{outcome: 1})
    info = stored["honest"]["extra_info"]
    assert (info["status"], info["verified_calls"]) == ("error", 0)
    assert reason in info["reason"]
    assert (info["calls"] > 0) == body.startswith(TIMED)


@pytest.mark.parametrize(
    ("word", "outcomes"),
    [
        ("--benchmark-disable", {"passed": 2, "failed": 0}),
        ("--benchmark-skip", {"skipped": 1, "passed": 1}),
        ("--benchmark-only", {"passed": 1, "skipped": 1}),
        ("-pno:benchmark", {"passed": 1, "errors": 1}),
    ],
)
def test_the_options_of_pytest_benchmark_hold(
    sessions: Sessions, word: str, outcomes: dict[str, int]
) -> None:
    text = marked("honest") + "\n" + untimed("bmm").replace("test_it", "test_untimed")
    result, _ = sessions.run(text, word)
    result.assert_outcomes(**outcomes)


@pytest.mark.slow
def test_gradients_and_dropout_are_checked_as_in_a_run(sessions: Sessions) -> None:
    text = """
@pytest.mark.attnbench("attention/dot/H2-L16-D8/bfloat16/both", "attention/dot/H2-L8-D8/dropout0.2",
                       backends="eager")
def test_it(attnbench_backend):
    for _ in range(6):
        attnbench_backend()
"""
    result, _ = sessions.run(text)
    result.assert_outcomes(passed=2)
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()


MARKED = '@pytest.mark.attnbench("{}")\ndef test_it({}): pass\n'


@pytest.mark.parametrize(
    ("text", "outcome", "sentence"),
    [
        (MARKED.format("smok", "attnbench_case"), "errors", "*no suite 'smok'; did you mean 'smoke'?"),
        (MARKED.format("smoke", ""), "errors", "test_it is marked attnbench, but takes neither*"),
        ("def test_it(attnbench_backend): pass\n", "errors", "attnbench_case and * need a marker*"),
        (untimed("honest").replace("-D8", "-D8/threads250"), "failed", "*250 threads: this process has*"),
    ],
)
def test_an_impossible_use_is_one_sentence(
    sessions: Sessions, text: str, outcome: str, sentence: str
) -> None:
    result, _ = sessions.run(text)
    result.assert_outcomes(**{outcome: 1})
    result.stdout.fnmatch_lines([sentence])
