"""The environments of .ci/versions hold every bound that a package states, and the workflow tries each."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import versions
from versions import ROOT, Environment, Outcome, Place, Step

WORKFLOW = (ROOT / ".github" / "workflows" / "versions.yml").read_text()
PACKAGES = [ROOT, *sorted(path.parent for path in (ROOT / "plugins").glob("*/pyproject.toml"))]
TABLE = {environment.name: environment for environment in versions.environments()}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_each_bound_is_held_in_an_environment_with_the_package(package: Path) -> None:
    bounds = versions.needed(package)
    assert None not in bounds.values(), "a package without a bound"
    having = [one for one in TABLE.values() if package in versions.packages(one)]
    for name, version in bounds.items():
        assert any(_is_held(name, version, one) for one in having), f"{name}>={version} is tried nowhere"
    assert "newest" in {one.name for one in having}


def _is_held(name: str, version: str | None, environment: Environment) -> bool:
    lines = dict(line.split("==") for line in versions.held(environment))
    return name in lines and _plain(lines[name]) == _plain(str(version))


def _plain(version: str) -> list[int]:
    """2.8 and 2.8.0 are the same version."""
    numbers = [int(number) for number in version.split(".")]
    return numbers + [0] * (3 - len(numbers))


def test_the_workflow_tries_each_environment_with_its_python() -> None:
    tried = dict(re.findall(r'- \{ name: ([\w. ]+), python: "([\d.]+)" \}', WORKFLOW))
    assert tried == {one.name: one.python for one in TABLE.values()}


def test_the_newest_environment_holds_nothing_that_users_need() -> None:
    lines = {line.partition("==")[0] for line in versions.held(TABLE["newest"])}
    assert "pytest" in lines
    assert lines.isdisjoint(versions.needed(ROOT))


def test_an_environment_without_its_python_is_left_out_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        versions, "environments", lambda: [Environment("old", "3.1"), Environment("new", "3.2")]
    )
    monkeypatch.setattr(versions, "interpreter", lambda version: "python" if version == "3.2" else None)
    steps = (Step("install", True, "passed"), Step("run", False, "exit status 3"))
    monkeypatch.setattr(
        versions, "tried", lambda place, keep: Outcome("new", "3.2.0", {}, steps, "2026-11-27")
    )
    assert versions.main([str(tmp_path)]) == 1
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first == "Python 3.1 is not on PATH, so old is left out."
    assert last == "failed: new; left out: old"


def test_outcomes_are_stored_in_the_order_of_the_table_beside_the_others(tmp_path: Path) -> None:
    path = tmp_path / "versions.json"
    versions.store([Outcome("newest", "3.13.0", {}, (), "2026-11-26")], path)
    versions.store([Outcome("oldest", "3.11.0", {"torch": "2.6.0"}, (), "2026-11-27")], path)
    found = versions.json.loads(path.read_text())
    assert [one["name"] for one in found] == ["oldest", "newest"]
    assert found[0]["versions"] == {"torch": "2.6.0"}


def test_again_goes_through_what_failed_and_stores_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[tuple[str, bool]] = []

    def step(name: str, passes: Callable[[Place], bool]) -> Callable[[Place], Step]:
        def run(place: Place) -> Step:
            ran.append((name, place.again))
            return Step(name, passes(place), "")

        return run

    def install(place: Place) -> Step:
        (place.folder / "venv" / "bin").mkdir(parents=True)
        (place.folder / "venv" / "bin" / "python").symlink_to(sys.executable)
        return Step("install", True, "passed")

    steps = {"run": step("run", lambda _: True), "tests": step("tests", lambda place: place.again)}
    monkeypatch.setattr(versions, "environments", lambda: [Environment("torch 2.8", "3.2")])
    monkeypatch.setattr(versions, "interpreter", lambda version: "python")
    monkeypatch.setattr(versions, "install", install)
    monkeypatch.setattr(versions, "STEPS", steps)
    monkeypatch.setattr(Place, "call", lambda *words: 0)
    assert versions.main([str(tmp_path), "--keep"]) == 1
    assert versions.main([str(tmp_path), "--again"]) == 0
    assert ran == [("run", False), ("tests", False), ("tests", True)]
    assert [path.name for path in tmp_path.iterdir()] == ["torch-2.8"], "compilers refuse a blank"
    with pytest.raises(SystemExit):
        versions.main([str(tmp_path), "--again", "--store"])
    assert "a stored outcome is of all steps" in capsys.readouterr().err


def test_again_needs_an_environment_that_was_kept(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="try it with --keep first"):
        versions.tried_again(Place(Environment("new", "3.2"), "python", tmp_path / "new", again=True))
