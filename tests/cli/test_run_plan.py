"""The plan: a line on stderr before a run, a table instead of it; the cases of a shard."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import Result

import attnbench.api
from attnbench.cases.select import select, shard_number
from attnbench.cli.run import plan_words
from attnbench.plugins.registry import load_registry
from attnbench.runner import forecast, machine
from attnbench.runner.forecast import CaseForecast, Forecast
from attnbench.runner.options import Options
from attnbench.types.errors import BadInput

Invoke = Callable[..., Result]
CASE = "attention/dot/B1-H2-Lq8-Lk8-D4/none/float32/cpu/forward"


@pytest.mark.parametrize(
    ("cases", "options", "words"),
    [
        (
            (CaseForecast("a", 90, 16.2, 35.1, 12.4, 12.0), CaseForecast("b", 6, 0.8, 0.2, 0.1, 0.0)),
            Options(),
            "2 cases, 96 cells: about 80 s: 3 s starting up, 17 s timing (9 repetitions of 5.6 ms a cell), "
            "35 s starting processes, 12 s checking, 12 s compiling; change it by --budget and --repetitions",
        ),
        (
            (CaseForecast("a", 1, 600.0, 0.2, 0.3, 0.0),),
            Options(budget_s=600, repetitions=1),
            "1 case, 1 cell: about 10 min: 3 s starting up, 10 min timing (1 repetition of 10 min a cell); "
            "change it by --budget and --repetitions",
        ),
        (
            (CaseForecast("a", 4, 40.0, 2.0, 3.0, 0.0, over_budget=True), CaseForecast("b", 1, 1, 1, 1)),
            Options(repetitions=20),
            "2 cases, 5 cells: about 51 s: 3 s starting up, 41 s timing (20 repetitions of 2.5 ms a cell), "
            "3 s starting processes, 4 s checking; change it by --budget and --repetitions; "
            "4 measurements need more than the budget, as their calls are slow, and get it",
        ),
        ((CaseForecast("a", 0),), Options(), "1 case, 0 cells: about 3 s"),
    ],
)  # fmt: skip
def test_the_plan_in_words(cases: tuple[CaseForecast, ...], options: Options, words: str) -> None:
    assert plan_words(Forecast(cases, 3.0), options) == words


def test_a_plan_names_the_dearest_backend_and_case(invoke: Invoke) -> None:
    short, long = CASE, CASE.replace("Lq8-Lk8-D4", "Lq1024-Lk1024-D64")
    words = ("--backend", "eager", "--backend", "compiled", "--plan")
    line = invoke("run", short, long, *words).stderr.splitlines()[-1]
    took = r"\d+ (?:s|min)"
    found = re.fullmatch(rf"instead of {took}: without compiled {took}, without case (.*) {took}", line)
    assert found is not None
    assert found[1] == "dot/H2-L1024-D64"
    # One of three that take as long is not dear.
    words = ("--backend", "eager", "--backend", "bmm", "--backend", "numpy", "--plan")
    assert "without" not in invoke("run", short, *words).stderr
    # The baseline stays, and a single case has nothing to leave out.
    assert "without" not in invoke("run", short, "--backend", "eager", "--plan").stderr


def test_a_plan_names_backends_together_that_compile_side_by_side(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one of them a run takes as long, since the other compiles all the same."""
    monkeypatch.setattr(forecast, "allowed_cpus", lambda: (0, 1))
    case = "attention/scaled_dot/H2-L64-D16"
    words = [word for name in ("eager", "flex", "compiled") for word in ("--backend", name)]
    line = invoke("run", case, *words, "--plan").stderr.splitlines()[-1]
    found = re.fullmatch(r"instead of (\d+) s: without flex and compiled (\d+) s", line)
    assert found is not None
    assert int(found[1]) - int(found[2]) > forecast.COMPILE_S - 1


