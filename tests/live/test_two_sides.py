"""Both sides of a comparison, made of real repositories and asked for what they have."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from kernel_project import Install, Project, plugin, run_git

from attnbench.live.sides import TwoSides, two_sides
from attnbench.types.errors import BadInput


def sides_of(project: Project, ref: str | None = "HEAD~", head: str | None = "HEAD") -> TwoSides:
    with two_sides(ref, head, None, None, project.registry(), project.repo) as sides:
        return sides


def test_each_side_has_the_code_of_its_commit(project: Install) -> None:
    there = project("mini_a")
    base = there.commit(mini_a=plugin("one", "gone"))
    head = there.commit(mini_a=plugin("one", "new"))
    there.write(mini_a=plugin("one", "uncommitted"))
    with two_sides("HEAD~", "HEAD", None, None, there.registry(), there.repo) as sides:
        assert (sides.base.commit, sides.head.commit) == (base, head)
        assert sides.backends() == {"base": {"one", "gone"}, "head": {"one", "new"}}
        for side, facts in ((sides.base, sides.base_facts), (sides.head, sides.head_facts)):
            assert Path(facts.files["mini_a"]) == Path(side.tree) / "mini_a.py"
            assert not Path(side.tree).is_relative_to(there.repo)
        assert len(sides.base.environment()["PYTHONPATH"]) == len(sides.head.environment()["PYTHONPATH"])
        assert sides.alike() == set()
    assert not Path(sides.base.tree).exists()
    assert not Path(sides.head.tree).exists()


def test_a_point_is_the_users_tree_as_it_is(project: Install) -> None:
    there = project("mini_b")
    base = there.commit(mini_b=plugin("one"))
    there.write(mini_b=plugin("one", "uncommitted"))
    sides = sides_of(there, "main", ".")
    assert sides.head.tree == str(there.repo)
    assert sides.backends() == {"base": {"one"}, "head": {"one", "uncommitted"}}
    assert sides.manifest()["head"]["uncommitted"]
    assert (sides.base.name, sides.head.name) == (f"main ({base[:9]})", f"uncommitted work on {base[:9]}")


def test_the_same_commit_twice_is_two_copies(project: Install) -> None:
    there = project("mini_c")
    there.commit(mini_c=plugin("one"))
    commit = run_git(there.repo, "rev-parse", "HEAD")
    sides = sides_of(there, commit, "main")
    assert sides.base.commit == sides.head.commit == commit
    assert (sides.base.name, sides.head.name) == (commit[:9], f"main ({commit[:9]})")
    assert sides.base_facts.files != sides.head_facts.files


def test_a_plugin_that_a_commit_does_not_have_yet_is_missing_and_not_taken_from_elsewhere(
    project: Install,
) -> None:
    there = project("mini_d", "mini_e")
    there.commit(mini_d=plugin("one"))
    there.commit(mini_e=plugin("two"))
    sides = sides_of(there)
    assert sides.backends() == {"base": {"one"}, "head": {"one", "two"}}
    assert any("has no module mini_e" in note and "base" in note for note in sides.notes)
    assert len(sides.notes) == 1


def test_a_module_that_a_plugin_imports_comes_from_its_side_too(project: Install) -> None:
    above = "from mini_help import NAME"
    body = plugin("one", above=above).replace('"of a test"', "NAME").replace("name=name", "name=NAME")
    there = project("mini_f")
    there.commit(mini_f=body, mini_help="NAME = 'of_base'")
    there.commit(mini_help="NAME = 'of_head'")
    assert sides_of(there).backends() == {"base": {"of_base"}, "head": {"of_head"}}


def test_what_a_commit_lacks_of_a_plugin_is_not_found_in_the_users_tree(project: Install) -> None:
    there = project("mini_g")
    there.commit(mini_g=plugin("one", above="import mini_later"))
    there.commit(mini_later="")
    sides = sides_of(there)
    assert sides.backends() == {"base": set(), "head": {"one"}}
    (note,) = sides.notes
    assert "mini_later" in note
    assert "files that git ignores" in note


def test_a_package_in_a_source_folder(project: Install) -> None:
    there = project("mini_h.plugins.all", root="src")
    there.commit(
        src__mini_h____init__="", src__mini_h__plugins____init__="", src__mini_h__plugins__all=plugin("one")
    )
    there.commit(src__mini_h__plugins__all=plugin("two"))
    sides = sides_of(there)
    assert sides.backends() == {"base": {"one"}, "head": {"two"}}
    assert sides.base.paths[0] == f"{sides.base.tree}/src"


def test_a_namespace_package_with_a_part_elsewhere(project: Install) -> None:
    there = project("mini_i.fast")
    (there.site / "mini_i").mkdir()
    (there.site / "mini_i" / "other.py").write_text("")
    there.commit(mini_i__fast=plugin("one"))
    there.commit(mini_i__fast=plugin("two"))
    assert sides_of(there).backends() == {"base": {"one"}, "head": {"two"}}


def test_from_a_folder_below_and_from_a_worktree_of_the_users(project: Install, tmp_path: Path) -> None:
    there = project("mini_j")
    there.commit(mini_j=plugin("one"))
    below = there.repo / "docs"
    below.mkdir()
    with two_sides("HEAD", ".", None, None, there.registry(), below) as sides:
        assert sides.head.tree == str(there.repo)


def test_what_is_not_in_the_repository_is_alike(project: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    there = project("mini_k", "mini_outside")
    there.commit(mini_k=plugin("one"))
    (there.site / "mini_outside.py").write_text(plugin("theirs"))
    sides = sides_of(there, "HEAD", "HEAD")
    assert sides.alike() == {"theirs"}
    assert sides.base_facts.files["mini_outside"] == sides.head_facts.files["mini_outside"]


@pytest.mark.parametrize("words", [("HEAD", "HEAD"), ("HEAD", ".")])
def test_where_nothing_is_imported_from_the_repository_it_is_refused(
    project: Install, words: tuple[str, str], tmp_path: Path
) -> None:
    there = project("mini_l")
    (there.site / "mini_l.py").write_text(plugin("one"))
    there.commit(other="")
    with pytest.raises(BadInput, match="both sides would be the same code") as failure:
        sides_of(there, *words)
    assert f"mini_l ({there.site / 'mini_l.py'})" in str(failure.value)
    assert "--ref-python" in str(failure.value)
    assert "pip install -e ." in str(failure.value)


def test_the_same_words_twice_are_refused(project: Install) -> None:
    there = project("mini_m")
    there.commit(mini_m=plugin("one"))
    with pytest.raises(BadInput, match="user's tree"):
        sides_of(there, ".", ".")
    with pytest.raises(BadInput, match="same code"):
        sides_of(there, None, None)
    with (
        pytest.raises(BadInput, match="same code"),
        two_sides(None, None, sys.executable, None, there.registry(), there.repo),
    ):
        pass


def test_a_commit_against_what_is_installed(project: Install) -> None:
    """Which is the user's tree here, so that code of a worktree is held against it."""
    there = project("mini_n")
    there.commit(mini_n=plugin("one"))
    there.write(mini_n=plugin("two"))
    sides = sides_of(there, "HEAD", None)
    assert sides.backends() == {"base": {"one"}, "head": {"two", *sides.head_facts.backends}}
    assert sides.head.commit == ""
    assert sides.head.name == "what is installed here"


