"""What a user's tests do with the fixtures, in sessions within this process that one court judges."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from attnbench.pytest_plugin.court import Court
from attnbench.worker.state import changes, read_state

pytest_plugins = ("pytester",)
pytestmark = pytest.mark.usefixtures("not_in_xdist")

FAST = ("--benchmark-max-time=0.02", "--benchmark-min-rounds=30", "--benchmark-json=out.json")
SENTENCE = "on attention/dot/B1-H2-Lq16-Lk16-D8/none/float32/cpu/forward: "


class Sessions:
    """Runs tests within this process; gives the result and what was stored of each benchmark, by backend."""

    def __init__(self, pytester: pytest.Pytester, words: list[str]) -> None:
        self.pytester, self.words = pytester, words

    def run(self, text: str, *words: str) -> tuple[pytest.RunResult, dict[str, dict[str, Any]]]:
        self.pytester.makepyfile("import pytest\n" + text)
        # Others' plugins have nothing to say here; xdist would start a process.
        quiet = ("-p", "no:xdist", "-p", "no:cacheprovider", "-rs", "--strict-markers")
        # No warning comes of the plugin; pytest-benchmark warns where there is nothing to store.
        strict = ("-W", "error", "-W", "ignore:Not saving anything")
        result = self.pytester.runpytest_inprocess(*self.words, *quiet, *strict, *words)
        path = self.pytester.path / "out.json"
        stored = json.loads(path.read_text())["benchmarks"] if path.exists() and path.stat().st_size else []
        return result, {each["extra_info"]["backend"]: each for each in stored}


@pytest.fixture
def sessions(one_court: Court, pytester: pytest.Pytester, plugin_words: list[str]) -> Sessions:
    return Sessions(pytester, plugin_words)


def marked(*backends: str, body: str = "benchmark(attnbench_backend)") -> str:
    return (
        f'@pytest.mark.attnbench("attention/dot/H2-L16-D8", backends={list(backends)})\n'
        f"def test_it(benchmark, attnbench_backend):\n    {body}\n"
    )


def test_right_backends_are_timed_and_told_of(sessions: Sessions) -> None:
    before = read_state()
    result, stored = sessions.run(marked("honest", "bmm", "tampers"), *FAST)
    result.assert_outcomes(passed=3)
    for backend in ("honest", "bmm", "tampers"):
        info = stored[backend]["extra_info"]
        assert (info["status"], info["reason"], info["rule"]) == ("ok", "", "dot")
        assert info["case"] == "attention/dot/B1-H2-Lq16-Lk16-D8/none/float32/cpu/forward"
        assert (info["dtype"], info["device"], info["threads"]) == ("float32", "cpu", 1)
        # The first call and one after the test are the plugin's own; between are the schedule's and renewals.
        assert info["calls"] >= 30
        assert info["verified_calls"] >= 8
        assert 0 <= info["error_budget"] < 2
        median_s = stored[backend]["stats"]["median"]
        assert info["tflops"] == pytest.approx(2 * 16 * 16 * (8 + 8) * 2 / median_s / 1e12)
        assert info["gbps"] == pytest.approx(4 * 2 * 16 * 8 * 4 / median_s / 1e9)
        assert stored[backend]["group"] == "dot/H2-L16-D8"
        assert stored[backend]["name"] == f"test_it[dot/H2-L16-D8-{backend}]"
    assert changes(before, read_state(), leave=("process", "random")) == {}


def test_wrong_outputs_of_timed_calls_fail_the_test_and_stand_in_the_file(sessions: Sessions) -> None:
    backends = ("wrong_after_a_while", "remembers", "gives_no_tensor", "honest")
    result, stored = sessions.run(marked(*backends), *FAST)
    result.assert_outcomes(passed=1, failed=3)
    lines = result.stdout.str()
    assert f"wrong_after_a_while {SENTENCE}mismatch: in the output of call " in lines
    assert f"remembers {SENTENCE}mismatch: " in lines
    assert f"gives_no_tensor {SENTENCE}mismatch: the output is a NoneType, not a torch.Tensor" in lines
    # A sentence, not a traceback.
    assert "Traceback" not in lines
    for backend in backends[:-1]:
        info = stored[backend]["extra_info"] if backend in stored else {"status": "mismatch", "reason": "-"}
        assert info["status"] == "mismatch"
        assert info["reason"]
        assert "tflops" not in info
    assert "wrong_after_a_while" in stored
    assert stored["honest"]["extra_info"]["status"] == "ok"


def test_after_a_test_without_rounds_inputs_are_renewed_once(sessions: Sessions) -> None:
    untimed = marked("remembers", body="attnbench_backend()").replace("benchmark, ", "")
    result, _ = sessions.run(untimed)
    result.assert_outcomes(failed=1)
    assert "in the output of a call on inputs written anew in their place" in result.stdout.str()


def test_what_is_wrong_when_it_is_checked_is_not_timed_at_all(sessions: Sessions) -> None:
    result, stored = sessions.run(marked("wrong_from_the_start", "cant_prepare_here"), *FAST)
    result.assert_outcomes(failed=2)
    lines = result.stdout.str()
    assert f"wrong_from_the_start {SENTENCE}mismatch: on a case beside it" in lines
    assert "cant_prepare_here " + SENTENCE + "error: in the process of the tests: preparation raised" in lines
    assert stored == {}


def test_what_a_call_raises_is_the_tests_failure(sessions: Sessions) -> None:
    result, stored = sessions.run(marked("raises_here"), *FAST)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*ValueError: not among so many"])
    assert stored == {}


@pytest.mark.parametrize("backend", ["interrupted_in_preparation", "interrupted_at_the_end"])
def test_ctrl_c_ends_the_session_and_fails_no_test(sessions: Sessions, backend: str) -> None:
    untimed = marked(backend, body="attnbench_backend()").replace("benchmark, ", "")
    with pytest.raises(KeyboardInterrupt):
        sessions.run(untimed)


def test_what_a_backend_declines_is_skipped_with_its_reason(sessions: Sessions) -> None:
    text = (
        '@pytest.mark.attnbench("attention/dot/H2-L16-D8/causal", backends=["honest", "sdpa_cudnn"])\n'
        "def test_it(benchmark, attnbench_backend):\n    benchmark(attnbench_backend)\n"
    )
    result, stored = sessions.run(text, *FAST)
    result.assert_outcomes(skipped=2)
    lines = result.stdout.str()
    # The one has to be asked, the other declares it.
    assert (
        "honest on attention/dot/B1-H2-Lq16-Lk16-D8/causal/float32/cpu/forward: unsupported: no masks"
        in lines
    )
    assert "sdpa_cudnn: unavailable: runs on cuda only" in lines
    assert stored == {}


def test_a_test_may_use_it_as_it_likes(sessions: Sessions) -> None:
    text = """
