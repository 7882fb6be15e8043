"""attnbench.run and attnbench.load: what they take, what they give, and what they refuse in words."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from run_files import write_records

import attnbench
from attnbench.cases.select import shard_number
from attnbench.compare.shards import shard_notes
from attnbench.reports.columns import KEYS
from attnbench.results.digest import digested
from attnbench.results.merge import merge
from attnbench.runner.progress import Moment
from attnbench.types.case import Case
from attnbench.types.errors import BadFile
from attnbench.types.record import PluginLine, Record

pytestmark = pytest.mark.usefixtures("kept_servers")

ID = "attention/dot/B1-H2-Lq16-Lk16-D8/none/float32/cpu/forward"
CASE = Case("attention", "scaled_dot", B=1, H=2, Hkv=2, Lq=16, Lk=16, D=8, Dv=8)
BACKENDS = ["eager", "bmm", "fused_multihead"]


CASE_WORDS = "give names of suites, ids of cases, TOML files or Case values"
NO_CASES: list[tuple[object, str]] = [
    (5, "5"), (None, "None"), ([CASE, 3], "3"), (b"smoke", "b'smoke'"),
]  # fmt: skip


@pytest.fixture(scope="module")
def moments() -> list[Moment]:
    return []


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, moments: list[Moment]) -> attnbench.Run:
    folder = tmp_path_factory.mktemp("api") / "a" / "new" / "folder"
    cases = ["attention/dot/H2-L16-D8", CASE]
    with pytest.MonkeyPatch.context() as patch:
        # Each server loads torch, and one is enough.
        patch.setattr("attnbench.runner.options.LAUNCHES", 1)
        return attnbench.run(cases, BACKENDS, budget=0.01, repetitions=2, out=folder, progress=moments.append)


def test_printed_it_is_one_line(run: attnbench.Run) -> None:
    assert repr(run) == f"<Run {run.path}: 2 cases: 4 ok, 2 unsupported>"
    copied = run.path.with_name("copied.jsonl")
    data = re.sub(rb',"digest":"\w{16}"}', b"}", run.path.read_bytes())
    copied.write_bytes(data.replace(run.manifests[0].run_id.encode(), b"another"))
    try:
        with pytest.warns(UserWarning, match="has no digests"):
            both = attnbench.load([run.path, copied])
    finally:
        copied.unlink()
    assert repr(both) == f"<Run {run.path}, {copied}: 2 cases: 8 ok, 4 unsupported>"


def test_what_was_cut_off_says_so(run: attnbench.Run, tmp_path: Path) -> None:
    half = tmp_path / "half.jsonl"
    half.write_bytes(run.path.read_bytes().splitlines(keepends=True)[0])
    with pytest.warns(UserWarning, match="half.jsonl: the run was cut off, 6 of its records are missing; "):
        assert repr(attnbench.load(half)) == f"<Run {half} (cut off): 0 cases: no records>"


def test_cases_are_ids_and_values_in_the_order_given(run: attnbench.Run) -> None:
    (manifest,) = run.manifests
    assert manifest.cases == [ID, ID.replace("/dot/", "/scaled_dot/")]
    assert manifest.backends == manifest.named == BACKENDS
    assert manifest.compiled_on is None
    assert manifest.protocol["budget_s"] == 0.01
    assert manifest.protocol["repetitions"] == 2


def test_a_folder_gets_a_file_named_for_the_run(run: attnbench.Run) -> None:
    assert run.paths == (run.path,)
    assert run.path.name == f"{run.manifests[0].run_id}.jsonl"
    assert re.fullmatch(r"\d{8}T\d{6}-[0-9a-f]{8}", run.path.stem)
    assert [path.name for path in run.path.parent.iterdir()] == [run.path.name]


def test_every_pair_has_a_row_and_every_column_its_kind(run: attnbench.Run) -> None:
    frame = run.frame
    assert list(frame.columns) == list(KEYS)
    assert len(frame) == len(run.records) == 2 * len(BACKENDS)
    assert set(zip(frame["case"], frame["backend"], strict=True)) == {
        (case, name) for case in run.manifests[0].cases for name in BACKENDS
    }
    for name in ("median_ms", "ratio", "error_budget", "tflops", "gbps", "prepare_ms"):
        assert str(frame[name].dtype) == "float64", name
    for name in ("repetitions", "timed_calls", "verified_calls", "Lq", "Dv", "threads", "seed"):
        assert str(frame[name].dtype) == "int64", name
    for name in ("peak_extra_bytes", "rows", "E"):
        assert str(frame[name].dtype) == "Int64", name


def test_what_was_refused_has_no_numbers_and_the_rest_has_all(run: attnbench.Run) -> None:
    frame = run.frame.set_index(["rule", "backend"]).sort_index()
    refused = frame.loc[("dot", "fused_multihead")]
    assert (refused["status"], refused["reason"]) == ("unsupported", "computes multihead, not attention")
    assert refused[["median_ms", "ratio", "error_budget", "peak_extra_bytes"]].isna().all()
    assert (refused["repetitions"], refused["timed_calls"], refused["Lk"]) == (0, 0, 16)
    eager = frame.loc[("scaled_dot", "eager")]
    assert (eager["status"], eager["ratio"], eager["baseline"]) == ("ok", 1.0, "eager")
    assert eager["median_ms"] > 0
    assert eager["repetitions"] == 2
    assert 2 * eager["repetitions"] <= eager["verified_calls"] <= eager["timed_calls"]


def test_a_backend_asked_for_by_name_that_runs_nowhere_is_a_failure(run: attnbench.Run) -> None:
    assert run.exit_code == 3
    assert run.without_success == [
        "fused_multihead succeeded on no case: unsupported: computes multihead, not attention (2 of 2 cases)"
    ]
    manifest = replace(run.manifests[0], named=["eager", "bmm"])
    assert attnbench.Run(run.paths, (manifest,), run.by_file).exit_code == 0


def test_progress_tells_cases_in_order_and_each_step_of_them(
    run: attnbench.Run, moments: list[Moment]
) -> None:
    assert run.unfinished == ()
    for number, case in enumerate(run.manifests[0].cases, start=1):
        doing = [moment.doing for moment in moments if moment.number == number]
        assert doing[:2] == ["variant case", "oracle"]
        assert set(doing[2:4]) == {"check eager", "check bmm"}
        assert doing[4:] == ["repetition 1 of 2", "repetition 2 of 2", "done"]
        assert {moment.case for moment in moments if moment.number == number} == {case}
    checks = [moment.number for moment in moments if moment.doing.startswith(("variant", "oracle", "check"))]
    assert checks == sorted(checks)
    assert {moment.cases for moment in moments} == {2}
    assert all(moment.left_s >= 0 for moment in moments)


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(b"mine")
    with pytest.raises(attnbench.BadInput, match=r"exists; continue it with --resume, or name another file"):
        attnbench.run(CASE, ["eager"], timed=False, out=path)
    assert path.read_bytes() == b"mine"


def test_files_and_folders_are_read_together(run: attnbench.Run, tmp_path: Path) -> None:
    half = tmp_path / "half.jsonl"
    half.write_bytes(b"".join(run.path.read_bytes().splitlines(keepends=True)[:4]))
    (tmp_path / "notes.txt").write_text("no run")
    with pytest.warns(UserWarning, match="the run was cut off"):
        both = attnbench.load([run.path, tmp_path])
    assert both.paths == (run.path, half)
    assert both.unfinished == (half,)
    assert both.records[: len(run.records)] == run.records
    assert len(both.frame) == len(run.records) + half.read_bytes().count(b'"kind":"record"')
    assert attnbench.load(str(run.path.parent)).records == run.records


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"cases": "somke"}, "no suite 'somke'; did you mean 'smoke'?"),
        ({"cases": "attention/dto/H2-L16-D8"}, "no rule 'dto'; did you mean 'dot'?"),
        ({"cases": [CASE, "somke"]}, "no suite 'somke'; did you mean 'smoke'?"),
        ({"backends": ["eagre"]}, "no backend 'eagre'; did you mean 'eager'?"),
        ({"backends": "eagre"}, "no backend 'eagre'; did you mean 'eager'?"),
        (
            {"backends": []},
            "no backends: name at least one, or leave the argument out for all that are installed",
        ),
        ({"baseline": "eagre"}, "no backend 'eagre'; did you mean 'eager'?"),
        ({"cases": []}, "nothing to run: no cases"),
        ({"cases": Path("no.toml")}, "can't read the suite 'no.toml': No such file or directory"),
        *(({"cases": cases}, f"{word} is not a case: {CASE_WORDS}") for cases, word in NO_CASES),
        ({"budget": 0}, "a budget of 0 s: give a positive number of seconds, 1000000 at most"),
        *(
            (
                {"repetitions": repetitions},
                f"{repetitions!r} repetitions: give a whole number, 1 or more; small differences need 9",
            )
            for repetitions in (0, "9", 1.5)
        ),
        ({"memory_limit": "1"}, "a memory limit of '1' bytes: a worker needs 67108864 (0.0625 GiB) at least"),
        ({"timed": "no"}, "timed = 'no': give True or False"),
        ({"allocator_pinned": "no"}, "allocator_pinned = 'no': give True or False"),
        ({"shard": 3}, "shard '3': give K/N with K from 1 to N; 3/16 is the third of 16 shards"),
        ({"delta": 2}, "a delta of 2: give a fraction between 0 and 1, as 0.02 for 2 %"),
        ({"threads": 0}, f"case '{ID}' with the options applied: threads = 0: sizes are 1 or more"),
        ({"cases": "edges"}, "the suite 'edges' is for checking, not for timing: use attnbench check edges"),
    ],
)
def test_what_can_not_be_is_one_sentence_before_anything_is_written(
    tmp_path: Path, words: dict[str, object], sentence: str
) -> None:
    with pytest.raises(attnbench.BadInput) as caught:
        attnbench.run(**({"cases": ID, "out": tmp_path} | words))
    assert str(caught.value) == sentence
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("paths", [[], "", [""]])
def test_nothing_to_read_is_a_sentence(paths: list[str] | str) -> None:
    with pytest.raises(attnbench.BadInput, match=r"^no path to read: name a run file, or a folder of them$"):
        attnbench.load(paths)


# Shards, and runs read together


@pytest.mark.slow
def test_shards_resume_and_make_up_the_whole(tmp_path: Path) -> None:
    # One is in the second shard, two are in the first.
    cases = [f"attention/dot/H1-L{length}-D4" for length in (7, 8, 10)]
    paths = [tmp_path / f"{number}.jsonl" for number in (1, 2)]
    runs = [
        attnbench.run(cases, ["eager"], timed=False, shard=f"{number}/2", out=path)
        for number, path in enumerate(paths, 1)
    ]
    assert [run.path for run in runs] == paths
    whole = [case for run in runs for case in run.manifests[0].cases]
    assert len(set(whole)) == len(whole) == len(cases)
    paths[0].write_bytes(b"".join(paths[0].read_bytes().splitlines(keepends=True)[:2]))
    again = attnbench.resume(paths[0])
    assert again.manifests[0] == runs[0].manifests[0]
    assert {(one.case, one.backend) for one in again.records} == {
        (one.case, one.backend) for one in runs[0].records
    }
    merged = merge(paths, tmp_path / "all.jsonl")
    assert list(shard_notes(merged.runs)) == []
    assert sorted(one.case for one in attnbench.load(merged.path).records) == sorted(whole)


def test_an_empty_shard_is_refused_in_words(tmp_path: Path) -> None:
    shard = f"{3 - shard_number(ID, 2)}/2"
    with pytest.raises(attnbench.BadInput, match=f"^nothing to run: no cases in shard {shard}$"):
        attnbench.run(ID, ["eager"], timed=False, shard=shard, out=tmp_path)


SLOWER = Record(
    ID, "dot", "slow", "ok", median_ms=2.0, ratio=1.5, ratio_low=1.4, ratio_high=1.6, p_value=0.0039,
    baseline="eager", delta=0.02, repetitions=9,
)  # fmt: skip
EAGER = Record(
    ID, "dot", "eager", "ok", median_ms=1.3, ratio=1.0, baseline="eager", delta=0.02, repetitions=9
)
CHANCE = [
    msgspec.structs.replace(SLOWER, backend=f"other{n}", ratio=1.0, ratio_low=0.9, p_value=0.9)
    for n in range(60)
]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"batch": "2q5_x9", "storage": "packed"}, "'x9' at character 5 is not a segment"),
        ({"batch": "2000q1s5", "storage": "packed"}, "1024 sequences are the most"),
        ({"batch": "2q5", "storage": "paged:0"}, "page = 0: give 1 to"),
        ({"batch": "2q5", "storage": "apart"}, "no installed backend takes the storage 'apart'"),
        ({"batch": "2q5"}, "batch"),
    ],
)
def test_words_that_make_no_batch_are_refused_in_a_sentence(words: dict[str, str], said: str) -> None:
    with pytest.raises(attnbench.BadInput, match=said):
        attnbench.run("attention/dot/H2-L8-D8", **words)


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    return [
        write_records(tmp_path / "a.jsonl", EAGER, SLOWER),
        write_records(tmp_path / "b.jsonl", EAGER, SLOWER, *CHANCE),
    ]


def test_each_file_is_a_family_of_its_own(two: list[Path]) -> None:
    both = attnbench.load(two)
    assert [len(records) for records in both.by_file] == [2, 62]
    assert both.records == both.by_file[0] + both.by_file[1]
    alone = [one for path in two for one in attnbench.load(path).judged]
    assert both.judged == alone
    slow = both.frame[both.frame["backend"] == "slow"]
    assert slow["p_value"].tolist() == [0.0039, 0.0039]
    assert slow["p_adjusted"].tolist() == pytest.approx([0.0039, 0.0039 * 61])
    # What one run tells, the other can't among 61 comparisons.
    assert slow["verdict"].tolist() == ["slower", "unclear"]
    assert both.frame[both.frame["backend"] == "eager"]["verdict"].tolist() == ["baseline"] * 2


def test_of_several_files_that_with_an_id_that_cannot_be_read_is_named(two: list[Path]) -> None:
    text = re.sub(r',"digest":"\w{16}"}', "}", two[1].read_text())
    lines = text.replace("attention/dot", "attenton/dot").encode().splitlines()
    two[1].write_bytes(b"".join(line + b"\n" for line in digested(lines)))
    with pytest.raises(attnbench.BadFile, match=r"b\.jsonl': case 'attenton/dot.*no operation 'attenton'"):
        attnbench.load(two)


def test_a_run_with_an_operation_of_a_plugin_says_which_plugins_it_had(tmp_path: Path) -> None:
    case = "paged/dot/B1-H1-Lq4-Lk4-D4/none/float32/cpu/forward"
    record = Record(case, "dot", "mine", "error", "why")
    path = write_records(tmp_path / "a.jsonl", record, plugins=[PluginLine("pages", "my-pages", "1.0")])
    with pytest.raises(
        BadFile, match=r"no operation 'paged'.* The run had these plugins: pages \(my-pages\)\."
    ):
        attnbench.load(path)
