"""What the README and the documents show works, word for word."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from attnbench.cases.ids import case_id, parse_case
from attnbench.cases.suites import read_suite
from attnbench.cli import attnbench as attnbench_cli

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE)


def shell_lines(path: Path) -> list[str]:
    indented = [line for line in path.read_text().splitlines() if line.startswith("    attnbench ")]
    fenced = [line for block in blocks(path, "sh") for line in block.replace("\\\n", "").splitlines()]
    parts = [
        part for line in indented + fenced for part in re.split(r"#|\s{3,}", line.strip())[0].split("&&")
    ]
    return [part.strip() for part in parts if part.strip().startswith("attnbench ")]


def test_the_first_python_block_runs_as_it_stands(tmp_path: Path) -> None:
    script = blocks(ROOT / "README.md", "python")[0]
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "bmm" in done.stdout


def test_the_plugin_of_the_readme_is_right_and_declines_masks(tmp_path: Path) -> None:
    (tmp_path / "my_kernel.py").write_text(blocks(ROOT / "README.md", "python")[1])
    cases = ["attention/scaled_dot/H2-L16-D8", "attention/scaled_dot/H2-L16-D8/causal"]
    words = ["--plugin", str(tmp_path / "my_kernel.py"), "--backend", "mine", "--format", "json"]
    done = CliRunner().invoke(attnbench_cli, ["check", *cases, *words, "--out", str(tmp_path)])
    plain, causal = json.loads(done.stdout)
    assert (plain["status"], causal["status"]) == ("ok", "unsupported"), done.stderr
    assert causal["reason"] == "no masks yet"


def test_the_suite_of_the_readme_is_one(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(blocks(ROOT / "README.md", "toml")[0])
    suite = read_suite(tmp_path / "mine.toml")
    assert len(suite.cases) == 3
    assert suite.cases[2].mask.window == 512


PRINTED = (
    "Your output equals the known mistake",  # by a check
    '"""All that the backend `my_kernel` declares',  # by attnbench new, as is the next one
    "attnbench run attention/scaled_dot/H8-L1024-D64 --backend eager",
    "q·k / √D − slope·|p − j|",  # a formula
)
"""Lines that aren't ours to break."""


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.stem)
def test_no_code_scrolls_sideways_beside_the_table_of_contents(path: Path) -> None:
    text = path.read_text()
    fenced = "".join(re.findall(r"^ *```\w+\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)).splitlines()
    indented = [line[4:] for line in text.splitlines() if re.match(r"    (attnbench|pytest) ", line)]
    # What a page of 1280 pixels has room for.
    assert [line for line in fenced + indented if len(line) > 80 and not line.startswith(PRINTED)] == []


@pytest.mark.parametrize("line", dict.fromkeys(line for path in DOCUMENTS for line in shell_lines(path)))
def test_shell_lines_name_commands_and_options_that_exist(line: str) -> None:
    words = shlex.split(line)[1:]
    command: click.Command = attnbench_cli
    context = click.Context(command, info_name="attnbench")
    while isinstance(command, click.Group):
        name, command, words = command.resolve_command(context, words)
        assert command is not None
        context = click.Context(command, info_name=name, parent=context)
    parsed = command.make_context(command.name, words, parent=context.parent)
    assert parsed.params


def test_the_ids_of_the_readme_are_the_same_case() -> None:
    short, whole = "attention/dot/H1-L16-D8", "attention/dot/B1-H1-Lq16-Lk16-D8/none/float32/cpu/forward"
    assert short in (ROOT / "README.md").read_text()
    assert whole in (ROOT / "README.md").read_text()
    assert case_id(parse_case(short)) == whole


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_files_that_are_named_are_there(path: Path) -> None:
    for named in re.findall(r"`((?:attnbench|tests|docs)/[\w/]+\.(?:py|md))`", path.read_text()):
        assert (ROOT / named).exists(), named


def rows_of_tables(text: str) -> list[list[str]]:
    """The lines of each table outside of blocks of code."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return [found[0].splitlines() for found in re.finditer(r"(?:^\|.*\n)+", prose, re.MULTILINE)]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_tables_have_as_many_cells_in_each_row(path: Path) -> None:
    """GitHub ends a cell at each bar that has no backslash, within code as well: a formula would be cut."""
    for table in rows_of_tables(path.read_text()):
        assert table[0].strip("| "), "it begins with an empty line"
        cells = [len(re.split(r"(?<!\\)\|", line)) for line in table]
        assert set(cells) == {cells[0]}, table[cells.index(next(n for n in cells if n != cells[0]))]