import torch

pytestmark = pytest.mark.attnbench("attention/dot/H2-L16-D8", backends="honest")

def test_with_its_inputs(benchmark, attnbench_backend):
    output = benchmark(attnbench_backend, *attnbench_backend.inputs)
    output.zero_()

def test_pedantic(benchmark, attnbench_backend):
    benchmark.pedantic(attnbench_backend, rounds=20).zero_()

def test_through_another_function(benchmark, attnbench_backend):
    benchmark.extra_info = {"mine": 1}
    benchmark(lambda: attnbench_backend().sum())

def test_without_a_clock(attnbench_backend, attnbench_case):
    q, k, v = attnbench_backend.inputs
    assert q.shape == (1, 2, 16, 8)
    assert attnbench_backend.case is attnbench_case
    assert attnbench_backend.backend == "honest"
    assert torch.get_num_threads() == 1
    assert torch.is_inference_mode_enabled()
    for _ in range(9):
        attnbench_backend().add_(1)

def test_of_a_case(attnbench_case):
    assert attnbench_case.rule == "dot"

def test_that_takes_neither():
    pass
"""
    result, _ = sessions.run(text, *FAST)
    result.assert_outcomes(passed=6)
    stored = json.loads((sessions.pytester.path / "out.json").read_text())["benchmarks"]
    assert [each["extra_info"]["status"] for each in stored] == ["ok", "ok", "ok"]
    assert stored[2]["extra_info"]["mine"] == 1


@pytest.mark.parametrize("timed", ["benchmark(", "benchmark.pedantic("])
def test_what_is_computed_on_other_inputs_counts_for_nothing(sessions: Sessions, timed: str) -> None:
    """By pedantic, without a call to warm up, the only call is the last of its round."""
    args = "(q, k, v + 1)" if "pedantic" in timed else "*(q, k, v + 1)"
    body = f"q, k, v = attnbench_backend.inputs; {timed}attnbench_backend, {args})"
    result, stored = sessions.run(marked("honest", body=body), *FAST)
    result.assert_outcomes(failed=1)
    assert "on other inputs than its own" in result.stdout.str()
    assert stored["honest"]["extra_info"]["status"] == "error"


def test_a_test_that_fails_by_itself_or_calls_nothing_is_not_ok(sessions: Sessions) -> None:
    failing = marked("honest", body="benchmark(attnbench_backend); assert 1 == 2")
    result, stored = sessions.run(failing, *FAST)
    result.assert_outcomes(failed=1)
    assert "assert 1 == 2" in result.stdout.str()
    info = stored["honest"]["extra_info"]
    assert (info["status"], info["verified_calls"]) == ("error", 0)
    assert "the test did not come to its end: AssertionError" in info["reason"]
    result, stored = sessions.run(marked("honest", body="benchmark(lambda: 1)"), *FAST)
    assert stored["honest"]["extra_info"]["reason"] == "the test has not called it"


@pytest.mark.parametrize(
    ("word", "outcomes"),
    [
        ("--benchmark-disable", {"passed": 2, "failed": 0}),
        ("--benchmark-skip", {"skipped": 1, "passed": 1}),
        ("--benchmark-only", {"passed": 1, "skipped": 1}),
        ("-pno:benchmark", {"passed": 1, "errors": 1}),
    ],
)
def test_what_pytest_benchmark_is_told_holds(sessions: Sessions, word: str, outcomes: dict[str, int]) -> None:
    text = marked("honest") + (
        '\n@pytest.mark.attnbench("attention/dot/H2-L16-D8", backends="bmm")\n'
        "def test_untimed(attnbench_backend):\n    attnbench_backend()\n"
    )
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


def test_a_marker_or_a_fixture_that_can_t_be_is_one_sentence(sessions: Sessions) -> None:
    result, _ = sessions.run('@pytest.mark.attnbench("smok")\ndef test_it(attnbench_case): pass\n')
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["the marker attnbench of test_it: no suite 'smok'; did you mean 'smoke'?"])
    result, _ = sessions.run('@pytest.mark.attnbench("smoke")\ndef test_it(): pass\n')
    result.stdout.fnmatch_lines(["test_it is marked attnbench and takes neither*"])
    result, _ = sessions.run("def test_it(attnbench_backend): pass\n")
    result.stdout.fnmatch_lines(["*are for tests marked attnbench*"])
    result.assert_outcomes(errors=1)


def test_too_many_threads_are_refused(sessions: Sessions) -> None:
    text = marked("honest").replace("L16-D8", "L16-D8/threads250")
    result, _ = sessions.run(text, *FAST)
    result.assert_outcomes(failed=1)
    assert "250 threads: this process has" in result.stdout.str()