def test_a_plugin_that_is_broken_at_one_commit_says_so(project: Install) -> None:
    there = project("mini_o")
    there.commit(mini_o="raise RuntimeError('half done')")
    there.commit(mini_o=plugin("one"))
    sides = sides_of(there)
    assert sides.backends() == {"base": set(), "head": {"one"}}
    assert any("half done" in note for note in sides.notes)


def test_what_plugins_print_does_not_stand_in_the_answer(project: Install) -> None:
    there = project("mini_p")
    shout = "import os\nprint('loud')\nos.write(1, b'louder')"
    there.commit(mini_p=plugin("one", above=shout))
    assert sides_of(there, "HEAD", "HEAD").backends()["base"] == {"one"}


def test_the_users_folder_is_not_where_a_side_imports_from(
    project: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``python -m`` puts the working folder first, which is the repository's where people call this."""
    there = project("mini_q")
    there.commit(mini_q=plugin("one"))
    there.write(mini_q=plugin("two"))
    registry = there.registry()
    monkeypatch.chdir(there.repo)
    with two_sides("HEAD", ".", None, None, registry, Path()) as sides:
        assert sides.backends() == {"base": {"one"}, "head": {"two"}}


def test_a_submodule_is_no_code_of_the_repository(project: Install, tmp_path: Path) -> None:
    there = project("mini_r", root="inner")
    inner = tmp_path / "inner"
    inner.mkdir()
    run_git(inner, "init", "--quiet")
    (inner / "mini_r.py").write_text(plugin("one"))
    run_git(inner, "add", "--all")
    run_git(inner, "commit", "--quiet", "--message", "a start")
    run_git(
        there.repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "inner"
    )
    there.commit()
    with pytest.raises(BadInput, match="both sides would be the same code"):
        sides_of(there, "HEAD", "HEAD")
