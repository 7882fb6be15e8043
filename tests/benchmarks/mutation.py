"""Count the mutations that the tests find: ``python tests/benchmarks/mutation.py --sample 60 --seed 1``.

A mutation is a small change to the code, for example ``<`` instead of ``<=``. A test of its room should fail.
The seed decides which mutations are drawn, one of each function in turn. Each is tested in a forked process
and in what this one starts; no file changes. A mutation whose tests use more than two minutes of CPU time
counts as killed. ``harmless.toml`` names those that change nothing that a user sees, each with its reason;
they are printed, but not tested or counted. With ``--all-tests`` those that survive are tested by all of
README's tests, which takes up to five minutes each on two idle cores.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import importlib
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import tomllib
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# The tests of each room, the quick ones first.
_MATHS = ("errors", "gradient_scale", "dropout_moments", "weights_verdict", "rounding", "draw")
_CHECK = (*_MATHS, "verdict", "trivial_answers", "plain_gradients")
_STATS = (
    "clock", "kept_answers", "limit", "summary", "comparison", "interval", "pairs", "verdict_words",
    "answer", "doubts", "interim", "few_repetitions", "unpaired", "outcomes",
)  # fmt: skip
# Of batches, codes and recurrences, which no test of a dense problem meets.
_FORMS = [f"tests/operations/test_{name}.py" for name in ("batch_oracle", "encoded", "paged", "recurrent")]
# Of gradients of recurrences, and of answers of which several are right.
_FURTHER = [
    f"tests/operations/test_{name}.py"
    for name in ("recurrent_gradients", "recurrent_packed", "choices", "writers")
]
_INPUTS = ("draw", "rounding", "input_laws", "stress_inputs")
ROOMS = ("verifier", "inputs", "stats")
TESTS = {
    "verifier/process": ["tests/worker/test_verifier_process.py", _FORMS[1]],
    "stats/protocol": ["tests/runner/test_refusals.py"],
    "verifier": [
        *(f"tests/maths/test_{name}.py" for name in _CHECK),
        "tests/worker/test_verifier.py",
        "tests/backends/test_dropout_by_backend.py",
        "tests/operations/test_packed.py",
        *_FORMS,
        *_FURTHER,
    ],
    "inputs": [
        *(f"tests/maths/test_{name}.py" for name in _INPUTS),
        "tests/worker/test_verifier.py",
        *_FORMS,
    ],
    "stats": [
        *(f"tests/compare/test_{name}.py" for name in _STATS),
        *(f"tests/reports/test_{name}.py" for name in ("caches", "answer_shown", "notebook")),
    ],
}
"""By the start of a file's path; the first that fits."""
SWAPS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult,
}  # fmt: skip
QUICK = "not test_a_run_checks and not test_records_have_the_error"
"""Not whole runs, which take half a minute each."""
MOST_SETS, MOST_CPU_S = 4, 120
"""Of each test this many parameter sets; of one mutation's tests the CPU seconds."""
WIDEST_FIRST = [f"tests/{name}" for name in ("transcripts", "runner", "cli", "operations")]
"""The tests that meet most of the program; ``--all-tests`` runs them before the others."""
LEFT_OUT = {"annotation", "returns", "decorator_list"}  # the fields of types and decorators

Key = tuple[str, str, str, int]


@dataclass(frozen=True)
class Mutation:
    """One change; ``key`` names it."""

    key: Key  # function, statement, change, how many equal ones come before it
    path: Path
    line: int
    tree: ast.Module

    @property
    def change(self) -> str:
        """The function, or the constant, and its change, as they are printed; of equal ones with a number."""
        place, statement, change, before = self.key
        number = f" ({before + 1})" if before else ""
        return f"{place or re.split('[:=]', statement)[0].strip()}: {change}{number}"


