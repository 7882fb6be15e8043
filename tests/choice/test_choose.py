"""What ``attnbench choose`` decides, from runs whose times are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec import structs
from run_files import manifest_of, write_records

from attnbench.choice.held import held, what_next
from attnbench.choice.table import (
    Choice,
    alone,
    check_timed,
    decide,
    differences,
    on_kind,
    put_together,
    read_table,
    saving,
    table_of,
)
from attnbench.cli import attnbench
from attnbench.plugins.registry import load_registry
from attnbench.reports.run import Run
from attnbench.types.errors import BadInput
from attnbench.types.record import Accuracy, Record, Shard

REFERENCE = Path(__file__).parents[1] / "runs" / "lengths.jsonl"
REGISTRY = load_registry()
CALLS = 1000
BMM = {"sdpa_flash": 2.0, "bmm": 1.0}
NOISE = (0.98, 1.01, 0.99, 1.02, 1.0, 0.97, 1.03, 1.01, 0.99)


def case(L: int, mask: str = "none", Lq: int | None = None) -> str:
    return f"attention/scaled_dot/B1-H2-Lq{Lq or L}-Lk{L}-D8/{mask}/float32/cpu/forward"


def run_of(
    cases: dict[str, dict[str, float]], repetitions: int = 9, spread: float = 1.0, **facts: object
) -> Run:
    """A run with the times of a call in ms by case and backend, a few per cent apart between repetitions.

    spread: a power of their noise, for repetitions that are farther apart.
    """
    records, times = [], []
    for one, by_backend in cases.items():
        best = min(by_backend, key=by_backend.__getitem__)
        for backend, ms in by_backend.items():
            records.append(Record(one, "scaled_dot", backend, "ok", median_ms=ms, best=best, delta=0.02))
        for index in range(repetitions):
            # Every backend has noise of its own.
            noise = {name: NOISE[(index * (place + 1)) % 9] for place, name in enumerate(by_backend)}
            times.append(
                (one, index, {name: ms * 1e6 * noise[name] ** spread for name, ms in by_backend.items()})
            )
    environment = {"cpu": "a cpu", "torch": "2.13.0"} | facts
    head = manifest_of(cases=list(cases), environment=environment)
    return Run((Path("r.jsonl"),), (head,), (tuple(records),), times=(tuple(times),))


def chosen(run: Run, default: str = "sdpa_flash") -> list[Choice]:
    return put_together(decide(run, REGISTRY, default, CALLS))


def test_a_backend_is_chosen_with_its_gain_where_it_is_proved_faster() -> None:
    (one,) = chosen(run_of({case(64): BMM}))
    assert (one.case, one.backend, one.upto) == (case(64), "bmm", 0)
    assert 1.85 < one.low <= 2 * 0.97 <= one.gain <= 2 * 1.04 <= one.high < 2.15


def test_a_batch_of_unlike_lengths_keeps_torchs_function_and_disturbs_no_other_case() -> None:
    batch = "attention/scaled_dot/q5_2q9-H2-D8/none/float32/cpu/forward/packed"
    run = run_of({case(64): BMM, batch: {"sdpa_flash": 1.0, "bmm": 0.5}})
    assert [one.case for one in chosen(run)] == [case(64)]


def test_a_choice_of_a_file_without_details_holds_on_the_machine_with_its_name() -> None:
    old, new = "a cpu [family 23], 2 cores", "a cpu [family 26], 2 cores"
    assert differences({"cpu": "a cpu, 2 cores"}, {"cpu": new}) == ""
    assert differences({"cpu": new}, {"cpu": new}) == ""
    assert differences({"cpu": old}, {"cpu": new}) == f"cpu {old!r} and {new!r}"
    assert differences({"cpu": "b cpu, 2 cores"}, {"cpu": new}) != ""


def test_a_counted_step_saves_the_counts_times_the_gains() -> None:
    run = run_of({
        case(64): BMM, case(128): {"sdpa_flash": 5.0, "bmm": 1.0, "eager": 3.0},
        case(256): {"sdpa_flash": 1.0, "bmm": 9.0},
    })  # fmt: skip
    decisions = decide(run, REGISTRY, "sdpa_flash", CALLS)
    assert saving(run, decisions, "sdpa_flash") == {}, "nobody counted"
    (head,) = run.manifests
    counted = replace(run, manifests=(structs.replace(head, counts={case(64): 10, case(128): 0.5}),))
    found = saving(counted, decisions[:2], "sdpa_flash")
    ms, interval = found["", 0]
    assert interval.low < ms < interval.high
    assert ms == pytest.approx(10 * 1 + 0.5 * 4, rel=0.1)
    staged = structs.replace(counted.manifests[0], stages={case(64): "prefill", case(128): "decode"})
    by_stage = saving(replace(counted, manifests=(staged,)), decisions[:2], "sdpa_flash")
    assert {stage: round(ms) for (stage, _), (ms, _) in by_stage.items()} == {"prefill": 10, "decode": 2}


def test_a_longer_run_with_fewer_threads_counts_for_those_of_the_first() -> None:
    """Of one number of threads the newest run has the sum, also if the first run had several."""

    def of_threads(number: str, ms: float, *threads: int) -> Run:
        cases = [case(64) + (f"/threads{one}" if one > 1 else "") for one in threads]
        run = run_of({one: {"sdpa_flash": ms, "bmm": 1.0} for one in cases})
        counts, stages = dict.fromkeys(cases, 10.0), dict.fromkeys(cases, "prefill")
        head = structs.replace(run.manifests[0], counts=counts, stages=stages, started=number)
        return replace(run, manifests=(head,))

    first, longer = of_threads("2026-01-01", 2.0, 1, 2), of_threads("2026-01-02", 3.0, 2)
    run = beside(first, longer)
    found = saving(run, decide(run, REGISTRY, "sdpa_flash", CALLS), "sdpa_flash")
    assert {place: round(ms) for place, (ms, _) in found.items()} == {("prefill", 1): 10, ("prefill", 2): 20}


def test_runs_of_a_stage_each_keep_their_sums_in_one_table() -> None:
    def staged(length: int, count: int, stage: str) -> Run:
        run = run_of({case(length): BMM})
        head = structs.replace(run.manifests[0], counts={case(length): count}, stages={case(length): stage})
        return replace(run, manifests=(head,))

    prefill, decode = staged(64, 10, "prefill"), staged(128, 3, "decode")

    def both(one: Run, other: Run) -> dict[str, int]:
        run = Run(
            (*one.paths, *other.paths),
            (*one.manifests, *other.manifests),
            (*one.by_file, *other.by_file),
            times=(*one.times, *other.times),
        )
        found = saving(run, decide(run, REGISTRY, "sdpa_flash", CALLS), "sdpa_flash")
        return {stage: round(ms) for (stage, _), (ms, _) in found.items()}

    assert both(prefill, decode) == {"prefill": 10, "decode": 3}
    assert both(prefill, prefill) == {"prefill": 10}, "the same calls, measured again"
    assert both(prefill, staged(64, 11, "prefill")) == {}, "nobody knows which of them to sum"


HERE = case(64)


@pytest.mark.parametrize(
    ("name", "times", "repetitions", "reason"),
    [
        (HERE, {"sdpa_flash": 1.0, "bmm": 2.0}, 9, "sdpa_flash is the fastest"),
        (HERE, {"sdpa_flash": 10.0, "bmm": 9.99}, 9, "bmm may be faster: not proved"),
        (
            HERE,
            {"sdpa_flash": 1.0, "bmm": 0.999},
            9,
            "bmm may be faster, but can't save the 0.1 ms that a choice may cost a call",
        ),
        (HERE, {"sdpa_flash": 1.1, "bmm": 1.0}, 2, "bmm may be faster: too few repetitions"),
        (
            HERE,
            {"sdpa_flash": 10.0, "bmm": 10.01, "eager": 10.005, "numpy": 30.0},
            9,
            "sdpa_flash ties with eager, bmm: which is faster is not proved",
        ),
        (
            HERE,
            {"sdpa_flash": 0.2, "bmm": 0.2002},
            9,
            "sdpa_flash ties with bmm, which can't save the 0.1 ms that a choice may cost a call",
        ),
        (HERE, {"bmm": 1.0}, 9, "sdpa_flash has no time"),
        (
            HERE,
            {"sdpa_flash": 0.3, "bmm": 0.22},
            9,
            "bmm is faster, but saves less than the 0.1 ms that a choice may cost a call",
        ),
        # What torch's function is not called for.
        (case(64, "bool"), BMM, 9, "the program's mask is not that of the case"),
        (HERE + "/dropout0.1", BMM, 9, "with dropout the default stays"),
        (HERE.replace("scaled_dot", "additive"), BMM, 9, "torch's function does not compute this"),
        (HERE.replace("forward", "backward"), BMM, 9, "only the passes forward and both can be chosen"),
    ],
)
def test_the_default_stays_without_a_proof(
    name: str, times: dict[str, float], repetitions: int, reason: str
) -> None:
    (one,) = decide(run_of({name: times}, repetitions), REGISTRY, "sdpa_flash", CALLS)
    assert (one.choice, one.why) == (None, reason)


def test_neighbouring_lengths_that_agree_are_one_choice_with_the_least_gain() -> None:
    eager = {"sdpa_flash": 3.0, "eager": 1.0}
    found = chosen(run_of({
        case(512): {"sdpa_flash": 1.0, "bmm": 2.0}, case(16): {"sdpa_flash": 4.0, "bmm": 1.0},
        case(64): BMM, case(128): eager, case(256): BMM, case(64, "causal"): BMM,
        case(64, Lq=1): BMM, case(96, Lq=1): BMM, case(64, "causal:lower_right", Lq=4): BMM,
    }))  # fmt: skip
    assert [(one.case, one.backend, one.upto) for one in found] == [
        (case(16), "bmm", 64),
        (case(128), "eager", 0),
        (case(256), "bmm", 0),
        (case(64, "causal"), "bmm", 0),
        (case(64, Lq=1), "bmm", 96),
        (case(64, "causal:lower_right", Lq=4), "bmm", 0),
    ]
    assert found[0].gain < 2.2


def test_of_ties_neighbouring_lengths_get_the_same() -> None:
    tie = {"sdpa_flash": 4.0, "bmm": 1.0, "eager": 1.0}
    tied = {case(513, Lq=1): tie | {"bmm": 0.999}, case(640, Lq=1): tie | {"eager": 0.999}}
    first, second = decide(run_of(tied), REGISTRY, "sdpa_flash", CALLS)
    assert first.choice is not None
    assert [one.choice.backend for one in (first, *first.also)] == ["bmm", "eager"]
    (both,) = put_together([first, second])
    assert (both.case, both.upto) == (case(513, Lq=1), 640)
    # So do those that are nearly as fast.
    near = {case(513, Lq=1): tie | {"bmm": 1.08}, case(640, Lq=1): tie | {"eager": 1.06}}
    assert [one.upto for one in chosen(run_of(near))] == [640]
    # The fastest of each alone would leave 700 to 900 to torch's function.
    clear = {case(900, Lq=1): {"sdpa_flash": 4.0, "eager": 1.0, "bmm": 2.0}}
    assert [(one.backend, one.upto) for one in chosen(run_of(tied | clear))] == [("eager", 900)]


def test_a_length_that_chose_otherwise_is_named_and_in_no_sum() -> None:
    lengths = {case(64, Lq=1): BMM, case(128, Lq=1): {"sdpa_flash": 1.0, "bmm": 9.0}}
    run = run_of(lengths)
    decisions = decide(run, REGISTRY, "sdpa_flash", CALLS)
    counted = structs.replace(run.manifests[0], counts=dict.fromkeys(lengths, 10))
    assert alone(decisions) == [case(64, Lq=1)]
    assert saving(replace(run, manifests=(counted,)), decisions, "sdpa_flash") == {}


def test_a_table_tells_for_which_threads_layouts_and_lengths_it_holds() -> None:
    found = chosen(run_of({
        case(512) + "/threads2": BMM, case(64): BMM, case(256): BMM,
        case(64, "causal"): BMM, case(256, "causal"): BMM,
        case(64, Lq=1) + "/BLHD": BMM, case(96, "causal:lower_right", Lq=4): BMM,
    }))  # fmt: skip
    *lines, more = held(found, lambda name: "BHLD")
    assert lines == [
        "holds for 1 thread, inputs in BLHD: 1 query and 64 keys",
        "holds for 1 thread, inputs in BHLD: 4 queries and 96 keys; 64–256 queries and keys",
        "holds for 2 threads, inputs in BHLD: 512 queries and keys",
        "a mask tensor is read when it is new, which may cost more than a call gains: make it once",
    ]
    for word in ("--layout LAYOUT", "cases of other lengths"):
        assert word in more
    assert "--threads" not in more, "two numbers were measured"
    one = chosen(run_of({case(64): BMM}))
    assert "--threads N" in held(one, lambda name: "BHLD")[-1]
    assert "--threads" not in held(one, lambda name: "BHLD", tried={1, 2})[-1], "two were tried"
    on_a_card = held(chosen(run_of({case(64).replace("/cpu/", "/cuda/"): BMM})), lambda name: "BLHD")
    assert on_a_card[0] == "holds for cuda, inputs in BLHD: 64 queries and keys"
    assert "--threads" not in on_a_card[1]


def next_lines(run: Run) -> list[str]:
    return what_next(decide(run, REGISTRY, "sdpa_flash", CALLS), "sdpa_flash", (), 1)


def test_what_is_not_proved_comes_with_the_run_that_may_prove_it() -> None:
    near = {"sdpa_flash": 10.0, "bmm": 9.99}
    run = run_of({case(64): near, case(64, "causal"): BMM, case(512, Lq=1): near})
    longer, cold = next_lines(run)
    command = longer.partition(": ")[2].split()
    assert command == [
        "attnbench", "run", "attention/scaled_dot/H2-L64-D8", "attention/scaled_dot/H2-Lq1-Lk512-D8",
        "--backend", "bmm", "--backend", "sdpa_flash", "--budget", "4", "--cache", "rotating",
        "--out", "longer.jsonl",
    ]  # fmt: skip
    assert "--cache rotating" in cold
    two = run_of({case(64) + "/threads2": near})
    assert "--threads 1" in next_lines(two)[1]
    assert len(what_next(decide(two, REGISTRY, "sdpa_flash", CALLS), "sdpa_flash", (), 1, tried={1, 2})) == 1
    small = run_of({case(64): {"sdpa_flash": 0.05, "bmm": 0.04}, case(32): {"sdpa_flash": 1.0, "bmm": 2.0}})
    (settled,) = next_lines(small)
    assert settled.startswith("no longer run changes this")
    assert held([], lambda name: "BHLD")[0].endswith(", so leave your program as it is")
    assert held([], lambda name: "BHLD", settled=False)[0].endswith(
        "computes every call until more is proved"
    )
    tie = run_of({case(64): {"sdpa_flash": 10.0, "bmm": 10.01}})
    assert next_lines(tie)[0] == (
        "a longer run may prove what may be faster: attnbench run attention/scaled_dot/H2-L64-D8 "
        "--backend bmm --backend sdpa_flash --budget 4 --out longer.jsonl"
    )
    # Intervals of a busy machine may be wide, but a call of 70 µs can't save 100.
    short = {"sdpa_flash": 0.07, "bmm": 0.05}
    wide = run_of({case(64): short}, spread=8)
    assert next_lines(wide)[0].startswith("no longer run changes this")
    many = run_of({case(length): near for length in (16, 32, 64, 128)})
    assert " run SUITE --backend bmm" in next_lines(many)[0]
    proved = run_of({case(512, Lq=1) + "/rotating": BMM})
    assert next_lines(proved) == []
    assert held(chosen(proved), lambda name: "BHLD")[0] == (
        "holds for 1 thread, inputs in BHLD, keys and values not in the processor's caches: "
        "1 query and 512 keys"
    )


def test_a_run_with_cold_inputs_takes_the_place_of_one_with_hot_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are the same calls: they are counted once, and what is proved cold is asked no more."""
    monkeypatch.chdir(tmp_path)
    hot = case(512, Lq=1)

    def made(name: str, one: str, low: float) -> None:
        times = {"best": "bmm", "delta": 0.02, "repetitions": 9, "ratio_to_best_confidence": 0.95}
        bounds = {"ratio_to_best": 1.5, "ratio_to_best_low": low, "ratio_to_best_high": 1.6}
        torchs = Record(one, "scaled_dot", "sdpa_flash", "ok", median_ms=3.0, **times, **bounds,
                        ratio_to_best_p_value=0.004 if low > 1 else 0.5)  # fmt: skip
        bmm = Record(one, "scaled_dot", "bmm", "ok", median_ms=2.0, ratio_to_best=1.0, **times)
        facts = {"counts": {one: 8.0}, "stages": {one: "decode"}, "share": 0.5}
        made = ["attnbench", "run", "mine.toml", "--budget", "1"]
        write_records(tmp_path / name, bmm, torchs, command=made, protocol={"budget_s": 1.0}, **facts)

    made("hot.jsonl", hot, 0.9)
    made("cold.jsonl", f"{hot}/rotating", 1.4)
    told = invoke("hot.jsonl", "cold.jsonl")[1]
    assert [one.case for one in read_table(Path("choice.toml")).choices] == [f"{hot}/rotating"]
    assert told.count("scaled_dot/H2-Lq1-Lk512-D8") == 1
    assert "longer run" not in told


