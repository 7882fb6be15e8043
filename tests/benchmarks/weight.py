"""Print how large attnbench is, and how tangled: ``python tests/benchmarks/weight.py [--run | --kept]``.

AST nodes measure the amount of program, which neither lines nor files do. A code line holds something else
than a comment, a docstring or blank space. A room is a top folder of a package; files beside the rooms count
as ``.``. Below the rooms stand counts that should be small: class names that stand for several classes,
imports from a lower layer of ``pyproject.toml`` to a higher one, device words outside of their record and of
backends, files that read fields of a mask. With ``--run`` the script also runs one tiny case, and counts the
files and functions of attnbench that the parent process calls. Bodies of modules and classes do not count.
``--kept`` counts only the nodes of what the table "Weighed and kept" of docs/design.md names.
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SMALL = 50
"""A file is small below this number of lines of any kind."""

NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip

TINY = ["attention/dot/H1-L16-D8", "--backend", "eager", "--backend", "bmm", "--budget", "0.01"]

ENTERED = """
import inspect, json, sys
entered = set()
def enter(frame, event, _):
    # Bodies of modules and classes are not optimised, and run when a file is read.
    if event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED and frame.f_code.co_name[0] != "<":
        entered.add((frame.f_code.co_filename, frame.f_code.co_qualname))
from attnbench.__main__ import main
sys.setprofile(enter)
try:
    main()
finally:
    sys.setprofile(None)
    with open(FILE, "w") as file:
        json.dump(sorted(entered), file)
"""


def code_lines(path: Path) -> int:
    """Count the code lines of a Python file."""
    text = path.read_text(encoding="utf-8")
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                docstrings.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def print_rooms(name: str, package: Path) -> None:
    """Print files, code lines and small files of a package, by room."""
    files: Counter[str] = Counter()
    nodes: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    small: Counter[str] = Counter()
    for path in sorted(package.rglob("*.py")):
        inside = path.relative_to(package).parts
        rooms = (inside[0] if len(inside) > 1 else ".", "total")
        for room in rooms:
            files[room] += 1
            nodes[room] += sum(1 for _ in ast.walk(tree_of(path)))
            lines[room] += code_lines(path)
            small[room] += len(path.read_text(encoding="utf-8").splitlines()) < SMALL
    print(f"\n{name:<24}{'files':>7}{'nodes':>10}{'lines':>9}{'small':>7}")
    for room in sorted(files, key=lambda one: (one == "total", -lines[one])):
        print(f"  {room:<22}{files[room]:>7,}{nodes[room]:>10,}{lines[room]:>9,}{small[room]:>7,}")


def tree_of(path: Path) -> ast.Module:
    """Parse a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def tangles(package: Path) -> dict[str, list[str]]:
    """Return what should be rare, by its name, each with the places where it stands."""
    trees = {path.relative_to(package): tree_of(path) for path in sorted(package.rglob("*.py"))}
    classes: dict[str, list[Path]] = {}
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes.setdefault(node.name, []).append(path)
    return {
        "class names that stand for several classes": [
            f"{name}: {', '.join(map(str, paths))}"
            for name, paths in sorted(classes.items())
            if len(paths) > 1
        ],
        "imports from a lower layer to a higher one": list(arrows_up(package, trees)),
        "files with device words outside of their record and backends": [
            f"{path} {count}" for path, tree in trees.items() if (count := device_words(path, tree))
        ],
        "files that read fields of a mask": [str(path) for path, tree in trees.items() if reads_mask(tree)],
    }


def print_tangles(package: Path) -> None:
    """Print what should be rare, each with the places where it stands."""
    print()
    for name, places in tangles(package).items():
        print(f"{name}: {len(places)}")
        for place in places:
            print(f"  {place}")


