"""Sides of interpreters: found, asked, and refused in one sentence where they can't be."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from distributions import write_distribution
from kernel_project import Install, plugin

import attnbench
from attnbench.live.sides import Side, ask, interpreter, side_of_python, two_sides
from attnbench.types.errors import BadInput

HERE = (sysconfig.get_path("purelib"), str(Path(attnbench.__file__).parents[1]))


def environment(folder: Path, *, paths: tuple[str, ...] = HERE) -> Path:
    """An environment of its own that also finds what is in these folders."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "shared.pth").write_text("".join(f"{path}\n" for path in paths))
    return site


def install(site: Path, name: str, source: str, version: str) -> None:
    write_distribution(site, name, {"attnbench": {name: name}}, {f"{name}.py": source}, version=version)


def test_two_environments_are_measured_each_with_what_it_has(
    project: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = project("mini_a")
    there.commit(mini_a=plugin("one"))
    monkeypatch.delenv("PYTHONPATH")
    old, new = tmp_path / "old", tmp_path / "new"
    install(environment(old), "mini_v", plugin("one", "gone"), "1.0")
    install(environment(new), "mini_v", plugin("one", "new"), "2.0")
    monkeypatch.chdir(there.repo)
    there.write(mini_v=plugin("of_the_folder"))
    with two_sides(None, None, str(old), f"{new}/bin/python", there.registry(), Path()) as sides:
        backends = sides.backends()
        assert {"one", "gone"} <= backends["base"]
        assert {"one", "new"} <= backends["head"]
        assert not {"new", "of_the_folder"} & backends["base"]
        assert (sides.base.name, sides.base.python) == (str(old), f"{old}/bin/python")
        versions = sides.facts["base"].versions["mini_v"], sides.facts["head"].versions["mini_v"]
        assert versions == ("1.0", "2.0")
        assert sides.facts["head"].versions["python"] == ".".join(map(str, sys.version_info[:3]))


def test_a_commit_is_measured_with_another_interpreter(project: Install, tmp_path: Path) -> None:
    there = project("mini_b")
    there.commit(mini_b=plugin("one"))
    environment(tmp_path / "other")
    with two_sides("HEAD", "HEAD", None, str(tmp_path / "other"), there.registry(), there.repo) as sides:
        assert sides.head.python == str(tmp_path / "other" / "bin" / "python")
        assert sides.backends() == {"base": {"one"}, "head": {"one"}}


def test_an_interpreter_without_attnbench_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    environment(tmp_path / "bare", paths=())
    side = side_of_python("head", str(tmp_path / "bare"))
    with pytest.raises(BadInput, match=r"the head side, .* has no attnbench: .*pip install attnbench"):
        ask(side, ())


ANSWERS = {
    "import sys; sys.exit('No module named msgspec')": "can't be asked .*: No module named msgspec",
    "raise SystemExit(3)": "exit status 3",
    "print('hello')": "doesn't answer what is asked",
    "print('{}')": "doesn't answer what is asked",
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)": "exit status -9",
}


@pytest.mark.parametrize("code", ANSWERS)
def test_what_answers_something_else_is_refused(tmp_path: Path, code: str) -> None:
    (tmp_path / "attnbench" / "live").mkdir(parents=True)
    for name in ("__init__", "live/__init__"):
        (tmp_path / "attnbench" / f"{name}.py").write_text("")
    (tmp_path / "attnbench" / "live" / "facts.py").write_text(code)
    side = Side("base", "old", sys.executable, (str(tmp_path),), tree=str(tmp_path))
    with pytest.raises(BadInput, match=f"the base side, old, .*{ANSWERS[code]}"):
        ask(side, ())


def fake(folder: Path, program: bytes) -> Side:
    """The side of an interpreter that is this program."""
    (folder / "python").write_bytes(program)
    (folder / "python").chmod(0o755)
    return Side("base", "fake", str(folder / "python"))


def test_one_that_never_answers_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnbench.live.sides._ANSWER_WITHIN_S", 0.2)
    with pytest.raises(BadInput, match=r"did not load within 0\.2 s"):
        ask(fake(tmp_path, b"#!/bin/sh\nexec sleep 600\n"), ())


def test_what_a_side_leaves_running_is_waited_for_by_nobody_and_ended(tmp_path: Path) -> None:
    alive, late = tmp_path / "alive", tmp_path / "late"
    leave = f"exec 9> {alive}; flock -s 9; (sleep 20; touch {late}) &\nexit 3\n"
    with pytest.raises(BadInput, match="exit status 3"):
        ask(fake(tmp_path, f"#!/bin/sh\n{leave}".encode()), ())
    with alive.open() as all_are_gone:
        fcntl.flock(all_are_gone, fcntl.LOCK_EX)
    assert not late.exists()


def test_what_can_not_be_started_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="can't be started"):
        ask(fake(tmp_path, b"\x7fELF"), ())


def test_an_interpreter_is_a_path_an_environment_or_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)  # a link is not followed: it is what makes the environment
    monkeypatch.chdir(tmp_path)
    for word in (str(python), "env", "env/bin/python", "./env/bin/python"):
        assert interpreter(word) == str(python)
    monkeypatch.setenv("PATH", str(python.parent))
    assert interpreter("python") == str(python)


@pytest.mark.parametrize("word", ["nowhere/bin/python", "no-such-python", "", ".", "plain.txt"])
def test_what_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain.txt").write_text("no program")
    with pytest.raises(BadInput, match="no interpreter"):
        interpreter(word)