def test_a_longer_run_of_some_hot_cases_names_them_as_its_options_make_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    records = [
        Record(case(n, Lq=1), "scaled_dot", name, "ok", median_ms=ms, best="sdpa_flash", delta=0.02)
        for n, slow in ((512, 0.05), (256, 9.0))
        for name, ms in (("sdpa_flash", slow), ("bmm", 9.1))
    ]
    told = invoke_on("hot.jsonl", *records, command=["attnbench", "run", "mine.toml", "--budget", "1"])
    assert "--case attention/scaled_dot/H2-Lq1-Lk256-D8/rotating --backend" in told


def test_nothing_is_chosen_where_torchs_function_has_no_time() -> None:
    run = run_of({case(64): BMM})
    check_timed(run, "sdpa_flash")
    memory = tuple(
        structs.replace(one, status="out_of_memory", median_ms=None) if one.backend == "sdpa_flash" else one
        for one in run.by_file[0]
    )
    with pytest.raises(
        BadInput, match=r"no case has a time of sdpa_flash \(1 out of memory\), so there is noth"
    ):
        check_timed(replace(run, by_file=(memory,)), "sdpa_flash")
    with pytest.raises(BadInput, match=r"did not measure eager: add --backend eager"):
        check_timed(run, "eager")


def beside(one: Run, other: Run) -> Run:
    """Two runs as those of one file."""
    return Run(
        one.paths + other.paths, one.manifests + other.manifests, one.by_file + other.by_file,
        times=one.times + other.times,
    )  # fmt: skip


