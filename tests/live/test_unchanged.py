"""A live comparison leaves out the backends that the two sides cannot run differently."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kernel_project import declared, facts_of
from msgspec.structs import replace as with_facts

from attnbench.cases.ids import parse_case
from attnbench.live.facts import Declared, Facts
from attnbench.live.measure import Choice, choose_backends, unchanged
from attnbench.live.sides import Side, TwoSides
from attnbench.plugins.registry import load_registry
from attnbench.types.errors import BadInput

CASES = (parse_case("attention/dot/H1-L16-D8"), parse_case("attention/cosine/H1-L16-D8"))
BUILT_IN = load_registry()
PLUGINS = {"fast": ("fast", None), "dotty": ("pack.dotty", ("dot",)), "theirs": ("theirs", None)}
"""Name of a backend, its module, and its rules. ``theirs`` is installed outside of the repository."""
BACKENDS = {name: declared(name, module, rules=rules) for name, (module, rules) in PLUGINS.items()}

FILES = {
    "fast.py": "from helper import work",
    "helper.py": "import pack.tools",
    "pack/__init__.py": "",
    "pack/tools.py": "def work(): ...",
    "pack/dotty.py": "def prepare(setup):\n    from . import late\n    from .tools import work",
    "pack/late.py": "",
    "README.md": "",
}


def side(label: Any, tree: Path, files: dict[str, str]) -> tuple[Side, Facts]:
    """A side with these files in its tree, and what it would tell of itself."""
    for name, text in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    outside = tree.parent / "site"
    outside.mkdir(exist_ok=True)
    (outside / "theirs.py").write_text("import importlib, torch, fast as ours" if "uses" in files else "")
    modules = {module: tree / f"{module.replace('.', '/')}.py" for module, _ in PLUGINS.values()}
    places = {module: str(path) for module, path in modules.items()} | {"theirs": f"{outside}/theirs.py"}
    facts = facts_of(files=places, backends=BACKENDS)
    paths = (str(tree), str(outside))
    return Side(label, label, "/usr/bin/python", paths, commit=label * 8, tree=str(tree)), facts


def declaring(sides: TwoSides, label: str, backends: dict[str, Declared]) -> TwoSides:
    """The same sides, of which one declares other backends."""
    return replace(sides, facts={**sides.facts, label: with_facts(sides.facts[label], backends=backends)})


def both(tmp_path: Path, base: dict[str, str], head: dict[str, str]) -> TwoSides:
    sides = side("base", tmp_path / "a", base), side("head", tmp_path / "b", head)
    # Rules and operations that come with attnbench are installed on both sides alike.
    files = {source.module: str(sys.modules[source.module].__file__) for source in BUILT_IN.plugins}
    facts = {one.label: with_facts(found, files=files | found.files) for one, found in sides}
    return TwoSides(sides[0][0], sides[1][0], facts)


@pytest.mark.parametrize(
    ("everywhere", "in_head", "left"),
    [
        ({}, {}, {"fast", "dotty", "theirs"}),
        ({}, {"README.md": "new", "other.py": "new"}, {"fast", "dotty", "theirs"}),
        ({}, {"fast.py": "from helper import work  # new"}, {"dotty", "theirs"}),
        ({}, {"helper.py": "import pack.tools as new"}, {"dotty", "theirs"}),
        ({}, {"pack/tools.py": "def work(): new"}, {"theirs"}),
        ({}, {"pack/__init__.py": "new = 1"}, {"theirs"}),
        ({}, {"pack/late.py": "new = 1"}, {"fast", "theirs"}),
        ({}, {"pack/late/__init__.py": "new = 1"}, {"fast", "theirs"}),
        ({}, {"helper/__init__.py": ""}, {"dotty", "theirs"}),
        # Rules import torch: the installed one is hidden.
        ({}, {"torch.py": "new = 1"}, set()),
        ({}, {"sitecustomize.py": "new = 1"}, set()),
        # A plugin outside of the repository imports from it.
        ({"uses": ""}, {"helper.py": "new = 1"}, {"dotty"}),
        # These modules may read a file beside them, or import a module by its name: that cannot be seen.
        ({"helper.py": "open(__file__ + '.json')"}, {"README.md": "new"}, {"dotty", "theirs"}),
        ({"helper.py": "from importlib.resources import files"}, {}, {"dotty", "theirs"}),
        ({"helper.py": "eval('1')"}, {}, {"dotty", "theirs"}),
        ({"helper.py": "def"}, {}, {"dotty", "theirs"}),
        # A package that looks at its own name may load any of its files.
        ({"pack/__init__.py": "load(__name__)"}, {"pack/kernel.cu": "new"}, {"theirs"}),
        ({"pack/__init__.py": "load(__name__)", "pack/more.py": "import deep", "deep.py": ""},
         {"deep.py": "new = 1"}, {"theirs"}),
        ({"pack/tools.py": "log = logger(__name__)"}, {"pack/kernel.cu": ""}, {"fast", "dotty", "theirs"}),
    ],
)  # fmt: skip
def test_backends_with_the_same_code_are_left_out(
    tmp_path: Path, everywhere: dict[str, str], in_head: dict[str, str], left: set[str]
) -> None:
    sides = both(tmp_path, FILES | everywhere, FILES | everywhere | in_head)
    assert unchanged(sides, BUILT_IN, CASES) == left


def test_other_interpreters_or_libraries_change_everything(tmp_path: Path) -> None:
    sides = both(tmp_path, FILES, FILES)
    newer = with_facts(sides.facts["head"], versions=sides.facts["head"].versions | {"torch": "2.8.0"})
    assert unchanged(replace(sides, facts={**sides.facts, "head": newer}), BUILT_IN, CASES) == set()
    other = replace(sides.head, python="/other/python")
    assert unchanged(replace(sides, head=other), BUILT_IN, CASES) == set()
    moved = with_facts(sides.facts["head"], attnbench="/other/attnbench/__init__.py")
    assert unchanged(replace(sides, facts={**sides.facts, "head": moved}), BUILT_IN, CASES) == set()


def test_one_commit_cannot_differ_from_itself(tmp_path: Path) -> None:
    files = FILES | {"helper.py": "open(__file__ + '.json')"}
    sides = both(tmp_path, files, files)
    same = replace(sides, head=replace(sides.head, commit=sides.base.commit))
    assert unchanged(same, BUILT_IN, CASES) == {"fast", "dotty", "theirs"}
    uncommitted = replace(same, head=replace(same.head, uncommitted=True))
    assert unchanged(uncommitted, BUILT_IN, CASES) == {"dotty", "theirs"}


def test_named_backends_are_measured_whatever_they_are(tmp_path: Path) -> None:
    sides = both(tmp_path, FILES, FILES | {"fast.py": "new = 1"})
    heavy = BACKENDS | {"theirs": declared("theirs", "theirs", compiles=True)}
    for label in ("base", "head"):
        sides = declaring(sides, label, heavy)

    def chosen(*named: str, everything: bool = False) -> Choice:
        return choose_backends(sides, BUILT_IN, CASES, named, everything=everything)

    assert chosen() == Choice(("fast",), ("dotty",))
    assert chosen(everything=True) == Choice(("fast", "dotty"))
    assert chosen("dotty", "theirs") == Choice(("dotty", "theirs"))
    with pytest.raises(BadInput, match="no backend 'fst'; did you mean 'fast'"):
        chosen("fst")
    # One that compiles is looked at where head lacks it.
    sides = declaring(sides, "head", {name: one for name, one in BACKENDS.items() if name != "theirs"})
    assert chosen() == Choice(("fast", "theirs"), ("dotty",))
    for label in ("base", "head"):
        sides = declaring(sides, label, {"theirs": heavy["theirs"]})
    with pytest.raises(BadInput, match="all backends of both sides compile"):
        chosen()


def test_a_backend_that_a_side_lacks_has_changed(tmp_path: Path) -> None:
    sides = both(tmp_path, FILES, FILES)
    fewer = {"dotty": BACKENDS["dotty"], "theirs": declared("theirs", "elsewhere")}
    assert unchanged(declaring(sides, "base", fewer), BUILT_IN, CASES) == {"dotty"}


@pytest.mark.parametrize(
    ("changed", "left"),
    [
        ("rules/dot.py", {"fast"}),
        ("rules/cosine.py", {"dotty"}),
        ("operations/attention.py", set()),
        ("runner/run.py", set()),
        ("suites/edges.py", {"fast", "dotty"}),
        ("backends/eager.py", {"fast", "dotty"}),
    ],
)
def test_rules_operations_and_attnbench_count_too(tmp_path: Path, changed: str, left: set[str]) -> None:
    """attnbench is in the repository. ``fast`` computes cosine alone here, ``dotty`` dot alone."""
    parts = ("__init__", "runner/run", "suites/edges", "backends/eager", "rules/dot", "rules/cosine")
    parts += ("rules/__init__", "operations/__init__", "operations/attention")
    files = FILES | {f"attnbench/{part}.py": "import os" for part in parts}
    files |= {
        "attnbench/__init__.py": "import importlib",
        "attnbench/backends/compiled.py": "import importlib",
    }
    sides = both(tmp_path, files, files | {f"attnbench/{changed}": "import os as new"})
    here = {
        one.label: with_facts(sides.facts[one.label], attnbench=f"{one.tree}/attnbench/__init__.py")
        for one in (sides.base, sides.head)
    }
    sides = replace(sides, facts=here)
    for label in ("base", "head"):
        fast = declared("fast", "fast", rules=["cosine"])
        sides = declaring(sides, label, {"fast": fast, "dotty": BACKENDS["dotty"]})
    assert unchanged(sides, BUILT_IN, CASES) == left
