"""Both sides of a comparison, made of real repositories and asked for what they have."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kernel_project import Install, Project, installed_project, plugin

from attnbench.cases.ids import parse_case
from attnbench.live.measure import choose_backends
from attnbench.live.sides import TwoSides, two_sides
from attnbench.plugins.registry import load_registry
from attnbench.types.errors import BadInput

HELPED = plugin("x", above="from mini_help import NAME").replace("name=name", "name=NAME")
SHOUT = "import os\nprint('loud')\nos.write(1, b'louder')"
BASE_FILES = {
    "mini_a": plugin("one", "gone"),
    "mini_f": HELPED,
    "mini_help": "NAME = 'of_base'",
    "mini_g": plugin("needs_later", above="import mini_later"),
    "src__mini_h____init__": "",
    "src__mini_h__plugins____init__": "",
    "src__mini_h__plugins__all": plugin("deep_base"),
    "mini_i__fast": plugin("spaced_base"),
    "mini_o": "raise RuntimeError('half done')",
    "mini_p": plugin("loud", above=SHOUT),
}
HEAD_FILES = {
    "mini_a": plugin("one", "new"),
    "mini_e": plugin("two"),
    "mini_help": "NAME = 'of_head'",
    "mini_later": "",
    "src__mini_h__plugins__all": plugin("deep_head"),
    "mini_i__fast": plugin("spaced_head"),
    "mini_o": plugin("mended"),
}
MODULES = (
    "mini_a", "mini_e", "mini_f", "mini_g", "mini_h.plugins.all", "mini_i.fast", "mini_o", "mini_p",
    "mini_outside",
)  # fmt: skip


@dataclass(frozen=True)
class Compared:
    """Sides that were asked, and what was true of their trees while they were there."""

    project: Project
    sides: TwoSides
    base: str
    head: str
    trees_were_there: bool


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compared]:
    """The last two commits of a project in which most things happen, and another state in its files."""
    with pytest.MonkeyPatch.context() as patch:
        maker = installed_project(tmp_path_factory.mktemp("all"), MODULES, ("", "src"), patch)
        there = next(maker)
        (there.site / "mini_i").mkdir()
        (there.site / "mini_i" / "other.py").write_text("")
        (there.site / "mini_outside.py").write_text(plugin("theirs"))
        base, head = there.commit(**BASE_FILES), there.commit(**HEAD_FILES)
        there.write(mini_a=plugin("one", "uncommitted"))
        with two_sides("HEAD~", "HEAD", None, None, there.registry(), there.repo) as sides:
            trees = all(Path(side.tree).is_dir() for side in (sides.base, sides.head))
        yield Compared(there, sides, base, head, trees)
        next(maker, None)


def test_each_side_has_the_code_of_its_commit(compared: Compared) -> None:
    sides = compared.sides
    assert (sides.base.commit, sides.head.commit) == (compared.base, compared.head)
    assert {"one", "gone"} <= sides.backends()["base"]
    assert {"one", "new"} <= sides.backends()["head"]
    assert not {"new", "uncommitted"} & sides.backends()["base"]
    for side, facts in zip((sides.base, sides.head), sides.facts.values(), strict=True):
        assert Path(facts.files["mini_a"]) == Path(side.tree) / "mini_a.py"
        assert not Path(side.tree).is_relative_to(compared.project.repo)
        assert not Path(side.tree).exists()
    assert compared.trees_were_there
    assert len(sides.base.environment()["PYTHONPATH"]) == len(sides.head.environment()["PYTHONPATH"])


@pytest.mark.parametrize(
    ("module", "base", "head"),
    [
        ("mini_e", set(), {"two"}),  # not taken from elsewhere
        ("mini_f", {"of_base"}, {"of_head"}),  # what it imports comes from its side too
        ("mini_g", set(), {"needs_later"}),  # what the base lacks is not found in the user's tree
        ("mini_h.plugins.all", {"deep_base"}, {"deep_head"}),  # a package in a source folder
        ("mini_i.fast", {"spaced_base"}, {"spaced_head"}),  # a namespace with a part elsewhere
        ("mini_o", set(), {"mended"}),  # broken at one commit
        ("mini_p", {"loud"}, {"loud"}),  # its prints do not stand in the answer
        ("mini_outside", {"theirs"}, {"theirs"}),  # not in the repository
    ],
)
def test_backends_of_a_module(compared: Compared, module: str, base: set[str], head: set[str]) -> None:
    sides = compared.sides
    for facts, names in ((sides.facts["base"], base), (sides.facts["head"], head)):
        assert {name for name, one in facts.backends.items() if one.source.module == module} == names


def test_what_a_side_lacks_is_noted(compared: Compared) -> None:
    words = ("has no module mini_e", "files that git ignores", "half done")
    notes = compared.sides.notes
    assert len(notes) == 3
    assert all("the base side" in note for note in notes)
    assert all(any(word in note for note in notes) for word in words)
    assert any("mini_later" in note for note in notes)


def test_what_is_outside_of_the_repository_is_the_same_file(compared: Compared) -> None:
    base, head = compared.sides.facts["base"].files, compared.sides.facts["head"].files
    assert base["mini_outside"] == head["mini_outside"]
    assert base["mini_p"] != head["mini_p"]


def test_a_point_is_the_users_tree_as_it_is(project: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """``python -m`` puts the working folder first, which is the repository's where people call this."""
    there = project("mini_b")
    base = there.commit(mini_b=plugin("one"))
    there.write(mini_b=plugin("one", "uncommitted"), docs__below="")
    registry = there.registry()
    monkeypatch.chdir(there.repo)
    with two_sides("main", ".", None, None, registry, Path("docs")) as sides:
        assert sides.backends() == {"base": {"one"}, "head": {"one", "uncommitted"}}
    assert sides.head.tree == str(there.repo)
    assert sides.manifest()["head"]["uncommitted"]
    assert (sides.base.name, sides.head.name) == (f"main ({base[:9]})", f"uncommitted work on {base[:9]}")


