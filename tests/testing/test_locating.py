"""Finding a backend again in another process, however its author has named it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from attnbench import Backend
from attnbench.testing import conformance_cases
from attnbench.testing.locating import located
from attnbench.types.errors import BadInput

HOOKLESS = """
from attnbench import Backend
MINE = Backend({name!r}, "a test", prepare=print, rules=("dot",), dtypes=("float32",))
def make():
    return Backend({name!r}, "a test", prepare=make)
"""


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module without hooks, imported as any other."""
    (tmp_path / "hookless_kernel.py").write_text(HOOKLESS.format(name="hookless"))
    monkeypatch.syspath_prepend(tmp_path)
    import hookless_kernel

    yield hookless_kernel
    del sys.modules["hookless_kernel"]


def test_a_backend_needs_no_plugin(beside: ModuleType) -> None:
    before = list(sys.path)
    with located(beside.MINE) as found:
        entry = found.registry.backends["hookless"]
        assert found.backends == ("hookless",)
        assert entry.record is beside.MINE
        assert Path(entry.source.path).is_file()
    assert not Path(entry.source.path).exists()
    assert sys.path == before


def test_a_module_that_is_no_plugin_by_its_file(tmp_path: Path) -> None:
    file = tmp_path / "odd.py"
    file.write_text(HOOKLESS.format(name="odd"))
    module = ModuleType("loaded_from_elsewhere")
    module.__file__ = str(file)
    exec(file.read_text(), module.__dict__)
    sys.modules[module.__name__] = module
    try:
        with located(module.MINE) as found:
            assert found.registry.backends["odd"].record.summary == "a test"
    finally:
        del sys.modules[module.__name__]


def test_a_backend_that_is_no_name_is_refused(beside: ModuleType) -> None:
    with (
        pytest.raises(
            BadInput, match=r"not a name at the top level.*functions come from hookless_kernel.*%%writefile"
        ),
        located(beside.make()),
    ):
        pass


def test_a_file_that_checks_itself_when_it_is_imported(tmp_path: Path) -> None:
    file = tmp_path / "selfish.py"
    call = "from attnbench.testing import check_backend\ncheck_backend(MINE, large=False)\n"
    file.write_text(HOOKLESS.format(name="selfish") + call)
    ended = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False)
    assert "put the call under if __name__ == '__main__'" in ended.stderr


def test_names_files_and_what_is_neither(tmp_path: Path) -> None:
    with located("bmm") as found:
        assert found.backends == ("bmm",)
    with (
        pytest.raises(BadInput, match=r"no backend 'bmn'; did you mean 'bmm'\? Name a file as my_kernel"),
        located("bmn"),
    ):
        pass
    (tmp_path / "empty.py").write_text(
        "from attnbench import hookimpl\n@hookimpl\ndef attnbench_backends():\n    return []\n"
    )
    with pytest.raises(BadInput, match="brings no backend and no rule: add a function attnbench_backends"):
        conformance_cases(tmp_path / "empty.py")
    (tmp_path / "two.py").write_text(
        "from attnbench import Backend, hookimpl\n@hookimpl\ndef attnbench_backends():\n"
        "    return [Backend(name, 'a test', prepare=print) for name in ('one', 'two')]\n"
    )
    with pytest.raises(BadInput, match=r"brings 2 backends \(one, two\): name one of them"):
        conformance_cases(tmp_path / "two.py")


def test_cases_are_told_beforehand() -> None:
    cases = conformance_cases("numpy", large=False)
    assert 20 < len(cases) <= 31
    assert not any(one.large for one in cases)
    mine = Backend("mine", "a test", prepare=print, rules=("dot",), dtypes=("float64",))
    assert {one.case.dtype for one in conformance_cases(mine)} == {"float64"}
