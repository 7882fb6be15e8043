"""Try attnbench in environments with old and new versions of what it needs. Usage: .ci/versions

    .ci/versions FOLDER [NAME...] [--store] [--keep]
    .ci/versions FOLDER [NAME...] --again

``versions.toml`` says which environments there are; NAME picks some. In each this runs the default run, then
``capture`` of a program with a run of what it captured, ``choose``, ``compare`` with a second run, the tests,
and those of packages under plugins/. Slow tests are left out, and attnbench's that are ``pinned``. FOLDER
gets a folder for each environment, with the output of each step. --store puts the outcomes into
docs/measured/versions.json, from which ``python tests/docs/written.py`` makes a table. The exit status is 1
if a step failed.

--keep leaves the environments in FOLDER, gigabytes each. --again goes through the steps that failed in those
that were kept, and of tests through those that failed. Such outcomes are never stored, since a stored one is
of all steps.

An environment whose Python is not on PATH is left out with a sentence, and the last line names it. This needs
Python 3.11 or newer and nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("versions.toml")
STORED = ROOT / "docs" / "measured" / "versions.json"
PROGRAM = ROOT / "tests" / "programs" / "examples" / "training.py"
MAIN_JOB = Path(__file__).with_name("main_job.py")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REQUIREMENT = re.compile(r"^([\w.-]+)(?:\[[\w,-]+\])?(?:>=([\w.]+))?$")
INSTALLED = """
import importlib.metadata as m, json, platform, sys
found = {"python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        found[name] = m.version(name)
    except m.PackageNotFoundError:
        pass
print(json.dumps(found))
"""
"""Prints the versions of Python and of the distributions that are named, as JSON."""

USED = ("gpu", "html")
"""The extras of attnbench that its users have."""


@dataclass(frozen=True)
class Environment:
    """An environment to make. python: as in 3.12. plugins: names of packages under plugins/."""

    name: str
    python: str
    lower_bounds: bool = False
    pins: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """How a step ended. said: a few words, as in "5,871 passed"."""

    name: str
    passed: bool
    said: str


@dataclass(frozen=True)
class Outcome:
    """What an environment had and how its steps ended.

    python: its whole version. versions: of what attnbench and the plugins need, by name. date: of the trial.
    """

    name: str
    python: str
    versions: dict[str, str]
    steps: tuple[Step, ...]
    date: str


@dataclass(frozen=True)
class Place:
    """Where an environment is tried.

    python: the one it is made with. folder: for its files. again: of tests, only those that failed before.
    """

    environment: Environment
    python: str
    folder: Path
    again: bool = False

    def call(self, log: str, *words: str, inside: Path | None = None) -> int:
        """Run a program of the environment, and return its exit status.

        log: the file that gets the output, without its suffix. inside: the folder it runs in, if another.
        """
        variables = os.environ | {
            "PATH": f"{self.folder / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "inductor"),
        }
        with (self.folder / f"{log}.txt").open("a") as file:
            print("$", *words, file=file, flush=True)
            done = subprocess.run(
                words,
                cwd=inside or self.folder,
                env=variables,
                stdout=file,
                stderr=subprocess.STDOUT,
                check=False,
            )
        return done.returncode


def environments() -> list[Environment]:
    """Read the table of environments."""
    return [
        Environment(
            name,
            said["python"],
            said.get("lower_bounds", False),
            tuple(said.get("pins", ())),
            tuple(said.get("plugins", ())),
        )
        for name, said in tomllib.loads(TABLE.read_text()).items()
    ]


def packages(environment: Environment) -> list[Path]:
    """Return the folders of attnbench and of the plugins of an environment."""
    return [ROOT, *(ROOT / "plugins" / name for name in environment.plugins)]


def needed(package: Path) -> dict[str, str | None]:
    """Return what users of the package in a folder need, by name, with the oldest version that it allows."""
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    texts = list(project["dependencies"])
    if package == ROOT:
        texts += [text for extra in USED for text in project["optional-dependencies"][extra]]
    found: dict[str, str | None] = {}
    for text in texts:
        match = REQUIREMENT.match(text)
        if match is None:
            raise ValueError(
                f"{package.name} needs {text!r}; allowed: a name, and >= with the oldest version"
            )
        if match[1] != PROJECT["name"]:
            found[match[1]] = match[2]
    return found


def oldest(environment: Environment) -> dict[str, str]:
    """Return the lower bounds by name; where several packages have one, the newest of them."""
    found: dict[str, str] = {}
    for package in packages(environment):
        for name, version in needed(package).items():
            if version is not None:
                found[name] = max(version, found.get(name, version), key=_numbers)
    return found


def _numbers(version: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", version)]


def held(environment: Environment) -> list[str]:
    """Return lines for pip's constraints.

    Tools of the tests that no pin and no bound holds are those of constraints.txt.
    """
    found = dict(line.split("==") for line in environment.pins)
    bounds = oldest(environment)
    if environment.lower_bounds:
        found |= {name: version for name, version in bounds.items() if name not in found}
    tools = {re.split(r"[\[>]", text)[0] for text in PROJECT["optional-dependencies"]["test"]} - bounds.keys()
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        name, _, version = line.partition("==")
        if name in tools and name not in found:
            found[name] = version
    return [f"{name}=={version}" for name, version in found.items()]


def interpreter(version: str) -> str | None:
    """Return the path of a Python of this version, as in 3.12, that is on PATH; None where there is none."""
    for found in (sys.executable, shutil.which(f"python{version}")):
        if found is None:
            continue
        asked = [found, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        # A name on PATH may be that of a manager of versions which has none of this one.
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip() == version:
            return found
    return None


def install(place: Place) -> Step:
    """Make the environment, with attnbench."""
    (place.folder / "constraints.txt").write_text("".join(f"{line}\n" for line in held(place.environment)))
    made = place.call("install", place.python, "-m", "venv", "venv")
    return _ended("install", made or _pip(place, f"{ROOT}[test,{','.join(USED)}]"))


def _pip(place: Place, *packages: str) -> int:
    """Install packages from their folders, so that what they need is as the constraints say."""
    words = [word for package in packages for word in ("-e", package)]
    return place.call("install", "python", "-m", "pip", "install", "-c", "constraints.txt", *words)


def default_run(place: Place) -> Step:
    """Run ``attnbench run``: each rule and each backend must have a row that is ``ok``."""
    return _ended("run", place.call("run", "python", str(MAIN_JOB), "smoke"))


def capture(place: Place) -> Step:
    """Capture a program, and measure what it calls."""
    failed = place.call("capture", "attnbench", "capture", "--", "python", str(PROGRAM)) or place.call(
        "capture", "attnbench", "run", "captured.toml", "--out", "base.jsonl"
    )
    return _ended("capture", failed)


def choose(place: Place) -> Step:
    """Choose from that run."""
    return _ended("choose", place.call("choose", "attnbench", "choose", "base.jsonl"))


def compare(place: Place) -> Step:
    """Compare that run with a second one: outputs must be right, and both sides have the same cells."""
    gate = ("--fail-on", "mismatch,missing")
    failed = place.call("compare", "attnbench", "run", "captured.toml", "--out", "new.jsonl") or place.call(
        "compare", "attnbench", "compare", "base.jsonl", "new.jsonl", *gate
    )
    return _ended("compare", failed)


def _ended(name: str, status: int) -> Step:
    return Step(name, status == 0, "passed" if status == 0 else f"exit status {status}")


def own_tests(place: Place) -> Step:
    """Run attnbench's tests."""
    return _tested(place, "tests", ["tests"], "-m", "not slow and not pinned")


def plugin_tests(place: Place) -> Step:
    """Install the plugins, which no other step shall meet, and run their tests."""
    failed = _pip(place, *map(str, packages(place.environment)[1:]))
    if failed:
        return Step("plugins", False, "not installed")
    return _tested(place, "plugins", [f"plugins/{name}/tests" for name in place.environment.plugins])


def _tested(place: Place, name: str, folders: list[str], *words: str) -> Step:
    """Run the tests of each folder in a process of its own, and count. words: further ones for pytest.

    Packages leave their slow tests out themselves, and pytest 9.2 refuses a marker that a package lacks.
    """
    run = failed = 0
    worst = 0
    for number, folder in enumerate(folders):
        report = place.folder / f"{name}-{number}.xml"
        chosen = [*words, f"--junitxml={report}"]
        # The tests that failed are remembered for each environment.
        chosen += ["-o", f"cache_dir={place.folder / f'cache-{name}-{number}'}"]
        if place.again:
            chosen.append("--last-failed")
        worst = max(worst, place.call(name, "python", "-m", "pytest", folder, *chosen, inside=ROOT))
        if report.exists():
            for suite in ElementTree.parse(report).iter("testsuite"):
                counts = {key: int(suite.attrib[key]) for key in ("tests", "skipped", "failures", "errors")}
                run += counts["tests"] - counts["skipped"]
                failed += counts["failures"] + counts["errors"]
    if failed:
        return Step(name, False, f"{failed:,} of {run:,} failed")
    return Step(name, worst == 0, f"{run:,} passed" if worst == 0 else f"exit status {worst}")


STEPS: dict[str, Callable[[Place], Step]] = {
    "run": default_run, "capture": capture, "choose": choose, "compare": compare, "tests": own_tests,
    "plugins": plugin_tests,
}  # fmt: skip


def tried(place: Place, keep: bool = False) -> Outcome:
    """Make an environment and go through the steps; one that fails does not stop the rest."""
    shutil.rmtree(place.folder, ignore_errors=True)
    place.folder.mkdir(parents=True)
    steps = [_told(install(place))]
    if steps[0].passed:
        steps += _gone_through(
            place, [name for name in STEPS if name != "plugins" or place.environment.plugins]
        )
    outcome = _outcome(place, steps)
    if not keep:
        # Each has gigabytes, and a machine may not have room for all.
        shutil.rmtree(place.folder / "venv")
    return outcome


def tried_again(place: Place) -> Outcome:
    """Go through the steps that failed in an environment that was kept; exit where none was."""
    if not (place.folder / "venv").exists() or not _failed_file(place).exists():
        sys.exit(f"{place.folder} has no environment to try again: try it with --keep first")
    # Only their own step shall meet them.
    place.call("install", "python", "-m", "pip", "uninstall", "--yes", *place.environment.plugins)
    return _outcome(place, _gone_through(place, json.loads(_failed_file(place).read_text())))


def _gone_through(place: Place, names: list[str]) -> list[Step]:
    """Go through steps, and leave the names of those that failed."""
    steps = [_told(STEPS[name](place)) for name in names]
    _failed_file(place).write_text(json.dumps([step.name for step in steps if not step.passed]))
    return steps


def _failed_file(place: Place) -> Path:
    return place.folder / "failed.json"


def _outcome(place: Place, steps: list[Step]) -> Outcome:
    found = _installed(place)
    python = found.pop("python", place.environment.python)
    return Outcome(place.environment.name, python, found, tuple(steps), f"{datetime.now(UTC):%Y-%m-%d}")


def _told(step: Step) -> Step:
    print(f"   {step.name}: {step.said}", flush=True)
    return step


def _installed(place: Place) -> dict[str, str]:
    """Return the versions of Python and of what the packages need, as far as they are installed."""
    names = sorted({name for package in packages(place.environment) for name in needed(package)})
    asked = [str(place.folder / "venv" / "bin" / "python"), "-c", INSTALLED, *names]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    versions: dict[str, str] = json.loads(done.stdout) if done.returncode == 0 else {}
    return versions


def store(outcomes: Iterable[Outcome], path: Path = STORED) -> None:
    """Put outcomes into the stored ones; those of other environments stay, in the order of the table."""
    found = {outcome["name"]: outcome for outcome in json.loads(path.read_text())} if path.exists() else {}
    found |= {outcome.name: asdict(outcome) for outcome in outcomes}
    names = [environment.name for environment in environments()]
    path.write_text(json.dumps([found[name] for name in names if name in found], indent=1) + "\n")


def main(words: list[str] | None = None) -> int:
    """Try the environments that were named, or all."""
    table = {environment.name: environment for environment in environments()}
    parser = argparse.ArgumentParser(prog=".ci/versions")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(table))
    parser.add_argument("--store", action="store_true", help=f"put the outcomes into {STORED.name}")
    parser.add_argument("--keep", action="store_true", help="leave the environments in FOLDER")
    parser.add_argument("--again", action="store_true", help="in those, only what failed")
    given = parser.parse_intermixed_args(words)
    if given.again and given.store:
        parser.error("--again cannot be stored: a stored outcome is of all steps")
    unknown = [name for name in given.names if name not in table]
    if unknown:
        parser.error(f"no environment {unknown[0]!r}; there are {', '.join(table)}")
    outcomes, left_out = [], []
    for name in given.names or table:
        environment = table[name]
        python = interpreter(environment.python)
        if python is None:
            print(f"Python {environment.python} is not on PATH, so {name} is left out.", flush=True)
            left_out.append(name)
            continue
        print(f"== {name}", flush=True)
        # Compilers of older torch fail where a path has a blank.
        folder = given.folder.resolve() / name.replace(" ", "-")
        place = Place(environment, python, folder, given.again)
        outcomes.append(tried_again(place) if given.again else tried(place, given.keep))
        if given.store:
            # At once: each takes half an hour, and whoever stops the rest keeps it.
            store(outcomes[-1:])
    failed = [outcome.name for outcome in outcomes if not all(step.passed for step in outcome.steps)]
    parts = (
        ("passed", [one.name for one in outcomes if one.name not in failed]),
        ("failed", failed),
        ("left out", left_out),
    )
    print("; ".join(f"{said}: {', '.join(names)}" for said, names in parts if names))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