def test_several_threads_on_busy_cores_are_warned_of_before_the_run(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*_: object) -> None:
        raise BadInput("enough")

    monkeypatch.setattr(attnbench.api, "start", started)
    monkeypatch.setattr(machine, "watch_cores", lambda: dict.fromkeys(range(4096), 1.0))
    monkeypatch.setattr(machine, "allowed_cpus", lambda: (0, 1, 2, 3))
    warning, plan, _ = invoke("run", CASE, "--threads", "2").stderr.splitlines()
    assert plan.startswith("1 case, ")
    assert warning.startswith(
        "attnbench: 2 threads are going to share cores with other work (core 2 is 100% busy"
    )
    assert len(invoke("run", CASE).stderr.splitlines()) == 2


def test_a_plan_says_that_other_work_makes_a_run_longer(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "allowed_cpus", lambda: (0, 1))
    monkeypatch.setattr(machine, "watch_cores", lambda: {0: 1.0, 1: 0.5})
    told = "that is on idle cores: other work uses 75% of them now, and may make a run several times as long"
    assert told in invoke("run", CASE, "--plan").stderr.splitlines()
    # One busy core of many hardly delays a run; those that it may not use say nothing.
    monkeypatch.setattr(machine, "watch_cores", lambda: {0: 0.3, 1: 0.0, 2: 1.0})
    assert "idle cores" not in invoke("run", CASE, "--plan").stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_suite_for_both_devices_runs_where_it_can_and_says_why_not_elsewhere(
    invoke: Invoke, tmp_path: Path
) -> None:
    suite = tmp_path / "both.toml"
    on_cuda = CASE.replace("cpu", "cuda")
    suite.write_text(f'[[cases]]\nid = "{CASE}"\n[[cases]]\nid = "{on_cuda}"\n')
    words = ("--backend", "eager", "--out", str(tmp_path / "run.jsonl"), "--format", "json")
    result = invoke("check", str(suite), *words)
    assert result.exit_code == 0, result.output
    found = {row["case"]: (row["status"], row["reason"]) for row in json.loads(result.stdout)}
    assert found == {CASE: ("ok", ""), on_cuda: ("unavailable", "this machine has no CUDA device")}


def test_a_plan_says_why_nothing_runs_and_how_much_memory_is_missing(invoke: Invoke) -> None:
    words = ("--batch", "1000q1s512k", "--storage", "paged", "--plan")
    result = invoke("run", "attention/scaled_dot/H32-Hkv8-L8-D128", *words)
    assert result.exit_code == 0
    said = r"/cpu/forward/paged: no backend runs it: gather \(needs about 5\.\d+ TiB and .* is free"
    assert re.search(said, result.stderr)


def test_a_plan_counts_rows_without_keys(invoke: Invoke) -> None:
    case = "attention/scaled_dot/{}-H2-D8/causal:lower_right/float32/cpu/forward/{}"
    few, many = case.format("q5s3_q0s4_q3s0_q2", "packed"), case.format("6q2s1", "paged")
    result = invoke("run", few, many, case.format("2q2s4", "packed"), "--plan")
    lines = [line for line in result.stderr.splitlines() if "without a key" in line]
    others = "others in 2 sequences"
    assert lines == [
        f"{few}: 5 rows without a key, right as 0: 2 in sequence 0, 3 in sequence 2",
        f"{many}: 6 rows without a key, right as 0: " + ", ".join(
            [*(f"1 in sequence {number}" for number in range(4)), others]
        ),
    ]  # fmt: skip


def test_a_storage_that_no_backend_takes_is_named_with_those_that_have_some(invoke: Invoke) -> None:
    result = invoke("run", "attention/scaled_dot/H2-L8-D8", "--batch", "2q8", "--storage", "apart")
    assert result.exit_code == 2
    assert result.stderr == (
        "attnbench: no installed backend takes the storage 'apart'; others do: "
        "packed (flex, nested, padded_sdpa, per_sequence, varlen); "
        "padded (flex, padded_sdpa); "
        "paged (gather, varlen)\n"
    )


