"""What the README and the documents show works, word for word."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from attnbench.cases.ids import case_id, parse_case
from attnbench.cases.suites import parse_suite, read_suite
from attnbench.cli import attnbench as attnbench_cli
from attnbench.compare.gate import Gate, read_gate
from attnbench.reports.compared import COLUMNS
from attnbench.types.compared import OUTCOMES

sys.path.insert(0, str(Path(__file__).parents[1] / "stored"))
from made_sides import BESIDE, SHORT, times, write_run

pytest_plugins = ("pytester",)

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
COMPARING, CONCEPTS, MODEL, PROGRAM, TUTORIALS, PYTEST = (
    DOCS / f"{name}.md"
    for name in ("comparing", "concepts", "your-model", "your-program", "tutorials", "pytest")
)
EXAMPLE = ROOT / "plugins" / "attnbench-example"


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE)


def shell_lines(path: Path) -> list[str]:
    indented = re.findall(r"^ +(?:- run: )?(attnbench .+)$", path.read_text(), re.MULTILINE)
    fenced = [line for block in blocks(path, "sh") for line in block.replace("\\\n", "").splitlines()]
    parts = [
        part for line in indented + fenced for part in re.split(r"#|>|\\|\s{3,}", line.strip())[0].split("&&")
    ]
    return [part.strip() for part in parts if part.strip().startswith("attnbench ")]


def run(line: str) -> Result:
    command, *words = shlex.split(line)
    assert command == "attnbench"
    return CliRunner(env={"COLUMNS": "120"}).invoke(attnbench_cli, words, prog_name="attnbench")


@pytest.mark.slow
def test_the_python_of_the_readme_runs_as_it_stands(tmp_path: Path) -> None:
    script = blocks(README, "python")[1]
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "bmm" in done.stdout


def test_the_run_of_the_reports_is_shown_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {}
    exec(blocks(DOCS / "reports.md", "python")[0], names)
    shown = names["run"]._repr_html_()
    assert "outputs checked, all correct." in shown
    assert "<b>The fastest backend of each case</b>" in shown


@pytest.mark.slow
def test_the_plugin_of_the_readme_is_right_and_declines_masks(tmp_path: Path) -> None:
    (tmp_path / "my_kernel.py").write_text(blocks(README, "python")[0])
    cases = "attention/scaled_dot/H2-L16-D8 attention/scaled_dot/H2-L16-D8/causal"
    words = f"--plugin {tmp_path / 'my_kernel.py'} --backend mine --format json --out {tmp_path}"
    done = run(f"attnbench check {cases} {words}")
    plain, causal = json.loads(done.stdout)
    assert (plain["status"], causal["status"]) == ("ok", "unsupported"), done.stderr
    assert causal["reason"] == "no masks yet"


def test_the_suite_of_the_concepts_is_one(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(blocks(CONCEPTS, "toml")[0])
    suite = read_suite(tmp_path / "mine.toml")
    assert len(suite.cases) == 3
    assert suite.cases[2].mask.window == 512


def test_the_ids_of_the_concepts_are_the_same_case() -> None:
    short, whole = "attention/dot/H1-L16-D8", "attention/dot/B1-H1-Lq16-Lk16-D8/none/float32/cpu/forward"
    assert short in CONCEPTS.read_text()
    assert whole in CONCEPTS.read_text()
    assert case_id(parse_case(short)) == whole


SUITES = [
    (path.stem, block)
    for path in (README, *sorted(DOCS.glob("*.md")))
    for block in blocks(path, "toml")
    if "[[cases]]" in block
]


@pytest.mark.parametrize(("page", "suite"), SUITES, ids=[page for page, _ in SUITES])
def test_a_suite_of_the_documents_can_be_copied(page: str, suite: str) -> None:
    assert parse_suite(suite, page).cases


SHOWING = [
    README, ROOT / "CHANGELOG.md", *DOCS.glob("*.md"),
    EXAMPLE / "README.md", EXAMPLE / ".github" / "workflows" / "ci.yml",
]  # fmt: skip


@pytest.mark.parametrize("line", sorted({line for path in SHOWING for line in shell_lines(path)}))
def test_shell_lines_name_commands_and_options_that_exist(line: str) -> None:
    words = shlex.split(line)[1:]
    command: click.Command = attnbench_cli
    context = click.Context(command, info_name="attnbench")
    while isinstance(command, click.Group):
        # Options of the group itself come before the name of the command.
        words = [word for place, word in enumerate(words) if place or not word.startswith("-")]
        name, command, words = command.resolve_command(context, words)
        assert command is not None
        context = click.Context(command, info_name=name, parent=context)
    parsed = command.make_context(command.name, words, parent=context.parent)
    assert parsed.params


@pytest.fixture
def sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the document on comparing names."""
    names = ("sdpa_flash", "flex", "numpy", *BESIDE)
    monkeypatch.chdir(tmp_path)
    for side, month in (("base", 1), ("new", 2)):
        additive = SHORT.replace("dot", "additive")
        cells = {
            case: {name: times(1e6 * (1 + i)) for i, name in enumerate(names)} for case in (SHORT, additive)
        }
        write_run(tmp_path / f"{side}.jsonl", cells=cells, started=f"2026-0{month}-01T00:00:00+00:00")
    (tmp_path / "gate.toml").write_text(blocks(COMPARING, "toml")[0])
    return tmp_path


