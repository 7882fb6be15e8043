"""The code that is measured is the code that the run file names: files of plugins, and attnbench itself."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from run_parts import PLAIN, run_of

import attnbench
from attnbench.plugins.registry import Registry, load_registry
from attnbench.plugins.sources import installed, named
from attnbench.results.format import StoredRun
from attnbench.runner.run import resume_run
from attnbench.types.errors import BadInput

KERNEL = """
import attnbench
def prepare(setup):
    {prepare}
    def call(q, k, v):
        {call}
        return (q @ k.mT).softmax(-1) @ v
    return call
@attnbench.hookimpl
def attnbench_backends():
    yield attnbench.Backend(name={name!r}, summary="a test", prepare=prepare, rules=("dot",))
"""
SAVED = "\n    with open({file!r}, 'a') as out: out.write('# saved\\n')"
WHEN_MEASURED = (b'{"kind":"record"', b'{"kind":"end"')
"""The lines that follow the repetitions."""
WRITTEN_AGAIN = "\n    text = open({file!r}).read()\n    open({file!r}, 'w').write(text)"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that this process and its workers import from."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return folder


def kernel(name: str, prepare: str = "pass", call: str = "pass") -> str:
    return KERNEL.format(name=name, prepare=prepare, call=call)


def registry_with(*words: str) -> Registry:
    return load_registry([*installed(), *map(named, words)])


def package_in(folder: Path, name: str, text: str) -> Path:
    """Write a package, with what Emacs leaves beside a file that is edited: a link that leads nowhere."""
    package = folder / name
    package.mkdir()
    (package / "__init__.py").write_text(text)
    (package / ".#__init__.py").symlink_to("somebody@host.1234:5678")
    return package


def run_with(*plugins: str, backends: tuple[str, ...], out: Path, repetitions: int = 1) -> StoredRun:
    """Run one case on backends of these plugins."""
    return run_of(
        out, (PLAIN,), backends, registry=registry_with(*plugins), repetitions=repetitions, launches=1
    )


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12]


def test_code_that_changes_during_a_run_ends_its_backend(path: Path, tmp_path: Path) -> None:
    """An editor that saves while it is measured would mix the times of two codes."""
    late = path / "saved_package" / "late.py"
    saving = "import saved_package.late" + SAVED.format(file=str(late))
    package_in(path, "saved_package", kernel("of_package", saving))
    files = {
        "of_package": late,
        "in_prepare": tmp_path / "beside_prepare.py",
        "in_call": tmp_path / "beside_call.py",
        "written_again": tmp_path / "beside_again.py",
    }
    for file in files.values():
        file.write_text("NUMBER = 1\n")
    saved = {name: SAVED.format(file=str(file)) for name, file in files.items()}
    again = WRITTEN_AGAIN.format(file=str(files["written_again"]))
    kernels = {
        "in_prepare": kernel("in_prepare", "import beside_prepare" + saved["in_prepare"]),
        "in_call": kernel("in_call", "pass" + saved["in_call"], "import beside_call"),
        "written_again": kernel("written_again", "import beside_again" + again),
    }
    for name, text in kernels.items():
        (tmp_path / f"{name}.py").write_text(text)
    words = ["saved_package", *(str(tmp_path / f"{name}.py") for name in kernels)]
    run = run_with(*words, backends=tuple(files), out=tmp_path / "out", repetitions=2)
    found = {record.backend: (record.status, record.reason) for record in run.records}
    assert found.pop("written_again") == ("ok", "")
    words = "changed during the run: start again; where the plugin writes that module itself, write it once"
    assert {status for status, _ in found.values()} == {"error"}
    assert all(reason.startswith(f"{files[name]} {words}") for name, (_, reason) in found.items())
    assert len(found) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "first"),
    [("import part_of_it", ""), ("", "import part_in_prepare")],
    ids=["imported", "in prepare"],
)
def test_code_that_is_saved_while_a_backend_is_prepared_ends_it(
    tmp_path: Path, before: str, first: str
) -> None:
    """One process has the code before, all others that after: the file is saved once.

    Preparation may import the part itself; no process then sees two contents.
    """
    # A name of its own, since the folder of the other stays on the import path.
    name = (before or first).removeprefix("import ")
    part, once = tmp_path / f"{name}.py", tmp_path / "saved"
    part.write_text("NUMBER = 1\n")
    save = f"""
    {first}
    import os
    if not os.path.exists({str(once)!r}):
        open({str(once)!r}, "w").close()
        open({str(part)!r}, "a").write("# saved")"""
    plugin = tmp_path / "saved_once.py"
    plugin.write_text(before + kernel("mine", save))
    run = run_with(str(plugin), backends=("mine",), out=tmp_path / "run.jsonl")
    (record,) = run.records
    assert record.status == "error"
    assert f"{name}.py changed during the run: start again" in record.reason


def test_a_run_file_has_digests_of_the_code_and_a_run_does_not_go_on_with_other_code(
    path: Path, tmp_path: Path
) -> None:
    """Also under the same version, and where only preparation or a call imports it.

    Libraries and links that lead nowhere do not count, and attnbench itself counts once.
    """
    text = kernel("mine", "import in_use.late, beside_it, msgspec", "import in_calls")
    package = package_in(path, "in_use", text)
    files = {
        "in_use": package / "__init__.py",
        "in_use.late": package / "late.py",
        "beside_it": path / "beside_it.py",
        "in_calls": path / "in_calls.py",
    }
    for name in ("in_use.late", "beside_it", "in_calls"):
        files[name].write_text("NUMBER = 1\n")
    run = run_with("in_use", backends=("mine",), out=tmp_path / "run.jsonl")
    assert run.cases[0].candidates["mine"].code == {name: digest(file) for name, file in files.items()}
    codes = {plugin.name: plugin.code for plugin in run.manifest.plugins}
    assert codes["in_use"] != codes["backends"] == codes["rules"] != ""

    lines = run.path.read_bytes().splitlines(keepends=True)
    run.path.write_bytes(b"".join(line for line in lines if not line.startswith(WHEN_MEASURED)))
    before = run.path.read_bytes()

    def resumed(path: Path) -> list[StoredRun]:
        return resume_run(path, registry_with("in_use"), None, lambda begun, here: [])

    for name in ("in_use", "in_use.late", "in_calls"):
        file = files[name]
        text = file.read_text()
        file.write_text(text + "# another kernel\n")
        of_package = f"code of {'in_use uninstalled' if file.parent == package else name}"
        with pytest.raises(BadInput, match=f"the run was begun with other {of_package}"):
            resumed(run.path)
        file.write_text(text)
    assert run.path.read_bytes() == before
    assert [one.status for one in resumed(run.path)[-1].records] == ["ok"]


def test_a_worker_that_imports_another_file_than_the_parent_is_refused(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for folder in (path, other):
        (folder / "of_two_places.py").write_text(kernel("mine"))
    registry = registry_with("of_two_places")
    os.environ["PYTHONPATH"] = str(other)
    (record,) = run_of(tmp_path / "out.jsonl", (PLAIN,), ("mine",), registry=registry).records
    assert record.status == "error"
    here, there = path / "of_two_places.py", other / "of_two_places.py"
    places = f"one process has of_two_places from {str(here)!r}, another from {str(there)!r}; "
    assert record.reason.startswith(places)


def test_a_command_of_another_attnbench_than_is_installed_is_refused(tmp_path: Path) -> None:
    """``python -m`` takes the one in the working folder, its workers the one that is installed."""
    ours = Path(attnbench.__file__).parent
    shutil.copytree(ours, tmp_path / "attnbench", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [sys.executable, "-m", "attnbench", "check", "attention/dot/H1-L16-D8", "--backend", "eager"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert (
        f"this process has attnbench from {str(tmp_path / 'attnbench')!r}, and the processes that it starts "
        f"from {str(ours)!r}: start the command attnbench"
    ) in done.stderr
