"""What docs/plugins.md shows works, word for word.

Its commands run in a new environment: from a file of fifteen lines to a published package. The environment
has attnbench as a wheel installs it, and sees the libraries of this one; nothing is fetched.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from click.testing import CliRunner
from distributions import write_distribution

from attnbench import hookspecs
from attnbench.api import load
from attnbench.cli import attnbench
from attnbench.plugins.registry import load_wanted
from attnbench.starter.package import names_of, next_lines, package

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "plugins.md").read_text()
COMMAND = "attnbench_shapes.py"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


def files() -> dict[str, str]:
    """The blocks of Python, by the file that each begins with the name of."""
    return {re.match(r"# (\S+\.py)\n", block)[1]: block for block in blocks("python")}  # type: ignore[index]


PLUGINS = [name for name in files() if name != COMMAND and not name.startswith("test_")]


def test_every_hook_has_an_example() -> None:
    shown = {
        node.name
        for text in files().values()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("attnbench_")
    }
    assert shown == {name for name in vars(hookspecs) if name.startswith("attnbench_")}


@pytest.mark.parametrize("name", PLUGINS)
def test_every_example_brings_what_it_shows(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(files()[name])
    registry = load_wanted([str(tmp_path / name)])
    (source,) = (source for source in registry.plugins if source.distribution == name)
    kinds = [kind for kind in vars(registry).values() if isinstance(kind, dict)]
    assert any(entry.source == source for kind in kinds for entry in kind.values())


def test_the_first_file_has_fifteen_lines_and_is_that_of_the_readme() -> None:
    code = files()["my_kernel.py"].partition("\n")[2]
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    assert code.rstrip() in (ROOT / "README.md").read_text()


def test_the_verdict_rule_of_the_document_decides(tmp_path: Path) -> None:
    (tmp_path / "tenth.py").write_text(files()["tenth.py"])
    decide = load_wanted([str(tmp_path / "tenth.py")]).verdict_rules["tenth"].record.decide
    base = [[100.0, 101.0], [99.0, 100.0]]
    said = [decide([[factor * ns for ns in times] for times in base], base) for factor in (0.8, 1.05, 1.2)]
    assert said == ["faster", "same", "slower"]


def test_the_command_of_the_document_is_one(site: Path) -> None:
    (site / COMMAND).write_text(files()[COMMAND])
    points = blocks("toml")[1].replace("[project.entry-points.", "[").replace('"', "")
    (site / "attnbench_mine-1.0.dist-info" / "entry_points.txt").write_text(points)
    told = CliRunner().invoke(attnbench, ["--help"], prog_name="attnbench")
    assert "shapes" in told.stdout.partition("Commands of plugins:")[2]
    words = ["shapes", "attention/dot/H4-Hkv2-L16-D8"]
    told = CliRunner().invoke(attnbench, words, prog_name="attnbench")
    assert told.stdout == f"{4 * 16 * 8 + 2 * 16 * 16}\n"


def test_what_is_shown_of_a_package_is_what_new_writes() -> None:
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    at = lines.index("attnbench new my-kernel")
    told = next_lines(names_of("my-kernel"), "attnbench-my-kernel")
    assert tuple(lines[at + 1 : at + 1 + len(told)]) == told
    written = package(names_of("my-kernel"))
    assert files()["test_my_kernel.py"] == f"# test_my_kernel.py\n{written['tests/test_my_kernel.py']}"
    assert blocks("toml")[0] in written["pyproject.toml"]


def test_the_variables_of_the_document_are_those_that_are_read() -> None:
    read = {
        name
        for path in (ROOT / "attnbench" / "plugins").glob("*.py")
        for name in re.findall(r'^[A-Z]+ = "(ATTN\w+)"$', path.read_text(), re.M)
    }
    assert {*re.findall(r"^\| `(ATTNBENCH_\w+)`", TEXT, re.MULTILINE)} == read


BACKEND = """
from attnbench import Backend, hookimpl
@hookimpl
def attnbench_backends():
    yield Backend("mine", "a test", prepare=print)
