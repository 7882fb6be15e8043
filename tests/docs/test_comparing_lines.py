"""What the document on comparing shows runs as it stands."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from attnbench.cli import attnbench
from attnbench.compare.gate import Gate, read_gate
from attnbench.reports.compared import COLUMNS
from attnbench.types.compared import OUTCOMES

sys.path.insert(0, str(Path(__file__).parents[1] / "stored"))
from made_sides import BESIDE, SHORT, times, write_run

TEXT = (Path(__file__).parents[2] / "docs" / "comparing.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    names = ("sdpa_flash", "flex", "numpy", *BESIDE)
    monkeypatch.chdir(tmp_path)
    for side, month in (("base", 1), ("new", 2)):
        additive = SHORT.replace("dot", "additive")
        cells = {
            case: {name: times(1e6 * (1 + i)) for i, name in enumerate(names)} for case in (SHORT, additive)
        }
        write_run(tmp_path / f"{side}.jsonl", cells=cells, started=f"2026-0{month}-01T00:00:00+00:00")
    (tmp_path / "gate.toml").write_text(blocks("toml")[0])
    return tmp_path


def run(line: str) -> Result:
    command, *words = shlex.split(line)
    assert command == "attnbench"
    return CliRunner().invoke(attnbench, words, prog_name="attnbench")


@pytest.mark.parametrize("line", blocks("sh")[0].splitlines())
def test_every_line_runs_and_holds(folder: Path, line: str) -> None:
    result = run(line)
    assert result.exit_code == 0, result.stdout + result.stderr
    assert result.stdout


def test_the_gate_of_the_document_says_what_stands_beside_it(folder: Path) -> None:
    gate = read_gate(folder / "gate.toml", Gate())
    assert gate.delta_of("attention/additive/x", "mine") == 0.1
    assert gate.delta_of("attention/dot/x", "mine") == 0.03
    assert gate.fail_on_of("attention/dot/x", "numpy") == ("mismatch",)
    assert gate.ignored("attention/dot/x", "flex")


def test_every_column_verdict_and_key_is_explained(folder: Path) -> None:
    for word in (*COLUMNS, *OUTCOMES):
        assert f"`{word}`" in TEXT, word
    data = json.loads(run("attnbench compare base.jsonl new.jsonl --format json").stdout)
    for key in data:
        assert f"`{key}`" in TEXT, key
