"""What the commands that run hand on, print and exit with; the running itself is tested elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from run_files import write_records

import attnbench.api
from attnbench.cases.ids import case_id
from attnbench.plugins.registry import load_registry
from attnbench.reports.html import page
from attnbench.reports.run import Run
from attnbench.runner.forecast import RunPlan
from attnbench.runner.options import repetitions_for
from attnbench.runner.progress import Moment, Progress
from attnbench.types.errors import Interrupted, MeasuringFailed
from attnbench.types.record import Record
from attnbench.types.status import MEANING

CASE = "attention/dot/B1-H2-Lq8-Lk8-D4/none/float32/cpu/forward"


def record(status: str = "ok", backend: str = "eager") -> Record:
    timed = 1.5 if status == "ok" else None
    return Record(CASE, "dot", backend, status, reason="" if timed else "why", median_ms=timed)


@pytest.fixture
def store(tmp_path: Path) -> Callable[..., Path]:
    return lambda *records, **more: write_records(tmp_path / "run.jsonl", *records, **more)


class Started:
    """Stands for ``attnbench.api.start``: remembers what it was given, gives a stored run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.given: dict[str, Any] = {}

    def __call__(self, plan: RunPlan, out: Path, progress: Progress) -> Run:
        self.given = {
            "cases": [case_id(case) for case in plan.cases], "backends": plan.named, "options": plan.options,
            "out": out, "compiled_on": plan.compiled_on,
        }  # fmt: skip
        progress(Moment(1, 2, CASE, "checking eager", 0.5, 2.0))
        progress(Moment(1, 2, CASE, "set 1 of 8", 0.7, 1.9))
        progress(Moment(1, 2, CASE, "done", 1.0, 1.4, (record(),), done=1))
        return attnbench.api.loaded(self.path, plan.registry)


