"""Where modules are imported from, without importing them, and which of them a worktree can stand for."""

from __future__ import annotations

import sys
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path

import pytest
from kernel_project import Install, run_git

from attnbench.live.imported import imported, measured_modules
from attnbench.live.repository import repository_of
from attnbench.types.errors import BadInput


class Finder:
    """What editable installs of some build tools put on the import path: a name, and the file it leads to."""

    def __init__(self, name: str, place: Path) -> None:
        self.name, self.place = name, place

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        folder = [str(self.place)] if self.place.is_dir() else None
        file = self.place / "__init__.py" if folder else self.place
        return spec_from_file_location(name, file, submodule_search_locations=folder)


def names_of(project_repo: Path, *modules: str) -> list[str]:
    return [module.name for module in measured_modules(modules, repository_of(project_repo))]


def test_modules_are_found_and_not_imported(project: Install) -> None:
    there = project("mini_a1")
    there.commit(
        mini_a1="raise SystemExit", mini_a2____init__="raise SystemExit", mini_a3__inner="raise SystemExit"
    )
    repo = there.repo
    assert imported("mini_a1").locations == (repo / "mini_a1.py",)
    assert imported("mini_a2").locations == (repo / "mini_a2",)
    assert imported("mini_a3").locations == (repo / "mini_a3",)
    assert imported("mini_a4").locations == ()
    assert imported("sys").locations == ()
    assert names_of(repo, "mini_a1", "mini_a2.x", "mini_a2.y", "mini_a3.inner", "mini_a4", "json.tool") == [
        "mini_a1",
        "mini_a2",
        "mini_a3",
        "mini_a4",  # nowhere now: another commit may have it
    ]
    assert not any(name.startswith("mini_a") for name in sys.modules)


def test_editable_installs_by_a_link_and_by_a_finder(
    project: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = project("mini_c1", "mini_c2", root="nowhere")
    there.commit(src__mini_c1____init__="", mini_c2="")
    (there.site / "mini_c1").symlink_to(there.repo / "src" / "mini_c1")
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder("mini_c2", there.repo / "mini_c2.py")])
    found = measured_modules(["mini_c1", "mini_c2"], repository_of(there.repo))
    assert [module.locations for module in found] == [
        (there.repo / "src" / "mini_c1",),
        (there.repo / "mini_c2.py",),
    ]


def test_a_folder_of_another_name_is_refused(project: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    there = project("mini_d")
    there.commit(lib____init__="")
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder("mini_d", there.repo / "lib")])
    with pytest.raises(BadInput, match="not named like the module") as failure:
        names_of(there.repo, "mini_d")
    assert "--head-python" in str(failure.value)


def test_what_is_installed_within_the_repository_is_no_part_of_it(
    project: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = ".venv/lib/python3.11/site-packages"
    there = project("mini_e", root=inside)
    folder = there.repo / inside
    folder.mkdir(parents=True)
    (folder / "mini_e.py").write_text("")
    there.commit(mini_f="")
    monkeypatch.syspath_prepend(there.repo)
    assert names_of(there.repo, "mini_e", "mini_f") == ["mini_f"]
    with pytest.raises(BadInput, match=r"no plugin comes from the repository .*mini_e \(/"):
        names_of(there.repo, "mini_e")


def test_a_repository_that_is_the_package_itself(project: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    there = project("kernels")
    there.commit(__init__="")
    monkeypatch.syspath_prepend(there.repo.parent)
    with pytest.raises(BadInput, match="both sides would be the same code"):
        names_of(there.repo, "kernels")


@pytest.mark.parametrize("place", ["mini_h/_C{ending}", "mini_h/deep/er/_C{ending}"])
def test_compiled_code_that_git_does_not_have_is_refused(project: Install, place: str) -> None:
    there = project("mini_h")
    (there.repo / ".gitignore").write_text("*.so\n")
    there.commit(mini_h____init__="")
    assert names_of(there.repo, "mini_h") == ["mini_h"]
    path = there.repo / place.format(ending=EXTENSION_SUFFIXES[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    with pytest.raises(BadInput, match="mini_h has compiled code that git doesn't have") as failure:
        names_of(there.repo, "mini_h")
    assert str(path.relative_to(there.repo)) in str(failure.value)
    assert "--ref-python" in str(failure.value)
    run_git(there.repo, "add", "--force", str(path))
    assert names_of(there.repo, "mini_h") == ["mini_h"]


def test_a_module_that_is_compiled_itself(project: Install) -> None:
    there = project("mini_i")
    there.commit(other="")
    (there.repo / f"mini_i{EXTENSION_SUFFIXES[0]}").write_bytes(b"")
    with pytest.raises(BadInput, match="compiled code"):
        names_of(there.repo, "mini_i")