def sides_of(project: Project, ref: str | None, head: str | None, python: str | None = None) -> TwoSides:
    with two_sides(ref, head, python, None, project.registry(), project.repo) as sides:
        return sides


def test_the_same_commit_twice_is_two_copies(project: Install) -> None:
    there = project("mini_c")
    commit = there.commit(mini_c=plugin("one"))
    sides = sides_of(there, commit, "main")
    assert sides.base.commit == sides.head.commit == commit
    assert (sides.base.name, sides.head.name) == (commit[:9], f"main ({commit[:9]})")
    assert sides.facts["base"].files != sides.facts["head"].files


def test_a_module_that_head_deletes_is_missing_there_also_as_the_only_one(project: Install) -> None:
    there = project("mini_r")
    there.commit(mini_r=plugin("one"))
    (there.repo / "mini_r.py").unlink()
    there.commit()
    sides = sides_of(there, "HEAD~", "HEAD")
    assert sides.backends() == {"base": {"one"}, "head": set()}
    assert list(sides.candidates()["one"]) == ["base", "head"]
    assert len(sides.notes) == 1
    assert sides.notes[0].startswith("the head side, HEAD (")
    assert sides.notes[0].endswith(" has no module mini_r")


FINDER = """
import sys
from importlib.util import spec_from_file_location
from pathlib import Path

class Finder:
    def find_spec(self, name, path=None, target=None):
        file = Path({repo!r}, *name.split(".")).with_suffix(".py")
        return spec_from_file_location(name, file) if file.is_file() else None

sys.meta_path.append(Finder())
"""
"""As setuptools makes it for an editable install: it also finds what the package of a commit lacks."""