def test_runs_of_other_versions_are_refused_and_of_one_case_the_newest_counts() -> None:
    one = run_of({case(64): BMM})
    other = run_of({case(128): BMM}, torch="2.14.0")
    with pytest.raises(BadInput, match=r"can't be put together: torch \(2.13.0, then 2.14.0\)"):
        decide(beside(one, other), REGISTRY, "sdpa_flash", CALLS)
    slow = run_of({case(128): BMM}, variables={"MKL_CBWR": "COMPATIBLE"})
    with pytest.raises(BadInput, match=r"variable MKL_CBWR \(no value, then COMPATIBLE\)"):
        decide(beside(one, slow), REGISTRY, "sdpa_flash", CALLS)
    before = run_of({case(64): {"sdpa_flash": 1.0, "bmm": 2.0}, case(128): BMM})
    head = structs.replace(one.manifests[0], started="2030-01-01T00:00:00+00:00")
    later = replace(one, manifests=(head,))
    for both in (beside(before, later), beside(later, before)):
        decisions = decide(both, REGISTRY, "sdpa_flash", CALLS)
        found = {each.case: each.choice and each.choice.backend for each in decisions}
        assert found == {case(64): "bmm", case(128): "bmm"}


def test_a_choice_is_of_one_kind_of_device_and_says_which() -> None:
    here = run_of({case(64): BMM}, cpu_quota=2)
    there = run_of({case(64): {"sdpa_flash": 1.0, "bmm": 2.0}}, cpu="another")
    on_cuda = case(64).replace("/cpu/", "/cuda/")
    card = run_of({on_cuda: {"sdpa_flash": 2.0, "eager": 1.0}}, cuda_devices=["H100"])
    fleet = beside(beside(here, there), card)
    with pytest.raises(
        BadInput, match="3 kinds of device; name one by --on-device: H100; a cpu, 2 cores; another"
    ):
        decide(fleet, REGISTRY, "sdpa_flash", CALLS)
    with pytest.raises(BadInput, match=r"nothing was measured on 'A100'.*: H100; a cpu, 2 cores; another"):
        on_kind(fleet, "A100")
    chosen_on = {}
    for kind in ("a cpu, 2 cores", "another", "H100"):
        run = on_kind(fleet, kind)
        table = table_of(run, decide(run, REGISTRY, "sdpa_flash", CALLS), "sdpa_flash")
        chosen_on[kind] = [one.backend for one in table.choices]
        assert table.facts == {"cuda" if kind == "H100" else "cpu": kind, "torch": "2.13.0"}
        assert table.threads == ([] if kind == "H100" else [1])
    assert chosen_on == {"a cpu, 2 cores": ["bmm"], "another": [], "H100": ["eager"]}
    both = table_of(beside(here, card), [], "sdpa_flash")
    assert both.facts == {"cpu": "a cpu, 2 cores", "cuda": "H100", "torch": "2.13.0"}