"""

FAULTY = {
    "raises when it is imported": "1 / 0",
    "ends the process": "raise SystemExit(3)",
    "imports what isn't there": "import not_there",
    "raises in a hook": BACKEND.replace("yield", "1 / 0\n    yield"),
    "has a hook without `@hookimpl`": BACKEND.replace("@hookimpl", ""),
    "has a hook that doesn't exist": BACKEND.replace("attnbench_backends", "attnbench_backend"),
    "forgets `yield`, or gives one record instead of a list": BACKEND.replace("yield", "return"),
    "gives something else than a record": BACKEND.replace(
        'Backend("mine", "a test", prepare=print)', '"mine"'
    ),
    "gives a record that can't be": BACKEND.replace("=print", '=print, dtypes=("float8",)'),
    "brings a name that is there": BACKEND.replace("mine", "eager"),
}


def guarded() -> dict[str, str]:
    table = TEXT.partition("| what it does | the line |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()]
    return {what: line.strip("`") for what, line in rows}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place from which the distribution attnbench-mine is imported."""
    write_distribution(tmp_path, "attnbench-mine", {"attnbench": {"mine": "mine"}}, {})
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("mine", None)


def test_all_that_is_guarded_is_tried() -> None:
    assert guarded().keys() == FAULTY.keys()


@pytest.mark.parametrize("what", FAULTY)
def test_what_is_wrong_is_told_by_the_line_of_the_document(what: str, site: Path) -> None:
    (site / "mine.py").write_text(FAULTY[what])
    told = CliRunner().invoke(attnbench, ["list", "backends"], prog_name="attnbench")
    assert told.exit_code == 0
    assert "sdpa_flash" in told.stdout
    pattern = guarded()[what].replace("…", "*")
    assert [line for line in told.stderr.splitlines() if fnmatchcase(line, pattern)], told.stderr
    assert len(told.stderr.splitlines()) == 1


@pytest.mark.parametrize("what", FAULTY)
def test_the_same_of_a_plugin_that_was_named_is_an_error(what: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FAULTY[what])
    words = ["list", "backends", "-p", str(tmp_path / "mine.py")]
    told = CliRunner().invoke(attnbench, words, prog_name="attnbench")
    _, _, sentence = guarded()[what].partition("(mine): ")
    (line,) = told.stderr.splitlines()
    assert fnmatchcase(line, f"attnbench: plugin mine.py * (mine_*): {sentence.replace('…', '*')}")
    assert told.exit_code == 2
    assert not told.stdout


