"""Installed plugins, files and modules: what is found, what is chosen, and what can't be had."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from attnbench.plugins.registry import load_wanted
from attnbench.plugins.sources import import_plugin, installed, named
from attnbench.types.errors import BadInput
from attnbench.types.extensions import Source

Install = Callable[..., Path]
BACKEND = """
from attnbench import Backend, hookimpl
@hookimpl
def attnbench_backends():
    yield Backend({name!r}, "a test", prepare=print)
"""


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    file = tmp_path / "my_kernel.py"
    file.write_text(BACKEND.format(name="mine"))
    return file


def test_own_plugins_come_first_and_others_by_distribution(install: Install) -> None:
    install("mini_b", "", distribution="aaa-before-us")
    install("mini_a", "raise AssertionError('imported')", distribution="aa-dist", version="3.1")
    install("mini_c", "", distribution="twice", version="1.0")
    install("mini_c", "", distribution="twice", version="2.0")
    sources = list(installed())
    own = [source for source in sources if source.distribution == "attnbench"]
    assert sources[: len(own)] == own
    assert {source.module for source in own} == {
        f"attnbench.{kind}"
        for kind in ("rules", "backends", "suites", "operations", "storages", "encodings", "executors")
    }
    assert [source for source in sources if source.name.startswith("mini_")] == [
        Source("mini_a", "mini_a", "aa-dist", "3.1"),
        Source("mini_b", "mini_b", "aaa-before-us", "1.0"),
        # Of a distribution found twice the first one on the path counts, as for Python itself.
        Source("mini_c", "mini_c", "twice", "2.0"),
    ]
    assert str(sources[len(own)]) == "aa-dist 3.1 (mini_a)"


def test_a_file_is_named_by_its_content(kernel: Path) -> None:
    source = load_wanted([str(kernel)]).backends["mine"].source
    assert (source.name, source.distribution, source.path) == ("my_kernel", "my_kernel.py", str(kernel))
    assert len(source.version) == 12
    kernel.write_text(BACKEND.format(name="another"))
    another = named(str(kernel))
    assert another.version != source.version
    kernel.write_text(BACKEND.format(name="a third"))
    with pytest.raises(ImportError, match=r"my_kernel\.py has changed since it was first loaded"):
        import_plugin(another)
    assert another.module not in sys.modules


def test_a_file_hides_no_library_and_imports_what_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "mini_beside_it.py").write_text("NAME = 'from_beside'\n")
    file = tmp_path / "json.py"
    file.write_text("from mini_beside_it import NAME\n" + BACKEND.replace("{name!r}", "NAME"))
    assert "from_beside" in load_wanted([str(file)]).backends
    import json

    assert json.__file__ != str(file)
    assert sys.path.index(str(tmp_path)) == len(sys.path) - 1


def test_a_file_may_have_any_name(tmp_path: Path) -> None:
    file = tmp_path / "\x1b[31m\n.py"
    file.write_text(BACKEND.format(name="mine"))
    assert load_wanted([str(file)]).backends["mine"].source.distribution == r"\x1b[31m .py"


def test_modules_are_named_too_and_loaded_once(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("mini_twice", BACKEND.format(name="mine"))
    install("mini_named", BACKEND.format(name="other"), value="mini_elsewhere")
    monkeypatch.setenv("ATTNBENCH_LOAD_PLUGINS", "mini_twice")
    monkeypatch.setenv("ATTNBENCH_PLUGINS", os.pathsep.join(["mini_named", "attnbench.suites"]))
    registry = load_wanted(["mini_twice", "mini_twice"])
    assert [source.module for source in registry.plugins].count("mini_twice") == 1
    assert registry.backends["other"].source.path == ""
    assert registry.faults == ()


NAMES = "name a file (my_kernel.py) or a module (package.module)"


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("", f"no plugin '': {NAMES}"),
        ("my kernel", f"no plugin 'my kernel': {NAMES}"),
        ("./", "no plugin '.': not a file; name a file, or a module"),
        ("pipe.py", "no plugin 'pipe.py': not a file; name a file, or a module"),
        (
            "mini_kernel_here",
            "no plugin 'mini_kernel_here' that can be imported; did you mean the file 'mini_kernel_here.py'?",
        ),
        (
            "json",
            "plugin json uninstalled (json): has no hooks: write one, such as attnbench_backends, with "
            "@attnbench.hookimpl above it",
        ),
    ],
)
def test_a_word_that_names_no_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mini_kernel_here.py").touch()
    os.mkfifo("pipe.py")
    with pytest.raises(BadInput) as wrong:
        load_wanted([word])
    assert str(wrong.value) == sentence


def test_installed_plugins_are_chosen_by_distribution_or_name(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("mini_one", BACKEND.format(name="one"))
    install("mini_two", BACKEND.format(name="two"))
    gone = "ATTNBENCH_LOAD_PLUGINS names 'attnbench-gone', but no installed plugin has this name"
    for words, there, faults in (
        (None, {"one", "two"}, ()),
        ("mini_one", {"one"}, ()),
        ("attnbench-mini_two, mini_one", {"one", "two"}, ()),
        ("", set(), ()),
        ("attnbench-gone", set(), (gone,)),
    ):
        if words is not None:
            monkeypatch.setenv("ATTNBENCH_LOAD_PLUGINS", words)
        registry = load_wanted()
        assert {"one", "two"} & registry.backends.keys() == there
        assert "eager" in registry.backends
        assert registry.faults == faults


def test_strict_lets_exceptions_through_and_makes_faults_errors(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("mini_clash", BACKEND.format(name="eager"))
    assert len(load_wanted().faults) == 1
    monkeypatch.setenv("ATTNBENCH_STRICT_PLUGINS", "1")
    with pytest.raises(BadInput, match=r"brings a backend 'eager', as attnbench"):
        load_wanted()
    install("mini_raising", "raise ZeroDivisionError('mine')")
    with pytest.raises(ZeroDivisionError, match="mine"):
        load_wanted()


def test_tracing_prints_imports_and_hooks_with_their_times(
    kernel: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ATTNBENCH_TRACE_PLUGINS", "1")
    kernel.write_text(BACKEND.format(name="traced"))
    source = load_wanted([str(kernel)]).backends["traced"].source
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if str(source) in line]
    assert out == ""
    assert [line.split(": done after ")[0] for line in lines] == [
        f"attnbench: trace: importing {source}",
        f"attnbench: trace: attnbench_backends of {source}",
    ]
    assert all(float(line.split(" after ")[1].removesuffix(" ms")) >= 0 for line in lines)