def invoke(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(attnbench, ["choose", *words], prog_name="attnbench")
    return done.exit_code, done.stdout, done.stderr


def invoke_on(name: str, *records: Record, words: tuple[str, ...] = (), **facts: object) -> str:
    """Write a run file here, choose from it, and return what is told."""
    write_records(Path(name), *records, **facts)
    status, told, _ = invoke(name, "--force", *words)
    assert status == 0, told
    return told


def test_the_command_tells_every_decision_and_writes_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, told, notes = invoke(str(REFERENCE), "--default", "eager")
    assert (status, notes) == (0, "1 choice in choice.toml\n")
    assert told.splitlines()[:2] == [
        "scaled_dot/H8-L128-D64/causal: torch's function stays: eager ties with sdpa_flash, "
        "which can't save the 0.1 ms that a choice may cost a call",
        "scaled_dot/H8-L256-D64/causal: sdpa_flash: torch's function takes 1.10 [1.07, 1.11] times as long",
    ]
    assert "holds for 1 thread, inputs in BHLD: 256–2048 queries and keys" in told.splitlines()
    assert "for more, run the suite with --threads N for other threads" in told
    table = read_table(Path("choice.toml"))
    assert [(one.backend, one.upto) for one in table.choices] == [("sdpa_flash", 2048)]
    status, told, _ = invoke(str(REFERENCE))
    assert (status, read_table(Path("choice.toml")).choices) == (0, [])
    empty = "the table is empty: torch's function computes every call, so leave your program as it is"
    assert empty in told.splitlines()
    assert "no longer run changes this choice of backends: in each case torch's function is the" in told


def test_a_choice_that_is_much_coarser_than_torchs_function_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def record(L: int, backend: str, ms: float, rms: float) -> Record:
        bounds = {"ratio_to_best": ms, "ratio_to_best_low": 0.99 * ms, "ratio_to_best_high": 1.01 * ms}
        return Record(
            case(L), "scaled_dot", backend, "ok", median_ms=ms, best="bmm", delta=0.02, repetitions=9,
            ratio_to_best_p_value=0.004, ratio_to_best_confidence=0.95, **bounds,
            accuracy=Accuracy(rms, 1e-6, 1e-8, 1e-6, 3e-7, 5e-6, 64, 64, 4),
        )  # fmt: skip

    errors = {64: 3.2e-8, 128: 1.9e-8}
    of_bmm = [record(L, "bmm", 1.0, rms) for L, rms in errors.items()]
    write_records(tmp_path / "r.jsonl", *of_bmm, *(record(L, "sdpa_flash", 2.0, 1e-8) for L in errors))
    _, told, _ = invoke("r.jsonl")
    first, second, *_ = told.splitlines()
    assert first.endswith("times as long; bmm's RMS error is 3.2 times torch's")
    assert second.endswith("] times as long")


def test_what_compiles_is_chosen_where_the_calls_of_a_process_save_its_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of flex for 1 ms of a prompt made a program of one prompt twice as slow."""
    monkeypatch.chdir(tmp_path)

    def record(backend: str, ms: float, low: float, high: float, first_ms: float = 0.0) -> Record:
        return Record(
            case(64), "scaled_dot", backend, "ok", median_ms=ms, best="flex", delta=0.02, repetitions=9,
            prepare_ms=first_ms, first_call_ms=first_ms / 4, ratio_to_best=ms, ratio_to_best_low=low,
            ratio_to_best_high=high, ratio_to_best_p_value=0.004, ratio_to_best_confidence=0.95,
        )  # fmt: skip

    torchs, slow = record("sdpa_flash", 2.0, 1.9, 2.1), record("flex", 1.0, 1.0, 1.0, 2000.0)
    (first, *rest) = invoke_on("run.jsonl", slow, torchs).splitlines()
    reason = "flex is faster, but in each process its first call takes 2.5 s, which 2,500 calls save"
    assert first.endswith(f": torch's function stays: {reason}: --calls 2500 takes it")
    assert not any("longer run may" in line for line in rest)
    (first, *_) = invoke_on("run2.jsonl", slow, torchs, words=("--calls", "2500")).splitlines()
    assert first.endswith("; in each process its first call takes 2.5 s, which 2,500 calls save")
    # No longer run is advised that could only prove what doesn't pay.
    near = record("sdpa_flash", 1.1, 1.01, 1.3)
    told = invoke_on("run3.jsonl", slow, near)
    assert "which 25,000 calls save" in told
    assert "longer run may" not in told
    near = structs.replace(near, ratio_to_best_low=0.9, ratio_to_best_p_value=0.3)
    told = invoke_on("run4.jsonl", slow, near)
    assert "can't save what its first call takes in 1,000 calls" in told
    assert "longer run may" not in told


def test_what_is_faster_and_compiles_nothing_is_chosen_beside_what_does() -> None:
    run = run_of({case(64): {"flex": 1.0, "bmm": 1.3, "sdpa_flash": 2.0}})
    compiled = [
        structs.replace(one, prepare_ms=2500.0, first_call_ms=0.0) if one.backend == "flex" else one
        for one in run.by_file[0]
    ]
    run = replace(run, by_file=(tuple(compiled),))
    assert [one.choice and one.choice.backend for one in decide(run, REGISTRY, "sdpa_flash", 1000)] == ["bmm"]
    assert [one.choice and one.choice.backend for one in decide(run, REGISTRY, "sdpa_flash", 9999)] == [
        "flex"
    ]


def test_a_longer_run_is_the_whole_command_of_the_first_with_more_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    cases = [case(512, Lq=1) + "/rotating", case(256, Lq=1) + "/rotating"]
    records = [
        Record(one, "scaled_dot", name, "ok", median_ms=ms, best="bmm", delta=0.02)
        for one, slow in zip(cases, (1.1, 0.9), strict=True)
        for name, ms in (("bmm", 1.0), ("sdpa_flash", slow))
    ]
    made = (
        "attnbench run decode.toml --dtype float32 --cache=rotating --plugin ~/my.py --budget 1 --out r.jsonl"
    )
    facts = {"command": [*made.split(), "--details", "--backend", "eager"], "protocol": {"budget_s": 1.0}}
    write_records(tmp_path / "r.jsonl", *records, **facts)
    again = "attnbench run decode.toml --dtype float32 --cache rotating --plugin /home/me/my.py"
    backends = "--backend bmm --backend sdpa_flash --budget 4 --out longer.jsonl"
    told = invoke("r.jsonl")[1]
    assert f" faster: {again} {backends}\n" in told
    beside = "attnbench choose r.jsonl longer.jsonl --out choice.toml --force"
    assert f"a longer run goes beside the others: {beside}\n" in told
    # The second longer run gets a file of its own.
    write_records(tmp_path / "longer.jsonl", *records, **facts)
    assert "--out longer2.jsonl\n" in invoke("r.jsonl", "--force")[1]
    assert "--out longer2.jsonl\n" in invoke("longer.jsonl", "--force")[1]
    (tmp_path / "longer.jsonl").unlink()
    counted = facts | {"counts": dict.fromkeys(cases, 4.0), "stages": dict.fromkeys(cases, "decode")}
    write_records(tmp_path / "counted.jsonl", *records, **counted)
    # Four calls of 1.1 ms, and four of 0.9: without intervals each may save the whole call.
    beside = "(worth it if a step of your program is not much longer)"
    asked = f" faster, at most 8.0 ms of a step of decode {beside}: {again} {backends}\n"
    assert asked in invoke("counted.jsonl")[1]
    # Torch's calls take 8 ms, half of the program.
    half = invoke_on("half.jsonl", *records, **counted, share=0.5)
    assert f" faster, at most 8.0 ms of a step of decode (50% of the program): {again} {backends}\n" in half
    part = Shard(0, 0, cases)
    alone = {"counts": {cases[0]: 4.0}, "stages": {cases[0]: "decode"}, "shard": part}
    assert "of the program" not in invoke_on("part.jsonl", records[0], records[1], **facts | alone, share=0.5)
    little = invoke_on("little.jsonl", *records, **counted, share=0.009)
    assert "may save less than 1% of the program as it was recorded\n" in little
    assert "--budget 4" not in little
    assert "longer.jsonl" not in little
    proved = [structs.replace(records[0], case=f"{case(128, Lq=1)}/rotating"), *records[:2]]
    write_records(tmp_path / "some.jsonl", *proved, **facts)
    assert (
        f"{again} --case attention/scaled_dot/H2-Lq1-Lk512-D8/rotating {backends}\n"
        in (invoke("some.jsonl")[1])
    )


def test_a_file_of_somebody_else_is_kept(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text("mine")
    status, _, notes = invoke(str(REFERENCE), "--out", str(mine))
    assert (status, mine.read_text()) == (2, "mine")
    assert "exists and is not a table of choices that attnbench wrote" in notes


def test_a_call_of_sequences_of_unlike_lengths_stays_as_it_is() -> None:
    batch = "attention/scaled_dot/2q8_q1s9-H2-D8/none/float32/cpu/forward/packed"
    (decision,) = decide(
        run_of({batch: {"per_sequence": 2.0, "padded_sdpa": 1.0}}), REGISTRY, "per_sequence", CALLS
    )
    assert (decision.choice, decision.why) == (None, "torch's function takes no packed sequences")


def test_what_is_faster_with_kept_memory_alone_is_asked_again_as_programs_run() -> None:
    """A program gives back what a worker keeps: a proved eager made the prefill of one slower."""
    kept = run_of({case(64): BMM})
    records = tuple(
        structs.replace(one, peak_extra_bytes=50 * 2**20 if one.backend == "bmm" else 2**20)
        for one in kept.records
    )
    kept = replace(kept, by_file=(records,))
    (decision,) = decide(kept, REGISTRY, "sdpa_flash", CALLS)
    assert decision.choice is None
    assert decision.why == "bmm is faster with memory that workers keep, of which it takes 49 MiB more a call"
    memory, longer = next_lines(kept)
    assert "gives freed memory back" in memory
    assert longer.endswith(
        "--backend bmm --backend sdpa_flash --budget 4 --allocator default --out longer.jsonl"
    )
    head = structs.replace(kept.manifests[0], protocol={"allocator_pinned": False})
    assert [one.backend for one in chosen(replace(kept, manifests=(head,)))] == ["bmm"]
