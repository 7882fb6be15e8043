"""Print how large attnbench is: ``python tests/benchmarks/weight.py [--run]``.

A code line holds something else than a comment, a docstring or blank space. A room is a top folder of a
package; files beside the rooms count as ``.``. With ``--run`` the script also runs one tiny case, and counts
the files and functions of attnbench that the parent process calls. Module bodies do not count.
"""

from __future__ import annotations

import ast
import io
import json
import os
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
SMALL = 50
"""A file is small below this number of lines of any kind."""

NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip

TINY = ["attention/dot/H1-L16-D8", "--backend", "eager", "--backend", "bmm", "--budget", "0.01"]

ENTERED = """
import json, sys
entered = set()
def enter(frame, event, _):
    if event == "call" and not frame.f_code.co_name.startswith("<"):
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
    lines: Counter[str] = Counter()
    small: Counter[str] = Counter()
    for path in sorted(package.rglob("*.py")):
        inside = path.relative_to(package).parts
        rooms = (inside[0] if len(inside) > 1 else ".", "total")
        for room in rooms:
            files[room] += 1
            lines[room] += code_lines(path)
            small[room] += len(path.read_text(encoding="utf-8").splitlines()) < SMALL
    print(f"\n{name:<24}{'files':>7}{'code':>9}{'small':>7}")
    for room in sorted(files, key=lambda one: (one == "total", -lines[one])):
        print(f"  {room:<22}{files[room]:>7,}{lines[room]:>9,}{small[room]:>7,}")


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
    print_rooms("attnbench", ROOT / "attnbench")
    print_rooms("tests", ROOT / "tests")
    for plugin in sorted((ROOT / "plugins").iterdir()):
        print_rooms(f"plugins/{plugin.name}", plugin)
    if "--run" in sys.argv[1:]:
        print_entered()


if __name__ == "__main__":
    main()
