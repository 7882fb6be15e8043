"""What two sides may not be, and what is told of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kernel_project import declared, facts_of

from attnbench.live.facts import SideFacts
from attnbench.live.sides import Side, notes, refuse_what_misleads
from attnbench.types.errors import BadInput

BASE = Side("base", "main (1a2b3c4)", "/usr/bin/python", ("/b/src",), "1a2b3c4", tree="/b", own=("fast",))
HEAD = replace(BASE, label="head", name="HEAD (5d6e7f8)", paths=("/h/src",), tree="/h")


def has(tree: str, **changed: Any) -> SideFacts:
    own = {"files": {"fast": f"{tree}/src/fast.py"}, "backends": {"quick": declared("quick", "fast")}}
    return facts_of(**(own | changed))


def refused(base: SideFacts, head: SideFacts, *, one: Side = BASE, other: Side = HEAD) -> str:
    with pytest.raises(BadInput) as failure:
        refuse_what_misleads(one, other, {"base": base, "head": head})
    assert "\n" not in str(failure.value)
    return str(failure.value)


def test_a_side_whose_workers_say_something_else_is_named() -> None:
    words = refused(has("/b", protocol="other"), has("/h"))
    assert "the base side, main (1a2b3c4)," in words
    assert "make a run of each" in words
    assert "the head side" in refused(has("/b"), has("/h", protocol="other"))


def test_where_both_sides_agree_with_each_other_the_comparison_is_to_be_started_there() -> None:
    words = refused(has("/b", protocol="other"), has("/h", protocol="other"))
    assert "from a checkout of HEAD (5d6e7f8)" in words


def test_code_from_elsewhere_is_refused(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "src").mkdir(parents=True)
    (tree / "src" / "fast.py").write_text("")
    side = replace(BASE, tree=str(tree), paths=(str(tree / "src"),))
    moved = has("/b", elsewhere={"fast": "/user/src/fast.py"}, files={}, backends={})
    words = refused(moved, has("/h"), one=side)
    assert "would import fast from '/user/src/fast.py'" in words
    assert "--ref-python" in words
    (tree / "src" / "fast.py").unlink()  # the commit does not have it: its backends are missing, no more
    refuse_what_misleads(side, HEAD, {"base": moved, "head": has("/h")})
    (tree / "src" / "fast").mkdir()
    assert "would import fast" in refused(moved, has("/h"), one=side)


def test_attnbench_from_elsewhere_is_refused() -> None:
    own = replace(BASE, own=("fast", "attnbench"))
    assert "would import attnbench from '/site/" in refused(has("/b"), has("/h"), one=own)


def test_what_a_plugin_took_from_the_users_tree_is_refused() -> None:
    words = refused(has("/b"), has("/h", strays=("/user/src/helper.py",)))
    assert "'/user/src/helper.py'" in words
    assert words.startswith("the head side")


def test_the_same_files_with_the_same_libraries_are_the_same_code() -> None:
    assert "same code" in refused(has("/b"), has("/b"))
    newer = has("/b", versions={"python": "3.12.1", "torch": "2.7.0"})
    refuse_what_misleads(BASE, HEAD, {"base": has("/b"), "head": newer})
    own = has("/b", attnbench="/other/attnbench/__init__.py")
    refuse_what_misleads(BASE, HEAD, {"base": has("/b"), "head": own})


def test_notes_say_what_a_side_lacks_and_what_fails_there_alone() -> None:
    facts = has(
        "/b",
        elsewhere={"nowhere": "", "later": "", "old": "/site/old.py"},
        faults=(
            "x (x): fails everywhere",
            "fast (fast): cannot be imported: ModuleNotFoundError: _version",
        ),
    )
    other = has("/h", elsewhere={"nowhere": ""}, faults=("x (x): fails everywhere",))
    assert list(notes(BASE, facts, other)) == [
        "the base side, main (1a2b3c4), has no module later",
        "the base side, main (1a2b3c4), has no module old; /site/old.py is not it",
        "the base side, main (1a2b3c4), has a plugin with a fault: fast (fast): cannot be imported: "
        "ModuleNotFoundError: _version; a checkout has no files that git ignores",
    ]
