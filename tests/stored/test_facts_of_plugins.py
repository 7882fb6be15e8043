"""What plugins state of the machine is compared like all else, and has no weight."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner
from made_sides import ENVIRONMENT, write_run

from attnbench.cli import attnbench
from attnbench.compare.stored import compare_sides
from attnbench.results.ours import read_ours


def run(path: Path, **stated: object) -> Path:
    environment = {"plugin_facts": {"attnbench-mini": stated}} if stated else {}
    return write_run(path, environment=environment)


def test_they_are_facts_under_the_name_of_their_plugin(tmp_path: Path) -> None:
    (told,) = read_ours(run(tmp_path / "a.jsonl", turbo=True, unknown=None, cpu="theirs"))
    assert told.environment["plugin attnbench-mini: turbo"] is True
    assert told.environment["plugin attnbench-mini: cpu"] == "theirs"
    assert told.environment["cpu"] == ENVIRONMENT["cpu"]
    assert "plugin attnbench-mini: unknown" not in told.environment
    assert "plugin_facts" not in told.environment


def test_a_difference_is_told_and_stops_nothing(tmp_path: Path) -> None:
    base = read_ours(run(tmp_path / "a.jsonl", turbo=True, only_here="x"))
    new = read_ours(run(tmp_path / "b.jsonl", turbo=False))
    found = {d.fact: (d.base, d.new, d.matters) for d in compare_sides(base, new).differences}
    assert found == {
        "plugin attnbench-mini: turbo": ("True", "False", False),
        "plugin attnbench-mini: only_here": ("x", "not told", False),
    }


def test_compare_prints_it(tmp_path: Path) -> None:
    sides = [run(tmp_path / "a.jsonl", turbo=True), run(tmp_path / "b.jsonl", turbo=False)]
    result = CliRunner().invoke(attnbench, ["compare", *map(str, sides)], prog_name="attnbench")
    assert result.exit_code == 0, result.stderr
    assert "plugin attnbench-mini: turbo (True → False)" in " ".join(result.stdout.split())
