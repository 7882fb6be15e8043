"""Files and modules that are named: loaded beside what is installed, and an error where they can't be."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from attnbench.plugins.registry import load_wanted
from attnbench.plugins.sources import chosen, import_plugin, named, wanted
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


def test_a_file_brings_its_backend_and_is_named_by_its_content(kernel: Path) -> None:
    entry = load_wanted([str(kernel)]).backends["mine"]
    assert (entry.source.name, entry.source.distribution) == ("my_kernel", "my_kernel.py")
    assert entry.source.path == str(kernel)
    assert len(entry.source.version) == 12
    kernel.write_text(kernel.read_text() + "# another\n")
    assert named(str(kernel)).version != entry.source.version


def test_a_file_that_changed_since_is_not_loaded(kernel: Path) -> None:
    kernel.write_text(BACKEND.format(name="before"))
    source = named(str(kernel))
    kernel.write_text(BACKEND.format(name="after"))
    with pytest.raises(ImportError, match=r"my_kernel\.py has changed since it was loaded first"):
        import_plugin(source)
    assert source.module not in sys.modules


def test_a_file_called_like_a_library_is_in_nobodys_way(tmp_path: Path) -> None:
    file = tmp_path / "json.py"
    file.write_text(BACKEND.format(name="mine"))
    assert "mine" in load_wanted([str(file)]).backends
    import json

    assert json.__file__ != str(file)
    assert sys.path.index(str(tmp_path)) == len(sys.path) - 1


def test_what_lies_beside_a_file_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "mini_beside_it.py").write_text("NAME = 'from_beside'\n")
    file = tmp_path / "own.py"
    file.write_text("from mini_beside_it import NAME\n" + BACKEND.replace("{name!r}", "NAME"))
    assert "from_beside" in load_wanted([str(file)]).backends


def test_a_module_by_its_name_with_its_distribution(install: Install) -> None:
    install("mini_named", BACKEND.format(name="mine"), value="mini_elsewhere")
    entry = load_wanted(["mini_named"]).backends["mine"]
    assert entry.source.module == "mini_named"
    assert entry.source.path == ""


def test_environment_names_plugins_too(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNBENCH_PLUGINS", os.pathsep.join([str(kernel), "attnbench.suites"]))
    assert "mine" in load_wanted().backends


def test_a_plugin_that_is_named_and_installed_is_loaded_once(install: Install) -> None:
    install("mini_twice", BACKEND.format(name="mine"))
    registry = load_wanted(["mini_twice", "mini_twice"])
    assert [source.module for source in registry.plugins].count("mini_twice") == 1
    assert registry.faults == ()


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("nowhere.py", "no plugin 'nowhere.py': No such file or directory"),
        (".", "no plugin '.': name a file, as my_kernel.py, or a module, as package.module"),
        ("", "no plugin '': name a file, as my_kernel.py, or a module, as package.module"),
        ("my kernel", "no plugin 'my kernel': name a file, as my_kernel.py, or a module, as package.module"),
        ("./", "no plugin '.': that is no file; name its file, or the module that it is"),
        (
            "mini_no_such",
            "plugin mini_no_such uninstalled (mini_no_such): does not import: ModuleNotFoundError: "
            "No module named 'mini_no_such'",
        ),
    ],
)
def test_what_is_named_and_can_not_be_had_is_one_sentence(word: str, sentence: str) -> None:
    with pytest.raises(BadInput) as wrong:
        load_wanted([word])
    assert str(wrong.value) == sentence


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("def (", "does not import: SyntaxError: invalid syntax (broken.py, line 1)"),
        ("import sys; sys.exit(3)", "does not import: SystemExit: 3"),
        (
            BACKEND.format(name="mine").replace("attnbench_backends", "attnbench_backend"),
            "unknown hook 'attnbench_backend'",
        ),
        (BACKEND.format(name="eager"), "brings a backend 'eager', as attnbench "),
        (BACKEND.format(name="mine").replace("yield", "1 / 0\n    yield"), "attnbench_backends raised Zero"),
    ],
)
def test_a_fault_of_a_named_plugin_is_an_error(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "broken.py"
    file.write_text(text)
    with pytest.raises(BadInput) as wrong:
        load_wanted([str(file)])
    assert sentence in str(wrong.value)
    assert str(named(str(file))) in str(wrong.value)


def test_installed_plugins_are_chosen_by_distribution_or_name(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("mini_one", BACKEND.format(name="one"))
    install("mini_two", BACKEND.format(name="two"))
    assert {"one", "two"} <= load_wanted().backends.keys()
    for words, there in (
        ("mini_one", {"one"}),
        ("attnbench-mini_two, mini_one", {"one", "two"}),
        ("", set()),
    ):
        monkeypatch.setenv("ATTNBENCH_LOAD_PLUGINS", words)
        registry = load_wanted()
        assert {"one", "two"} & registry.backends.keys() == there
        assert "eager" in registry.backends
        assert registry.faults == ()


def test_a_word_that_chooses_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNBENCH_LOAD_PLUGINS", "attnbench-gone")
    assert load_wanted().faults == (
        "ATTNBENCH_LOAD_PLUGINS names 'attnbench-gone', and no plugin that is installed is called so",
    )


def test_strict_raises_what_a_plugin_raises(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("mini_raising", "raise ZeroDivisionError('mine')")
    assert len(load_wanted().faults) == 1
    monkeypatch.setenv("ATTNBENCH_STRICT_PLUGINS", "1")
    with pytest.raises(ZeroDivisionError, match="mine"):
        load_wanted()


def test_strict_raises_faults_that_raise_nothing(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("mini_clash", BACKEND.format(name="eager"))
    monkeypatch.setenv("ATTNBENCH_STRICT_PLUGINS", "1")
    with pytest.raises(BadInput, match=r"brings a backend 'eager', as attnbench"):
        load_wanted()


def test_tracing_tells_imports_and_hooks_with_their_times(
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


def test_sources_are_apart_by_how_they_came(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNBENCH_LOAD_PLUGINS", "")
    kept, more, said = wanted([str(kernel)])
    assert {source.distribution for source in kept} == {"attnbench"}
    assert [source.name for source in more] == ["my_kernel"]
    assert said == []


def test_choosing_keeps_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [Source(name, name, f"d-{name}", "1") for name in ("c", "a", "b")]
    monkeypatch.setenv("ATTNBENCH_LOAD_PLUGINS", "d-b,c")
    assert [source.name for source in chosen(sources)[0]] == ["c", "b"]