@pytest.mark.usefixtures("sides")
@pytest.mark.parametrize("line", blocks(COMPARING, "sh")[0].splitlines())
def test_every_comparison_runs_and_holds(line: str) -> None:
    result = run(line)
    assert result.exit_code == 0, result.stdout + result.stderr
    assert result.stdout


def test_the_gate_of_the_document_says_what_stands_beside_it(sides: Path) -> None:
    gate = read_gate(sides / "gate.toml", Gate())
    assert gate.delta_of("attention/additive/x", "mine") == 0.1
    assert gate.delta_of("attention/dot/x", "mine") == 0.03
    assert gate.fail_on_of("attention/dot/x", "numpy") == ("mismatch",)
    assert gate.ignored("attention/dot/x", "flex")


@pytest.mark.usefixtures("sides")
def test_every_column_verdict_and_key_of_a_comparison_is_explained() -> None:
    keys = json.loads(run("attnbench compare base.jsonl new.jsonl --format json").stdout)
    for word in (*COLUMNS, *OUTCOMES, *keys):
        assert f"`{word}`" in COMPARING.read_text(), word


def test_the_suite_of_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(blocks(MODEL, "json")[0])
    line, _, file = blocks(MODEL, "sh")[0].replace("\\\n", "").partition(" > ")
    done = run(line)
    assert (done.exit_code, file.strip()) == (0, "mine.toml")
    assert done.stdout == blocks(MODEL, "toml")[0]


@pytest.mark.slow
def test_the_program_that_is_captured(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(blocks(PROGRAM, "python")[0])
    line = next(text for text in PROGRAM.read_text().splitlines() if text.startswith("attnbench capture "))
    words = shlex.split(line.replace("-- python", f"-- {sys.executable}"))[1:]
    done = subprocess.run([sys.executable, "-m", "attnbench", *words], cwd=tmp_path, check=False)
    assert done.returncode == 0
    assert (tmp_path / "mine.toml").read_text() == blocks(PROGRAM, "toml")[0]


@pytest.mark.slow
def test_the_whole_way_of_a_model(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    _, walk = PROGRAM.read_text().split("## The whole way")
    model, installed = re.findall(r"^```python\n(.*?)^```$", walk, re.DOTALL | re.MULTILINE)
    (tmp_path / "model.py").write_text(model)
    (tmp_path / "installed.py").write_text(installed)
    (commands,) = re.findall(r"^```sh\n(.*?)^```$", walk, re.DOTALL | re.MULTILINE)
    for line in commands.splitlines():
        words = [sys.executable if word == "python" else word for word in shlex.split(line)]
        if words[0] == "attnbench":
            words = [sys.executable, "-m", *words]
        subprocess.run(words, cwd=tmp_path, check=True)
    assert read_suite(tmp_path / "decoder.toml").counts == (4,), "and installed.py held the logits together"


ROWS = re.findall(
    # A bar in a cell is written with a backslash before it.
    r"^\| ([^|]+) \| `(attnbench [^|]+)` \| (`.+`) \|$",
    TUTORIALS.read_text(),
    re.MULTILINE,
)


@cache
def explained(line: str) -> str:
    result = run(line)
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())


def test_there_are_rows_of_tutorials() -> None:
    assert len(ROWS) > 35


@pytest.mark.parametrize(("step", "line", "digits"), ROWS, ids=[f"{row[0]}-{row[1]}" for row in ROWS])
def test_a_row_of_a_tutorial(step: str, line: str, digits: str) -> None:
    """The digits are those of the tutorials, or worked out by hand from the integers of the example."""
    for fragment in re.findall(r"`([^`]+)`", digits):
        assert fragment.replace("\\|", "|") in explained(line), step


NAMES = {point.value for point in entry_points(group="pytest11")}
PLUGIN = [] if "attnbench.pytest_plugin" in NAMES else ["-p", "attnbench.pytest_plugin"]
QUIET = ["-p", "no:xdist", "-p", "no:cacheprovider", "--strict-markers"]
PYTEST_LINES = re.findall(r"^    (pytest .+)$", PYTEST.read_text().replace("\\\n", ""), re.MULTILINE)


@pytest.mark.slow
@pytest.mark.usefixtures("not_in_xdist")
def test_the_tests_of_the_document_on_pytest_pass(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(*blocks(PYTEST, "python"))
    result = pytester.runpytest_subprocess(*PLUGIN, *QUIET, "--benchmark-max-time=0.02", "-W", "error", "-v")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["*test_speed?scaled_dot/H2-L32-D16-sdpa_flash? PASSED*"])


@pytest.mark.usefixtures("not_in_xdist")
@pytest.mark.parametrize("line", PYTEST_LINES)
def test_lines_for_pytest_make_tests_and_run_no_others(line: str, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_of_the_project(): ...")
    words = shlex.split(line)[1:]
    result = pytester.runpytest_subprocess(*PLUGIN, *QUIET, *words, "--collect-only", "-q")
    assert result.ret == 0, result.stderr.str()
    result.stdout.fnmatch_lines(["attnbench::test_attention*sdpa_flash?"])
    result.stdout.no_fnmatch_line("*test_of_the_project*")


def test_there_are_lines_for_pytest() -> None:
    assert len(PYTEST_LINES) == 2