@pytest.mark.parametrize(
    ("words", "exit_code"), [(["plugins"], 0), (["check"], 3), (["list", "backends"], 0)]
)
def test_a_slow_import_is_told_where_authors_look(
    words: list[str], exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    slow = "import time\nend = time.process_time() + 1.3\nwhile time.process_time() < end: 1"
    absent = BACKEND.replace("=print", '=print, requires=("not_there",)')
    Path("mine.py").write_text(absent + slow)
    told = CliRunner().invoke(attnbench, [*words, "-p", "mine.py"], prog_name="attnbench")
    assert told.exit_code == exit_code
    hint = "s to load in every command: import heavy libraries where they are used"
    assert (hint in told.stderr) == (words[0] != "list")


TOGETHER = ("rbf.py", "my_layer.py", "my_suite.py", "tokens.py", "lines.py", "rack.py", "lab.py")
LAYER = "multihead/scaled_dot/B1-H2-Lq16-Lk16-D8-E16/causal/float32/cpu/both"


def together(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    plugins = [word for name in TOGETHER for word in ("-p", name)]
    return subprocess.run(
        [sys.executable, "-m", "attnbench", *words, *plugins],
        cwd=folder, env=os.environ | {"RACK": "b7"}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_examples_work_together(tmp_path: Path) -> None:
    for name, text in files().items():
        (tmp_path / name).write_text(text)
    backends = ("--backend", "eager", "--backend", "my_layer", "--budget", "0.01", "--repetitions", "2")
    done = together(tmp_path, "run", "my-model", LAYER, *backends, "--out", "r.jsonl", "--format", "lines")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert sorted(line.rpartition(" ")[0] for line in lines) == [
        *["ok eager"] * 4, *["ok my_layer"] * 3, "unsupported my_layer",
    ]  # fmt: skip
    assert f"ok my_layer {LAYER}" in lines
    manifest = json.loads((tmp_path / "r.jsonl").read_text().partition("\n")[0])
    assert manifest["environment"]["plugin_facts"]["rack.py"] == {"rack": "b7"}
    rows = json.loads(together(tmp_path, "report", "r.jsonl", "--format", "json").stdout)
    for row in rows:
        if row["status"] == "ok":
            assert row["queries_per_s"] == pytest.approx(row["B"] * row["Lq"] / (row["median_ms"] / 1e3))
    places = together(tmp_path, "fleet", "--on", "lab", "--where", "room=12", "--format", "json")
    assert [place["place"] for place in json.loads(places.stdout)] == ["desk"], places.stderr


OFFLINE = 'case $1 in install|wheel) set -- "$@" --no-index --no-build-isolation;; esac\n'


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a shell in which a new environment is active."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    binaries = folder / "bin"
    paths = sysconfig.get_paths("venv", vars={"base": str(folder), "platbase": str(folder)})
    borrowed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (Path(paths["purelib"]) / "borrowed.pth").write_text("".join(f"{path}\n" for path in borrowed))
    for tool, before in (("pip", OFFLINE), ("pytest", "")):
        (binaries / tool).write_text(f'#!/bin/sh\n{before}exec {binaries}/python -m {tool} "$@"\n')
        (binaries / tool).chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    clean = kept | {"PATH": f"{binaries}:{os.environ['PATH']}", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = shell(f"pip install --quiet --no-deps '{ROOT}'", folder, clean)
    assert done.returncode == 0, done.stderr
    told = shell("python -c 'import attnbench; print(attnbench.__file__)'", folder, clean)
    assert Path(told.stdout.strip()).is_relative_to(folder)
    return clean


def shell(lines: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = ["sh", "-e", "-c", lines]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=900
    )


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_from_an_empty_folder_to_a_row_of_ones_own(clean: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "my_kernel.py").write_text(files()["my_kernel.py"])
    done = shell("".join(blocks("sh")), tmp_path, clean)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = tmp_path / "attnbench-my-kernel"
    (file,) = (folder / "results").glob("*.jsonl")
    (row,) = (row for row in load(file).frame.to_dict("records") if row["backend"] == "my_kernel")
    assert row["status"] == "ok"
    assert row["verified_calls"] > 0
    assert row["ratio"] > 0
    assert re.search(r"\d+ passed", done.stdout)
    (wheel,) = (folder / "dist").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        assert {"attnbench_my_kernel/__init__.py", "attnbench_my_kernel/py.typed"} <= {*archive.namelist()}
        (points,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert archive.read(points).decode().split("\n")[:2] == [
            "[attnbench]",
            "my_kernel = attnbench_my_kernel",
        ]


@pytest.mark.slow
@pytest.mark.nightly
def test_what_the_judge_says_of_the_file_that_claims_too_much(clean: dict[str, str], tmp_path: Path) -> None:
    honest = files()["my_kernel.py"]
    claiming = re.sub(r"\n +supports=.*,", "", honest)
    assert claiming != honest
    (tmp_path / "my_kernel.py").write_text(claiming)
    done = shell(blocks("sh")[0].splitlines()[0], tmp_path, clean)
    assert done.returncode == 1, done.stdout + done.stderr
    for line in blocks("text")[0].splitlines():
        assert line in done.stdout
