# ruff: noqa: E501  (a table of input and sentence, one line each)
"""What can't be used is said in one sentence on stderr, with exit status 2 and nothing on stdout."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from attnbench.cli import finish

ID = "attention/dot/H2-L8-D4"

BAD = [
    (["rnu"], "no command 'rnu'; did you mean 'run'? Try attnbench --help."),
    (["list", "ruels"], "no command 'ruels'; did you mean 'rules'? Try attnbench list --help."),
    (
        ["frobnicate"],
        "no command 'frobnicate'; there are run, check, report, compare, history, merge, explain, rules, doctor, list, plugins, new. Try attnbench --help.",
    ),
    (["--helpp"], "No such option '--helpp'. Did you mean '--help'? Try attnbench --help."),
    (
        ["run", "--bakend", "x"],
        "No such option '--bakend'. (Did you mean one of: '--backend', '--baseline'?) Try attnbench run --help.",
    ),
    (["run", "somke"], "no suite 'somke'; did you mean 'smoke'?"),
    (
        ["run", "attention/dot/H8-Hkv3-L8-D4"],
        "case 'attention/dot/H8-Hkv3-L8-D4': H = 8 is not a multiple of Hkv = 3: each key/value head serves the same number of query heads",
    ),
    (["run", "attention/dot/H0-L8-D4"], "case 'attention/dot/H0-L8-D4': H = 0: sizes are 1 or more"),
    (["run", "attention/dot/H2-L-8-D4"], "case 'attention/dot/H2-L-8-D4': Lq = -8: sizes are 1 or more"),
    (
        ["run", "attention/dot/H2-Lx-D4"],
        "case 'attention/dot/H2-Lx-D4': sizes 'H2-Lx-D4': no size 'Lx'; did you mean 'L'?",
    ),
    (["run", "attention/dto/H2-L8-D4"], "no rule 'dto'; did you mean 'dot'?"),
    (["run", ID, "--rule", "aditive"], "no rule 'aditive'; did you mean 'additive'?"),
    (["run", ID, "--rule", "additive"], "no selected case has the rule 'additive'; they have dot"),
    (["run", ID, "--backend", "spda"], "no backend 'spda'; did you mean 'sdpa_flash'?"),
    (["check", ID, "--backend", "eagre"], "no backend 'eagre'; did you mean 'eager'?"),
    (["run", ID, "--baseline", "eagre"], "no backend 'eagre'; did you mean 'eager'?"),
    (
        ["run", ID, "--dtype", "flot32"],
        "Invalid value for '--dtype': no dtype 'flot32'; did you mean 'float32'? Try attnbench run --help.",
    ),
    (
        ["run", ID, "--device", "gpu"],
        "Invalid value for '--device': no device 'gpu'; there are cpu and cuda. Try attnbench run --help.",
    ),
    (
        ["run", ID, "--mask", "casual"],
        "Invalid value for '--mask': mask 'casual': no mask 'casual'; did you mean 'causal'? Try attnbench run --help.",
    ),
    (
        ["run", ID, "--format", "jsno"],
        "Invalid value for '--format': no format 'jsno'; did you mean 'json'? Try attnbench run --help.",
    ),
    (
        ["run", ID, "--budget", "0"],
        "Invalid value for '--budget': '0': a number of seconds above 0 is needed. Try attnbench run --help.",
    ),
    (
        ["run", ID, "--budget", "nan"],
        "Invalid value for '--budget': 'nan': a number of seconds above 0 is needed. Try attnbench run --help.",
    ),
    (
        ["run", ID, "--budget", "soon"],
        "Invalid value for '--budget': 'soon': a number of seconds above 0 is needed. Try attnbench run --help.",
    ),
    (
        ["run", ID, "--memory-limit", "-1"],
        "Invalid value for '--memory-limit': '-1': a number of GiB above 0 is needed. Try attnbench run --help.",
    ),
    (
        ["run", ID, "--threads", "two"],
        "Invalid value for '--threads': 'two': a whole number of 1 or more is needed. Try attnbench run --help.",
    ),
    (
        ["run", ID, "--threads", "0"],
        "Invalid value for '--threads': '0': a whole number of 1 or more is needed. Try attnbench run --help.",
    ),
    (
        ["run", ID, "--seed", "-1"],
        "Invalid value for '--seed': '-1': a whole number of 0 or more is needed. Try attnbench run --help.",
    ),
    (
        ["run", ID, "--sets", "1.5"],
        "Invalid value for '--sets': '1.5': a whole number of 1 or more is needed. Try attnbench run --help.",
    ),
    (
        ["run", ID, "--delta", "2"],
        "Invalid value for '--delta': '2': a share between 0 and 1 is needed, as 2% or 0.02. Try attnbench run --help.",
    ),
    (
        ["run", ID, "--delta", "0%"],
        "Invalid value for '--delta': '0%': a share between 0 and 1 is needed, as 2% or 0.02. Try attnbench run --help.",
    ),
    (
        ["run", ID, "--delta", "100%"],
        "Invalid value for '--delta': '100%': a share between 0 and 1 is needed, as 2% or 0.02. Try attnbench run --help.",
    ),
    (
        ["run", ID, "--delta", "little"],
        "Invalid value for '--delta': 'little': a share between 0 and 1 is needed, as 2% or 0.02. Try attnbench run --help.",
    ),
    (
        ["run", ID, "--allocator", "pined"],
        "Invalid value for '--allocator': no allocator 'pined'; there are pinned and default. Try attnbench run --help.",
    ),
    (
        ["run", ID, "--mask", "padding:9"],
        f"case '{ID.replace('H2-L8', 'B1-H2-Lq8-Lk8')}/none/float32/cpu/forward' with the options applied: padding length 9 is more than Lk = 8",
    ),
    (["run", "none.toml"], "can't read the suite 'none.toml': No such file or directory"),
    (["run", "edges"], "the suite 'edges' is for checking, not for timing: use attnbench check edges"),
    (
        ["run", "--resume", "x.jsonl", ID, "--seed", "3"],
        "--resume goes on with a run as it was begun: leave out --seed, cases. Try attnbench run --help.",
    ),
    (["run", "--resume", "x.jsonl"], "can't read 'x.jsonl': No such file or directory"),
    (["run", "--threads"], "Option '--threads' requires an argument. Try attnbench run --help."),
    (["list", "cases", "--mask"], "Option '--mask' requires an argument. Try attnbench list cases --help."),
    (["--plugin"], "Option '--plugin' requires an argument. Try attnbench --help."),
    (["report"], "Missing argument 'FILE...'. Try attnbench report --help."),
    (["report", "x.jsonl"], "can't read 'x.jsonl': No such file or directory"),
    (["report", "ours.toml"], "'ours.toml' is no run of attnbench: its first line is no JSON"),
    (["merge", "x.jsonl"], "Missing option '--out'. Try attnbench merge --help."),
    (
        ["merge", "x.jsonl", "--out", "both"],
        "--out 'both': give the new file a name that ends in .jsonl",
    ),
    (["merge", "x.jsonl", "--out", "y.jsonl"], "can't read 'x.jsonl': No such file or directory"),
    (["merge", "x.jsonl", "--out", "ours.jsonl"], "'ours.jsonl' exists; name another file"),
    (
        ["merge", "ours.toml", "--out", "y.jsonl"],
        "'ours.toml' is no run of attnbench: its first line is no JSON",
    ),
    (
        ["list", "cases", "ours.toml"],
        "the suite 'ours.toml': case 1: no dtype 'flot32'; did you mean 'float32'?",
    ),
    (
        ["list", "cases", "torn.toml"],
        "the suite 'torn.toml': malformed TOML: Expected ']]' at the end of an array declaration (at line 1, column 8)",
    ),
    (["list", "cases", "folder.toml"], "can't read the suite 'folder.toml': Is a directory"),
    (["list", "cases", "a/b"], "case 'a/b': no operation 'a'; there are attention, multihead."),
    (["list", "rules", "extra"], "Got unexpected extra argument (extra). Try attnbench list rules --help."),
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("ours.toml").write_text("[[cases]]\nrule = 'dot'\nH = 1\nL = 8\nD = 4\ndtype = 'flot32'\n")
    Path("ours.jsonl").write_text("")
    Path("torn.toml").write_text("[[cases\n")
    Path("folder.toml").mkdir()
    return tmp_path


@pytest.mark.parametrize(("words", "sentence"), BAD, ids=[" ".join(words) for words, _ in BAD])
def test_one_sentence(invoke: Callable[..., Result], words: list[str], sentence: str) -> None:
    result = invoke(*words)
    assert result.stderr == f"attnbench: {sentence}\n"
    assert result.stdout == ""
    assert result.exit_code == 2
    assert not list(Path().glob("results/*"))


@pytest.mark.parametrize("words", [["run", "somke"], ["run", ID, "--backend", "spda"], ["rnu"]])
def test_no_traceback_in_a_process_of_its_own(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "attnbench", *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("attnbench: no ")
    assert done.stderr.count("\n") == 1


def test_a_missing_device_is_said_where_all_cases_need_it(
    invoke: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finish, "_has_cuda", lambda: False)
    result = invoke("run", ID, "--device", "cuda")
    assert result.stderr == (
        "attnbench: device 'cuda': torch finds no CUDA device on this machine; there is cpu\n"
    )
    assert result.exit_code == 2


def test_whether_there_is_a_device_is_what_torch_says() -> None:
    import torch

    assert finish._has_cuda() == torch.cuda.is_available()


def test_a_full_disk_behind_stdout_is_said() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "attnbench", "list", "cases"],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (3, "attnbench: No space left on device\n")


def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "attnbench", "list", "cases", "edges", "paper-flash"],
            stdout=write, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    finally:
        os.close(write)
    assert done.stderr == ""
    assert done.returncode != 0