def changed(node: ast.AST) -> ast.AST | None:
    """Return the node with one mutation, or None."""
    new = copy.copy(node)
    match new:
        case ast.Compare(ops=[first, *_]) if type(first) in SWAPS:
            new.ops = [SWAPS[type(first)](), *new.ops[1:]]
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in SWAPS:
            new.op = SWAPS[type(op)]()
        case ast.UnaryOp(op=ast.Not()):
            return new.operand
        case ast.Constant(value=bool()):
            new.value = not new.value
        case ast.Constant(value=int()):
            new.value += 1
        case ast.Constant(value=float()):
            new.value = new.value * 2 or 1.0
        case ast.If() | ast.IfExp() if ast.unparse(new.test) != "TYPE_CHECKING":
            new.test = ast.UnaryOp(ast.Not(), new.test)
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            new.value = ast.Constant(None)
        case _:
            return None
    return new


def head_of(node: ast.AST) -> str:
    """Return the source of a node, without the statements in it."""
    bare = copy.copy(node)
    if isinstance(getattr(bare, "body", None), list):
        bare.body = [ast.Pass()]
        bare.orelse = []
    return ast.unparse(bare).splitlines()[0]


def mutations_of(path: Path) -> Iterator[Mutation]:
    """Yield every mutation of a file. Its tree holds that mutation until the next one is asked for."""
    root = ast.parse(path.read_text(encoding="utf-8"))
    seen: Counter[tuple[str, str, str]] = Counter()

    def visit(node: ast.AST, function: str, statement: str) -> Iterator[Mutation]:
        for field, value in ast.iter_fields(node):
            children = value if isinstance(value, list) else [value]
            for place, child in enumerate(children):
                if field in LEFT_OUT or not isinstance(child, ast.AST):
                    continue
                named = isinstance(child, ast.FunctionDef | ast.ClassDef)
                within = f"{function}.{child.name}" if named else function
                head = head_of(child) if isinstance(child, ast.stmt) else statement
                if (new := changed(child)) is not None:
                    kind = f"{head_of(child)} -> {head_of(new)}"
                    key = (within, head, kind)
                    ast.fix_missing_locations(ast.copy_location(new, child))
                    children[place] = new
                    setattr(node, field, children if isinstance(value, list) else new)
                    yield Mutation((*key, seen[key]), path, child.lineno, root)
                    children[place] = child
                    setattr(node, field, value)
                    seen[key] += 1
                yield from visit(child, within, head)

    yield from visit(root, "", "")


def all_mutations(folders: list[Path]) -> dict[Key, Mutation]:
    """Return the mutations of all files of these folders."""
    return {
        m.key: m for folder in folders for path in sorted(folder.glob("*.py")) for m in mutations_of(path)
    }


def drawn(keys: set[Key], count: int, seed: int) -> list[Key]:
    """Draw ``count`` mutations, one of each function in turn."""
    rng = random.Random(seed)
    by_function: dict[str, list[Key]] = defaultdict(list)
    for key in sorted(keys):
        by_function[key[0]].append(key)
    queues = list(by_function.values())
    for queue in (queues, *queues):
        rng.shuffle(queue)
    turns = [(turn, place, key) for place, queue in enumerate(queues) for turn, key in enumerate(queue)]
    return [key for _, _, key in sorted(turns)[:count]]


LOADS = """\
from importlib.machinery import SourceFileLoader as Loader
def get_code(loader, name, read=Loader.get_code):
    path = loader.get_filename(name)
    return compile({source!r}, path, "exec") if path == {path!r} else read(loader, name)
Loader.get_code = get_code
"""
"""Lets a process load a changed file."""