DOES_WITHOUT = """
try:
    from mini_y._version import version
except ImportError:
    version = "of_git"
"""


def test_an_ignored_file_that_a_plugin_can_do_without_is_no_reason_to_refuse(project: Install) -> None:
    there = project("mini_y.fast")
    (there.site / "sitecustomize.py").write_text(FINDER.format(repo=str(there.repo)))
    (there.repo / ".gitignore").write_text("_version.py\n")
    source = plugin("x", above=DOES_WITHOUT).replace("name=name", "name=version")
    there.commit(mini_y____init__="", mini_y__fast=source, mini_y___version="version = 'of_file'")
    there.commit(mini_y__fast=source + "# new")
    assert sides_of(there, "HEAD~", ".").backends() == {"base": {"of_git"}, "head": {"of_file"}}
    assert sides_of(there, "HEAD~", "HEAD").backends() == {"base": {"of_git"}, "head": {"of_git"}}


READS = """
import linecache

def beside():
    return linecache.getline(beside.__code__.co_filename.replace("kernel.py", "factor.txt"), 1)

beside()
"""


def test_a_file_of_the_package_counts_however_it_is_read(project: Install) -> None:
    there = project("mini_w.kernel", "mini_x")
    there.commit(
        mini_w____init__="", mini_w__kernel=plugin("reads", above=READS), mini_x____init__=plugin("plain")
    )
    for factor in ("1.0", "1.5"):
        (there.repo / "mini_w" / "factor.txt").write_text(factor)
        there.commit()
    cases = (parse_case("attention/dot/B1-H1-L16-D8"),)
    for ref, measured in (("HEAD~", ("reads",)), ("HEAD", ())):
        with two_sides(ref, "HEAD", None, None, there.registry(), there.repo) as sides:
            chosen = choose_backends(sides, load_registry(), cases, (), everything=False)
        assert chosen.measured == measured
        assert "plain" in chosen.left_out


ENTRIES = """
[project]
name = "mini-live"
[project.entry-points.attnbench]
more = "mini_u"
"""


def test_entry_points_of_either_commit_count_also_where_they_are_not_installed(project: Install) -> None:
    there = project("mini_t")
    (there.repo / "pyproject.toml").write_text(ENTRIES)
    there.commit(mini_t=plugin("one"), mini_u=plugin("two"))
    (there.repo / "mini_u.py").unlink()
    (there.repo / "pyproject.toml").write_text(ENTRIES.replace("mini_u", "mini_v"))
    there.commit(mini_v=plugin("three"))
    sides = sides_of(there, "HEAD~", "HEAD")
    assert sides.backends() == {"base": {"one", "two"}, "head": {"one", "three"}}
    assert sides.candidates()["two"]["base"].source.distribution == "mini-live"
    (there.repo / "pyproject.toml").write_text("[project]\nentry-points = 'nonsense'")
    assert sides_of(there, "HEAD", ".").backends() == {"base": {"one", "three"}, "head": {"one", "three"}}


def test_a_commit_against_what_is_installed(project: Install) -> None:
    """Which is the user's tree here, so that code of a worktree is held against it."""
    there = project("mini_n")
    there.commit(mini_n=plugin("one"))
    there.write(mini_n=plugin("two"))
    sides = sides_of(there, "HEAD", None)
    assert sides.backends() == {"base": {"one"}, "head": {"two", *sides.facts["head"].backends}}
    assert (sides.head.commit, sides.head.name) == ("", "what is installed here")


@pytest.mark.parametrize("words", [("HEAD", "HEAD"), ("HEAD", ".")])
def test_where_nothing_is_imported_from_the_repository_it_is_refused(
    project: Install, words: tuple[str, str]
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
    with pytest.raises(BadInput, match="same code: uncommitted work on"):
        sides_of(there, ".", ".")
    for python in (None, sys.executable):
        with pytest.raises(BadInput, match="same code"):
            sides_of(there, None, None, python)