def arrows_up(package: Path, trees: dict[Path, ast.Module]) -> Iterator[str]:
    """Yield imports that go against the layers of ``pyproject.toml``, those inside of functions too."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = next(c for c in settings["tool"]["importlinter"]["contracts"] if c["type"] == "layers")["layers"]
    rank = {room.strip(): at for at, layer in enumerate(layers) for room in layer.split("|")}
    for path, tree in trees.items():
        mine = rank.get(f"{package.name}.{path.parts[0].removesuffix('.py')}")
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and mine is not None:
                other = rank.get(".".join(node.module.split(".")[:2]))
                if other is not None and other < mine:
                    yield f"{path} imports {node.module}"


def device_words(path: Path, tree: ast.Module) -> int:
    """Count the places that compare with "cpu" or "cuda", or pass one on as a device; 0 where they belong.

    Names of facts, as the processor's "cpu", are none of devices.
    """
    if path.parts[0] == "backends" or path == Path("types/device.py"):
        return 0
    asked: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            asked += [part for side in (node.left, *node.comparators) for part in ast.walk(side)]
        elif (isinstance(node, ast.keyword) and node.arg and node.arg.startswith("device")) or (
            isinstance(node, ast.AnnAssign) and node.value and ast.unparse(node.target) == "device"
        ):
            asked += ast.walk(node.value)
    return sum(isinstance(node, ast.Constant) and node.value in ("cpu", "cuda") for node in asked)


MASK_FIELDS = {"causal", "window", "padding", "explicit", "per_head"}


def reads_mask(tree: ast.Module) -> bool:
    """Return whether a file reads a field of a mask, or imports the words of masks."""
    return any(
        isinstance(node, ast.Attribute)
        and node.attr in MASK_FIELDS
        and isinstance(node.value, ast.Name | ast.Attribute)
        and (node.value.id if isinstance(node.value, ast.Name) else node.value.attr) in ("mask", "self")
        for node in ast.walk(tree)
    )


NAMED = re.compile(r"((?:`\w+`(?:, )?)+) of `([\w.]+)`")
"""In the table: names of functions and classes, and the module that has them."""


def print_kept() -> None:
    """Print the nodes of each mechanism of the table in docs/design.md, and end with 1 if it says others."""
    _, _, table = (ROOT / "docs/design.md").read_text(encoding="utf-8").partition("## Weighed and kept")
    wrong = False
    for row in re.findall(r"^\| (?!-|mechanism)(.*) \|$", table, re.MULTILINE):
        mechanism, functions, told, _ = row.split(" | ", 3)
        count = sum(
            nodes_named(module, re.findall(r"\w+", names)) for names, module in NAMED.findall(functions)
        )
        wrong |= count != int(told.replace(",", ""))
        print(f"{count:>6,}{told:>7}  {mechanism}")
    sys.exit(wrong)


def nodes_named(module: str, names: list[str]) -> int:
    """Count the nodes of these functions and classes, methods included, of a module of attnbench."""
    path = ROOT / "attnbench" / module.replace(".", "/")
    tree = tree_of(path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py")
    kinds = (ast.FunctionDef, ast.ClassDef)
    found = [node for node in ast.walk(tree) if isinstance(node, kinds) and node.name in names]
    if missing := set(names) - {node.name for node in found}:
        sys.exit(f"docs/design.md names what {module} has not: {', '.join(sorted(missing))}")
    return sum(1 for node in found for _ in ast.walk(node))


def print_entered() -> None:
    """Run a tiny case, and print the files and functions of attnbench that the parent enters."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder, "entered.json")
        code = ENTERED.replace("FILE", repr(str(found)))
        command = [sys.executable, "-c", code, "run", *TINY, "--out", f"{folder}/run.jsonl"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=False)
        entered = json.loads(found.read_text())
    package = ROOT / "attnbench"
    ours = [(Path(file), name) for file, name in entered if Path(file).is_relative_to(package)]
    ours = [(file.relative_to(package), name) for file, name in ours]
    rooms = Counter(file.parts[0] if len(file.parts) > 1 else "." for file in {file for file, _ in ours})
    print(f"\nattnbench run {' '.join(TINY)}")
    print(f"  the parent enters {len(ours)} functions in {len({file for file, _ in ours})} files:")
    print("  " + ", ".join(f"{room} {count}" for room, count in rooms.most_common()))


def main() -> None:
    """Print everything."""
    if "--kept" in sys.argv[1:]:
        print_kept()
    print_rooms("attnbench", ROOT / "attnbench")
    print_tangles(ROOT / "attnbench")
    print_rooms("tests", ROOT / "tests")
    for plugin in sorted((ROOT / "plugins").iterdir()):
        print_rooms(f"plugins/{plugin.name}", plugin)
    if "--run" in sys.argv[1:]:
        print_entered()


if __name__ == "__main__":
    main()