@pytest.fixture
def started(store: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Started:
    double = Started(store(record()))
    # The folder for the run's file is made before the run starts.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(attnbench.api, "start", double)
    return double


def test_run_hands_on_every_option(invoke: Callable[..., Result], started: Started) -> None:
    result = invoke(
        "run", CASE, "--backend", "bmm", "--backend", "eager", "--dtype", "bfloat16", "--mask", "causal",
        "--seed", "3", "--threads", "1", "--budget", "0.25", "--repetitions", "9", "--baseline", "bmm",
        "--timeout", "7", "--memory-limit", "1.5", "--out", "some/where.jsonl", "--delta", "5%",
        "--allocator", "default",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert started.given["cases"] == ["attention/dot/B1-H2-Lq8-Lk8-D4/causal/bfloat16/cpu/forward/seed3"]
    assert started.given["backends"] == ("bmm", "eager")
    assert started.given["out"] == Path("some/where.jsonl")
    options = started.given["options"]
    assert (options.budget_s, options.repetitions, options.baseline) == (0.25, 9, "bmm")
    assert (options.timeout_s, options.memory_limit_bytes, options.timed) == (7.0, 3 * 2**29, True)
    assert (options.delta, options.allocator_pinned) == (0.05, False)


def test_run_without_words_is_smoke_with_all_backends_into_results(
    invoke: Callable[..., Result], started: Started
) -> None:
    assert invoke("run").exit_code == 0
    assert len(started.given["cases"]) == 13
    assert started.given["backends"] == ()
    assert started.given["out"] == Path("results")
    assert len(started.given["compiled_on"]) == 1
    options = started.given["options"]
    assert (options.delta, options.allocator_pinned, options.baseline) == (0.02, True, "eager")
    assert (options.budget_s, options.repetitions) == (0.05, 9)


@pytest.mark.parametrize("budget", ["0.01", "4"])
def test_repetitions_follow_the_budget_unless_said(
    invoke: Callable[..., Result], started: Started, budget: str
) -> None:
    assert invoke("run", CASE, "--budget", budget).exit_code == 0
    assert started.given["options"].repetitions == repetitions_for(float(budget)) >= 9
    assert invoke("run", CASE, "--budget", budget, "--repetitions", "3").exit_code == 0
    assert started.given["options"].repetitions == 3


def test_check_is_not_timed_and_takes_edges(invoke: Callable[..., Result], started: Started) -> None:
    assert invoke("check", "edges", "--dtype", "float32").exit_code == 0
    assert started.given["options"].timed is False
    assert {case.split("/")[4] for case in started.given["cases"]} == {"float32"}


def test_data_on_stdout_and_all_else_on_stderr(invoke: Callable[..., Result], started: Started) -> None:
    result = invoke("run", CASE, "--format", "json")
    (row,) = json.loads(result.stdout)
    assert (row["backend"], row["median_ms"], row["ratio"]) == ("eager", 1.5, None)
    plan, _, told = result.stderr.partition("\n")
    assert plan.startswith("1 case, ")
    line, stored = told.splitlines()
    assert line == "#1 dot/H2-L8-D4: use eager: 1.5 ms; no other backend has a time (about 1 s left)"
    assert stored == f"stored in {started.path}"
    # The last line of all, since a table is longer than a terminal.
    assert result.output.endswith(f"]\nstored in {started.path}\n")


@pytest.mark.parametrize("missing", [[], ["jinja2"]])
def test_below_a_table_it_says_how_to_share_it_where_a_page_can_be_made(
    invoke: Callable[..., Result], started: Started, monkeypatch: pytest.MonkeyPatch, missing: list[str]
) -> None:
    monkeypatch.setattr(page, "missing_packages", lambda: missing)
    last = invoke("run", CASE).stderr.splitlines()[-1]
    share = "" if missing else f"; to share it: attnbench report {started.path} --html page.html"
    assert last == f"stored in {started.path}{share}"


def test_after_ctrl_c_what_was_measured_is_printed(
    invoke: Callable[..., Result], store: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store(record(), finished=False)

    def stopped(*_: object) -> Run:
        raise Interrupted(path)

    monkeypatch.setattr(attnbench.api, "start", stopped)
    result = invoke("run", CASE, "--format", "json")
    assert result.exit_code == 130
    assert [row["backend"] for row in json.loads(result.stdout)] == ["eager"]
    assert result.stderr.endswith(f"\nattnbench: interrupted; continue with --resume {path}\n")


@pytest.mark.parametrize(
    ("failure", "line", "code"),
    [
        (MeasuringFailed("the server does not start"), "the server does not start", 3),
        (KeyboardInterrupt(), "interrupted", 130),
        (PermissionError(13, "Permission denied", "results"), "Permission denied 'results'", 3),
        (OSError("odd"), "odd", 3),
    ],
)
def test_failures_are_one_line(
    invoke: Callable[..., Result], monkeypatch: pytest.MonkeyPatch,
    failure: BaseException, line: str, code: int,
) -> None:  # fmt: skip
    def fails(*_: object) -> Run:
        raise failure

    monkeypatch.setattr(attnbench.api, "start", fails)
    result = invoke("run", CASE)
    assert (result.stdout, result.exit_code) == ("", code)
    # After the plan, which says what was going to be done.
    assert result.stderr.splitlines()[1:] == [f"attnbench: {line}"]


def test_a_bug_is_never_the_status_of_a_failed_check(
    invoke: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attnbench.api, "start", lambda *_: 1 / 0)
    result = invoke("run", CASE)
    assert result.exit_code == 3
    assert "unexpected ZeroDivisionError: division by zero (set ATTNBENCH_TRACEBACK=1" in result.stderr
    monkeypatch.setenv("ATTNBENCH_TRACEBACK", "1")
    shown = invoke("run", CASE)
    assert shown.exit_code == 3
    assert "Traceback (most recent call last)" in shown.stderr
    assert "unexpected ZeroDivisionError: division by zero (see above where)" in shown.stderr


def test_resume_prints_the_whole_run_and_says_what_it_dropped(
    invoke: Callable[..., Result], store: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store(record(backend="bmm"), finished=False)
    with path.open("ab") as file:
        file.write(b'{"kind": "rec')

    def resumed(path: Path, *_: object, **__: object) -> Run:
        stored = attnbench.api.loaded(path, load_registry())
        return Run(stored.paths, stored.manifests, ((*stored.records, record()),))

    monkeypatch.setattr(attnbench.api, "go_on", resumed)
    result = invoke("run", "--resume", str(path), "--format", "json")
    assert [row["backend"] for row in json.loads(result.stdout)] == ["bmm", "eager"]
    assert result.stderr == f"{path}: its last line was cut off and is dropped\nstored in {path}\n"


def test_a_benchmark_file_that_can_not_be_written_is_said_before_anything_is_measured(
    invoke: Callable[..., Result], store: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attnbench.api, "start", lambda *_: pytest.fail("it was measured"))
    monkeypatch.setattr(attnbench.api, "go_on", lambda *_: pytest.fail("it was measured"))
    for words in (["run", CASE], ["run", "--resume", str(store(record()))]):
        result = invoke(*words, "--benchmark-json", "a/b.json")
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr == "attnbench: there is no folder 'a'; make it, or name another file\n"


def test_a_run_that_was_gone_on_with_is_written_for_pytest_benchmark_too(
    invoke: Callable[..., Result], store: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(attnbench.api, "go_on", lambda path, *_, **__: attnbench.api.load(path))
    path, bench = store(record()), tmp_path / "bench.json"
    assert invoke("run", "--resume", str(path), "--benchmark-json", str(bench)).exit_code == 0
    assert bench.exists()


def test_nobody_is_told_to_go_on_with_a_live_comparison(
    invoke: Callable[..., Result], tmp_path: Path
) -> None:
    path, sides = tmp_path / "live.jsonl", {"base": {}, "head": {}}
    write_records(path, finished=False, cases=[CASE], backends=["one", "two", "three"], sides=sides)
    assert (
        invoke("report", str(path)).stderr
        == f"{path}: the run was cut off, 3 of its records are missing; compare again\n"
    )


def test_report_prints_the_table_that_run_printed(invoke: Callable[..., Result], started: Started) -> None:
    assert invoke("report", str(started.path)).stdout == invoke("run", CASE).stdout


def test_the_terminal_decides_on_width_and_no_color_on_colour(
    invoke: Callable[..., Result], started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.setenv("FORCE_COLOR", "1")
    text = invoke("report", str(started.path)).stdout
    assert max(len(line) for line in text.splitlines() if line != CASE) <= 70
    assert "\x1b" not in text


def test_a_report_ends_with_0_for_records_of_any_status(
    invoke: Callable[..., Result], store: Callable[..., Path]
) -> None:
    path = store(*(record(status, f"with_{status}") for status in MEANING))
    result = invoke("report", str(path), "--format", "json")
    assert [row["status"] for row in json.loads(result.stdout)] == list(MEANING)
    assert (result.exit_code, result.stderr) == (0, "")


def test_json_and_csv_have_the_operations_of_a_call_without_trace(
    invoke: Callable[..., Result], tmp_path: Path
) -> None:
    traced = Record(CASE, "dot", "eager", "ok", median_ms=1.5, ran=["mul", "bmm x2"])
    path = write_records(tmp_path / "run.jsonl", traced)
    for format_ in ("json", "csv"):
        assert "mul; bmm x2" in invoke("report", str(path), "--format", format_).stdout
    assert "bmm x2" not in invoke("report", str(path)).stdout


def test_backends_are_listed_by_name(invoke: Callable[..., Result]) -> None:
    listed = json.loads(invoke("list", "backends", "eager", "bmm", "--format", "json").stdout)
    assert {row["name"] for row in listed} == {"eager", "bmm"}
    unknown = invoke("list", "backends", "eagre")
    assert unknown.exit_code == 2
    assert "eager" in unknown.stderr
