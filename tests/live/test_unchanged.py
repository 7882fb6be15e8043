"""A live comparison leaves out the backends that the two sides cannot run differently."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kernel_project import declared, facts_of
from msgspec.structs import replace as with_facts

import attnbench
from attnbench.cases.ids import parse_case
from attnbench.live.facts import Declared, SideFacts
from attnbench.live.measure import LiveBackends, choose_backends, unchanged
from attnbench.live.sides import Side, TwoSides
from attnbench.plugins.registry import load_registry
from attnbench.types.errors import BadInput
from attnbench.types.extensions import Source

CASES = (parse_case("attention/dot/H1-L16-D8"), parse_case("attention/cosine/H1-L16-D8"))
BUILT_IN = load_registry()
MODULES = {"fast": "fast", "dotty": "pack.dotty", "lone": "lone", "theirs": "theirs"}
"""The module of each backend. ``lone`` is in no package, ``theirs`` is outside of the repository."""
BACKENDS = {name: declared(name, module) for name, module in MODULES.items()}
BACKENDS["dotty"] = declared("dotty", "pack.dotty", rules=["dot"])

FILES = {
    "fast/__init__.py": "from helper import work",
    "helper/__init__.py": "def work():\n    import pack.tools",
    "pack/__init__.py": "",
    "pack/dotty.py": "from . import late",
    "pack/late.py": "",
    "pack/table.json": "1",
    "lone.py": "",
    "tests/test_fast.py": "",
    "README.md": "",
}
FILE_OF = {"fast": "fast/__init__.py", "pack.dotty": "pack/dotty.py", "lone": "lone.py"}


def side(label: Any, tree: Path, files: dict[str, str]) -> tuple[Side, SideFacts]:
    """A side with these files in its tree, and what it would tell of itself."""
    for name, text in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    outside = tree.parent / "site"
    outside.mkdir(exist_ok=True)
    (outside / "theirs.py").write_text("import torch, fast as ours" if "uses" in files else "")
    places = {module: str(tree / file) for module, file in FILE_OF.items()}
    places["theirs"] = f"{outside}/theirs.py"
    facts = facts_of(attnbench=attnbench.__file__, files=places, backends=BACKENDS)
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


ALL = set(MODULES)


@pytest.mark.parametrize(
    ("everywhere", "in_head", "left"),
    [
        ({}, {}, ALL),
        ({}, {"README.md": "new", "tests/test_fast.py": "new"}, ALL - {"lone"}),
        ({}, {"fast/__init__.py": "from helper import work  # new"}, {"dotty", "theirs"}),
        ({}, {"helper/__init__.py": "import pack.tools as new"}, {"dotty", "theirs"}),
        ({}, {"pack/late.py": "new = 1"}, {"theirs"}),
        ({}, {"pack/late/__init__.py": "new = 1"}, {"theirs"}),
        ({}, {"pack.py": "new = 1"}, {"theirs"}),
        # Data of a package counts, however it is read.
        ({}, {"pack/table.json": "2"}, {"theirs"}),
        ({}, {"helper/deep/.tuned/kernel.cu": "new"}, {"dotty", "theirs"}),
        ({}, {"pack/__pycache__/late.cpython-311.pyc": "new"}, ALL),
        # The installed torch is hidden.
        ({}, {"torch.py": "new = 1"}, set()),
        ({}, {"sitecustomize/__init__.py": "new = 1"}, set()),
        # A plugin outside of the repository imports from it.
        ({"uses": ""}, {"helper/__init__.py": "new = 1"}, {"dotty"}),
        # These may import any module of the tree.
        ({"helper/__init__.py": "import importlib"}, {"tests/test_fast.py": "new"}, {"dotty", "theirs"}),
        ({"helper/__init__.py": "exec('import tests')"}, {"tests/test_fast.py": "new"}, {"dotty", "theirs"}),
        ({"helper/__init__.py": "def"}, {"tests/test_fast.py": "new"}, {"dotty", "theirs"}),
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


def test_a_folder_behind_a_link_counts_and_a_circle_ends(tmp_path: Path) -> None:
    sides = both(tmp_path, FILES | {"data/x": "1"}, FILES | {"data/x": "2"})
    for folder in ("a", "b"):
        (tmp_path / folder / "fast" / "around").symlink_to("..")
    assert unchanged(sides, BUILT_IN, CASES) == {"dotty", "theirs"}
    for folder in ("a", "b"):
        (tmp_path / folder / "pack" / "data").symlink_to("../data")
    assert unchanged(sides, BUILT_IN, CASES) == {"theirs"}


def test_of_named_backends_those_are_measured_whose_code_differs(tmp_path: Path) -> None:
    sides = both(tmp_path, FILES, FILES | {"fast/__init__.py": "new = 1"})
    heavy = BACKENDS | {"theirs": declared("theirs", "theirs", compiles=True)}
    for label in ("base", "head"):
        sides = declaring(sides, label, heavy)

    def chosen(*named: str, everything: bool = False) -> LiveBackends:
        return choose_backends(sides, BUILT_IN, CASES, named, everything=everything)

    assert chosen() == LiveBackends(("fast", "lone"), ("dotty",))
    assert chosen(everything=True) == LiveBackends(("fast", "dotty", "lone"))
    assert chosen("dotty", "fast") == LiveBackends(("fast",), ("dotty",))
    # One that compiles is measured where it is named.
    assert chosen("dotty", "theirs", everything=True) == LiveBackends(("dotty", "theirs"))
    with pytest.raises(BadInput, match="no backend 'fst'; did you mean 'fast'"):
        chosen("fst")
    # One that compiles is looked at where head lacks it.
    sides = declaring(sides, "head", {name: one for name, one in BACKENDS.items() if name != "theirs"})
    assert chosen() == LiveBackends(("fast", "lone", "theirs"), ("dotty",))
    for label in ("base", "head"):
        sides = declaring(sides, label, {"theirs": heavy["theirs"]})
    with pytest.raises(BadInput, match="all backends of both sides compile"):
        chosen()


def test_a_backend_that_a_side_lacks_has_changed(tmp_path: Path) -> None:
    sides = both(tmp_path, FILES, FILES)
    fewer = {"dotty": BACKENDS["dotty"], "theirs": declared("theirs", "elsewhere")}
    assert unchanged(declaring(sides, "base", fewer), BUILT_IN, CASES) == {"dotty"}


def test_attnbench_counts_for_all(tmp_path: Path) -> None:
    files = FILES | {"attnbench/__init__.py": "import importlib", "attnbench/rules/dot.py": ""}
    for changed, left in (("attnbench/rules/dot.py", set()), ("README.md", ALL - {"lone"})):
        sides = both(tmp_path / changed, files, files | {changed: "new = 1"})
        facts = {
            one.label: with_facts(sides.facts[one.label], attnbench=f"{one.tree}/attnbench/__init__.py")
            for one in (sides.base, sides.head)
        }
        assert unchanged(replace(sides, facts=facts), BUILT_IN, CASES) == left


def test_the_rules_that_a_backend_computes_count(tmp_path: Path) -> None:
    sides = both(tmp_path, FILES | {"extra/r.py": ""}, FILES | {"extra/r.py": "new = 1"})
    cosine = replace(BUILT_IN.rules["cosine"], source=Source("r", "extra.r", "extra", "1.0"))
    brought = replace(BUILT_IN, rules=BUILT_IN.rules | {"cosine": cosine})
    assert unchanged(sides, brought, CASES) == {"dotty"}
    assert unchanged(sides, brought, CASES[:1]) == ALL - {"lone"}