class FewOfEach:
    """A pytest plugin that keeps a few parameter sets of each test, and draws the same examples again."""

    def pytest_configure(self) -> None:
        from hypothesis import settings

        settings.register_profile("mutation", database=None, derandomize=True, deadline=None)
        settings.load_profile("mutation")

    def pytest_collection_modifyitems(self, items: list) -> None:
        by_test = defaultdict(list)
        for item in items:
            by_test[item.nodeid.split("[")[0]].append(item)
        items[:] = [item for same in by_test.values() for item in same[:: -(-len(same) // MOST_SETS)]]


def tests_pass(tests: tuple[str, ...], mutation: Mutation | None) -> bool:
    """Run the tests in a forked process with the mutation in place of its file."""
    import pytest

    if (pid := os.fork()) == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1), os.dup2(null, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S))
        if mutation is not None:
            loads = LOADS.format(path=str(mutation.path), source=source_of(mutation))
            folder = tempfile.mkdtemp()
            Path(folder, "sitecustomize.py").write_text(loads, encoding="utf-8")
            # Of the processes that this one starts.
            os.environ["PYTHONPATH"] = path_with(folder)
            try:
                exec(loads)
                # Before pytest, whose own loader would read the file.
                importlib.import_module(".".join(mutation.path.relative_to(Path.cwd()).with_suffix("").parts))
            except Exception:
                os._exit(1)
        options = [
            "-n0",
            f"-k{QUICK}",
            "-Wignore:Module already imported",
            "-x",
            "-q",
            "--timeout=0",
            "-pno:cacheprovider",
        ]
        os._exit(min(pytest.main([*options, *tests], plugins=[FewOfEach()]), 1))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def source_of(mutation: Mutation) -> str:
    """Return the file of a mutation with it."""
    return ast.unparse(next(m.tree for m in mutations_of(mutation.path) if m.key == mutation.key))


def path_with(folder: str) -> str:
    """Return a PYTHONPATH that begins with a folder."""
    return os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])


def all_tests_pass(mutation: Mutation, root: Path) -> bool:
    """Run README's tests in a clone of the repository that has the mutation; the first that fails ends them.

    A clone, since some tests start processes that get nothing of this one's environment. Tests of the house
    are left out: they read the source, which has no comments here.
    """
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "clone", "--quiet", root, folder], check=True)
        Path(folder, mutation.path.relative_to(root)).write_text(source_of(mutation), encoding="utf-8")
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "--ignore=tests/house", *WIDEST_FIRST, "tests"],
            cwd=folder, env=os.environ | {"PYTHONPATH": path_with(folder)},
            capture_output=True, check=False, text=True,
        )  # fmt: skip
    failed = [line for line in ran.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    print(*failed[:1], sep="\n")
    return ran.returncode == 0


def tests_of(path: Path, root: Path) -> tuple[str, ...]:
    """Return the tests of a file."""
    name = str(path.relative_to(root / "attnbench"))
    return tuple(next(tests for start, tests in TESTS.items() if name.startswith(start)))


def main() -> None:
    """Draw, test and print."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=Path, help="a file with lines that this printed: test these mutations")
    parser.add_argument(
        "--all-tests", action="store_true", help="test what survives by all of README's tests"
    )
    args = parser.parse_args()

    root = Path(__file__).resolve().parents[2]
    os.chdir(root)
    sys.path.insert(0, str(root))
    import torch  # noqa: F401  # loaded once, before all forks

    found = all_mutations([root / "attnbench" / room for room in ROOMS])
    if args.only is None:
        mutations = [found[key] for key in drawn(set(found), args.sample, args.seed)]
    else:
        wanted = set(re.findall(r"^\w+ (.+\.py):\d+ (.+)$", args.only.read_text(), re.MULTILINE))
        mutations = [m for m in found.values() if (str(m.path.relative_to(root)), m.change) in wanted]
    table = tomllib.loads(Path(__file__).with_name("harmless.toml").read_text(encoding="utf-8"))
    harmless = {(root / row["file"], change) for row in table["rows"] for change in row["changes"]}
    for tests in {tests_of(mutation.path, root) for mutation in mutations}:
        if not tests_pass(tests, None):
            sys.exit(f"the tests fail without a mutation: {' '.join(tests)}")
    killed, total = Counter(), Counter()
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C prints the counts so far
        for mutation in mutations:
            file = mutation.path.relative_to(root)
            word = "harmless"
            if (mutation.path, mutation.change) not in harmless:
                survived = tests_pass(tests_of(mutation.path, root), mutation)
                if survived and args.all_tests:
                    survived = all_tests_pass(mutation, root)
                total[file] += 1
                killed[file] += not survived
                word = "survived" if survived else "killed"
            print(f"{word} {file}:{mutation.line} {mutation.change}", flush=True)
    for file in sorted(total):
        print(f"{file}: {killed[file]} of {total[file]} killed")
    print(f"all: {killed.total()} of {total.total()} killed")


if __name__ == "__main__":
    main()