def test_the_listing_says_what_runs_on_a_device(invoke: Invoke) -> None:
    rows = json.loads(invoke("list", "backends", "--device", "cpu", "--format", "json").stdout)
    reasons = {row["name"]: row["unavailable"] for row in rows}
    assert (reasons["eager"], reasons["sdpa_cudnn"]) == ("", "runs on cuda only")
    assert "unavailable" not in json.loads(invoke("list", "backends", "--format", "json").stdout)[0]


def planned(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return [row["case"] for row in json.loads(result.stdout)] if result.stdout else []


@pytest.mark.parametrize("command", ["run", "check"])
def test_the_shards_of_a_suite_make_up_its_plan(invoke: Invoke, command: str) -> None:
    words = (command, "smoke", "--plan", "--format", "json", "--shard")
    whole = planned(invoke(*words, "1/1"))
    parts = [planned(invoke(*words, f"{number}/4")) for number in range(1, 5)]
    assert len(whole) == 13
    assert sorted(case for part in parts for case in part) == sorted(whole)
    assert max(map(len, parts)) < 12


def test_an_empty_shard_is_fine_and_writes_nothing(invoke: Invoke, tmp_path: Path) -> None:
    out = tmp_path / "results"
    number = 3 - shard_number(CASE, 2)
    result = invoke("run", CASE, "--shard", f"{number}/2", "--out", str(out))
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"shard {number}/2: 0 of 1 case; nothing to run, and no file is written\n"
    assert not out.exists()


def test_a_plan_makes_no_folder(invoke: Invoke, tmp_path: Path) -> None:
    out = tmp_path / "made" / "later"
    assert invoke("run", CASE, "--plan", "--out", str(out)).exit_code == 0
    assert not out.parent.exists()


@pytest.mark.parametrize("name", ["a" * 300, f"{'a' * 300}.jsonl", f"{'a' * 300}/run.jsonl"])
def test_a_name_that_no_file_can_have_is_one_sentence(invoke: Invoke, tmp_path: Path, name: str) -> None:
    result = invoke("run", CASE, "--plan", "--out", str(tmp_path / name))
    assert result.exit_code == 2, result.output
    assert "File name too long; name another file" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_suite_that_is_named_twice_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    suite = Path("counted.toml")
    suite.write_text(f'[[cases]]\nid = "{CASE}"\ncount = 24\n')
    registry = load_registry()
    for words in (["counted.toml"], ["counted.toml", "counted.toml"], ["counted.toml", str(suite.resolve())]):
        assert list(select(words, registry).counts.values()) == [24]


def test_a_choice_of_places_needs_an_executor(invoke: Invoke) -> None:
    result = invoke("run", CASE, "--where", "gpu=H100")
    assert result.exit_code == 2
    assert "--where and --each need --on" in result.stderr


@pytest.mark.parametrize("command", ["run", "check"])
def test_chosen_cases_of_a_suite_are_kept_alone(invoke: Invoke, command: str) -> None:
    whole = planned(invoke(command, "smoke", "--plan", "--format", "json"))
    kept = ("--case", whole[3], "--case", whole[1])
    assert planned(invoke(command, "smoke", *kept, "--plan", "--format", "json")) == [whole[1], whole[3]]
    refused = invoke(command, "smoke", "--case", CASE, "--plan")
    assert refused.exit_code == 2
    assert f"no case '{CASE}' is selected" in refused.stderr


def test_a_plan_says_what_several_threads_cost(invoke: Invoke) -> None:
    words = ("--backend", "eager", "--backend", "compiled", "--plan")
    assert re.search(r"with --threads 1 \d+ s$", invoke("run", CASE, *words, "--threads", "2").stderr)
    assert "--threads" not in invoke("run", CASE, *words).stderr
