"""What docs/your-model.md shows is what the command prints."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from attnbench.cases.suites import read_suite
from attnbench.cli import attnbench

TEXT = (Path(__file__).parents[2] / "docs" / "your-model.md").read_text()


def block(language: str, place: int = 0) -> str:
    found: list[str] = re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    return found[place]


def test_the_suite_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(block("json"))
    line, _, file = block("sh").replace("\\\n", "").partition(" > ")
    done = CliRunner().invoke(attnbench, shlex.split(line)[1:], prog_name="attnbench")
    assert (done.exit_code, file.strip()) == (0, "mine.toml")
    assert done.stdout == block("toml")


def test_the_program_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(block("python"))
    line = next(text for text in TEXT.splitlines() if text.startswith("attnbench capture "))
    words = shlex.split(line.replace("-- python", f"-- {sys.executable}"))[1:]
    done = subprocess.run([sys.executable, "-m", "attnbench", *words], cwd=tmp_path, check=False)
    assert done.returncode == 0
    assert (tmp_path / "mine.toml").read_text() == block("toml", 1)


@pytest.mark.slow
def test_the_whole_way_of_the_page(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    _, walk = TEXT.split("## The whole way")
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
